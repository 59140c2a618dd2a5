"""Write many rows at once into a database of ours, past the ORM: SQLite or PostgreSQL's COPY."""

import json
import sqlite3
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from lossbench.service.store.models import Base
from lossbench.service.store.tallies import COUNT_ALL

LOOKED_THROUGH = "INSERT INTO alert_scans (job_id, scanned_at) SELECT id, created_at FROM jobs"
"""A service would look through all the made-up jobs for alerts while its pages are timed."""

Row = dict[str, Any]


class SqliteBulk:
    """One transaction per `write`, no waiting for the disk; indices and tallies at the end."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        # foreign keys stay off here: the rows are made to fit
        for pragma in ("synchronous=OFF", "journal_mode=MEMORY", "cache_size=-256000"):
            self._connection.execute(f"PRAGMA {pragma}")
        found = self._connection.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL"
        )
        self._indices = {name: text for name, text in found if _is_ours(name)}
        for name in self._indices:
            self._connection.execute(f"DROP INDEX {name}")

    def write(self, table: str, rows: Sequence[Row]) -> None:
        """Add rows that all have the same columns or lack some."""
        names = _columns(table)
        places = ", ".join("?" * len(names))
        columns = ", ".join(f'"{name}"' for name in names)
        packed = [tuple(_for_sqlite(row.get(name)) for name in names) for row in rows]
        self._connection.execute("BEGIN")
        self._connection.executemany(f"INSERT INTO {table} ({columns}) VALUES ({places})", packed)
        self._connection.execute("COMMIT")

    def close(self) -> None:
        """Make indices and tallies and give the file back as the service wants it."""
        for text in self._indices.values():
            self._connection.execute(text)
        self._connection.execute(COUNT_ALL)
        self._connection.execute(LOOKED_THROUGH)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.close()


class PostgresBulk:
    """COPY without foreign-key triggers; indices made anew at the end. Needs a superuser."""

    def __init__(self, url: str) -> None:
        self._engine = sa.create_engine(url)
        self._connection: Any = self._engine.raw_connection()
        self._cursor = self._connection.cursor()
        self._cursor.execute("SET session_replication_role = replica")
        self._cursor.execute("SET maintenance_work_mem = '512MB'")
        self._cursor.execute(
            "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = current_schema()"
        )
        self._indices = {name: text for name, text in self._cursor.fetchall() if _is_ours(name)}
        for name in self._indices:
            self._cursor.execute(f"DROP INDEX {name}")
        self._connection.commit()

    def write(self, table: str, rows: Sequence[Row]) -> None:
        """Add rows that all have the same columns or lack some."""
        names = _columns(table)
        columns = ", ".join(f'"{name}"' for name in names)
        with self._cursor.copy(f"COPY {table} ({columns}) FROM STDIN") as copy:
            for row in rows:
                copy.write_row([_for_postgres(row.get(name)) for name in names])
        self._connection.commit()

    def close(self) -> None:
        """Make indices and tallies; statistics and visibility map as autovacuum leaves them."""
        for text in self._indices.values():
            self._cursor.execute(text)
        self._cursor.execute(COUNT_ALL)
        self._cursor.execute(LOOKED_THROUGH)
        self._connection.commit()
        self._cursor.close()
        self._connection.close()
        with self._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql("VACUUM ANALYZE")
        self._engine.dispose()


Bulk = SqliteBulk | PostgresBulk


def bulk_of(url: str) -> Bulk:
    """The writer for a database."""
    if url.startswith("sqlite:///"):
        return SqliteBulk(Path(url.removeprefix("sqlite:///")))
    return PostgresBulk(url)


def _is_ours(name: str) -> bool:
    indices: set[str | None] = {
        str(index.name) for table in Base.metadata.tables.values() for index in table.indexes
    }
    return name in indices


_KNOWN: dict[str, list[str]] = {}


def _columns(table: str) -> list[str]:
    """Columns that are written; a key that counts by itself is left to the database."""
    if table not in _KNOWN:
        _KNOWN[table] = [
            column.name
            for column in Base.metadata.tables[table].columns
            if not (column.primary_key and column.autoincrement is True)
        ]
    return _KNOWN[table]


def _for_sqlite(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S.%f")
    return _packed(value)


def _for_postgres(value: Any) -> Any:
    return _packed(value)


_TEXT: Callable[[Any], str] = json.JSONEncoder(separators=(", ", ": ")).encode


def _packed(value: Any) -> Any:
    return _TEXT(value) if isinstance(value, dict | list) else value
