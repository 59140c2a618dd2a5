"""Engine, sessions and migrations. `commit` happens only in `Database.transaction`."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy.orm import Session, sessionmaker

from ..contract.errors import DatabaseError, SchemaTooNewError
from ..settings import Settings
from .kept_runs import INFO, KeptRuns

SQLITE_BUSY_TIMEOUT_S = 30
WAL_PAGES = 200_000
"""Pages (800 MB) in SQLite's log from which a commit empties it itself: see `checkpoint`. Only
imports that come without a pause of a second fill it so far."""
WAL_KEPT_BYTES = 64 * 2**20
"""What an emptied log keeps of its file."""
IDLE_TRANSACTION_S = 10.0
"""PostgreSQL ends a session that sits in a transaction for longer: a frozen process would otherwise
hold its row locks, and with them the job, until it wakes up."""
NOT_PERMITTED = "42501"
"""PostgreSQL's code for what a role may not do."""
KEEPALIVE = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""Of PostgreSQL's connections: a server that vanished without a word is noticed in half a minute;
the last is in ms."""
MIGRATIONS = Path(__file__).with_name("migrations")


def _prepare_sqlite(connection: Any, _record: object) -> None:
    if not isinstance(connection, sqlite3.Connection):
        return
    cursor = connection.cursor()
    for pragma in (
        "journal_mode=WAL",
        "synchronous=NORMAL",
        "foreign_keys=ON",
        f"busy_timeout={SQLITE_BUSY_TIMEOUT_S * 1000}",
        f"wal_autocheckpoint={WAL_PAGES}",
        f"journal_size_limit={WAL_KEPT_BYTES}",
    ):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def make_engine(url: str, idle_transaction_s: float = IDLE_TRANSACTION_S) -> sa.Engine:
    """An engine with this project's connection settings for SQLite or PostgreSQL."""
    remote = not url.startswith("sqlite")
    try:
        engine = sa.create_engine(
            url, pool_pre_ping=remote, connect_args=dict(KEEPALIVE) if remote else {}
        )
    except (sa.exc.ArgumentError, ModuleNotFoundError) as error:
        raise DatabaseError(
            f"the database URL is not usable ({error}); write sqlite:///path or "
            "postgresql://user@host/name in LOSSBENCH_DATABASE_URL"
        ) from error
    if engine.dialect.name == "sqlite":
        sa.event.listen(engine, "connect", _prepare_sqlite)
        sa.event.listen(engine, "begin", _begin_immediate)
    else:
        limit_ms = int(idle_transaction_s * 1000)

        def limit_idle_transactions(connection: Any, _record: object) -> None:
            connection.execute(f"SET idle_in_transaction_session_timeout = {limit_ms}")
            connection.commit()

        sa.event.listen(engine, "connect", limit_idle_transactions)
    return engine


def _begin_immediate(connection: sa.Connection) -> None:
    # a writer that first reads would otherwise fail at its first write with "database is locked"
    if connection.get_execution_options().get("lossbench_writes"):
        connection.exec_driver_sql("BEGIN IMMEDIATE")


class Database:
    """One database: its engine and how to work in a transaction."""

    def __init__(self, url: str, idle_transaction_s: float = IDLE_TRANSACTION_S) -> None:
        self.url = url
        self.engine = make_engine(url, idle_transaction_s)
        # what sessions that only read may keep between them
        self._reading = sessionmaker(self.engine, expire_on_commit=False, info={INFO: KeptRuns()})
        self._writing = sessionmaker(
            self.engine.execution_options(lossbench_writes=True), expire_on_commit=False
        )

    @classmethod
    def from_settings(cls, settings: Settings) -> "Database":
        """The database of these settings; makes the data directory where SQLite needs it."""
        if settings.database_url is None:
            settings.prepared_data_dir()
        return cls(settings.resolved_database_url)

    @property
    def is_sqlite(self) -> bool:
        """True on SQLite (one machine), False on PostgreSQL."""
        return self.engine.dialect.name == "sqlite"

    @contextmanager
    def transaction(self) -> Iterator[Session]:
        """A writing session: commits at the end, rolls back on an exception."""
        with self._writing() as session, session.begin():
            yield session

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """A session for reading only."""
        with self._reading() as session:
            yield session

    def checkpoint(self) -> None:
        """Move what SQLite's log holds into the file, beside readers and writers.

        The service does it every second: at 1,000,000 results an import writes 15 MB of pages, and
        the commit that had to move them took 190 ms instead of 100 (2026-11-30).
        """
        if self.is_sqlite:
            with self.engine.connect() as connection:
                connection.exec_driver_sql("PRAGMA wal_checkpoint(PASSIVE)")

    def close(self) -> None:
        """Give back all connections."""
        self.engine.dispose()


def alembic_config(engine: sa.Engine) -> Config:
    """Where the migrations are, and the engine to run them on."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["engine"] = engine
    return config


def schema_revision(engine: sa.Engine) -> str | None:
    """The revision this database is at; None when it is empty."""
    with engine.connect() as connection:
        return MigrationContext.configure(connection).get_current_revision()


def check_schema(database: Database) -> bool:
    """True when the schema is current, False when `upgrade_schema` has work to do.

    Raises SchemaTooNewError when a newer lossbench made it, DatabaseError when out of reach.
    """
    script = ScriptDirectory.from_config(alembic_config(database.engine))
    try:
        revision = schema_revision(database.engine)
    except sa.exc.DBAPIError as error:
        raise DatabaseError(f"the database cannot be reached: {error.orig}") from error
    if revision is None:
        return False
    try:
        script.get_revision(revision)
    except CommandError as error:
        raise SchemaTooNewError(
            f"the database is at schema {revision}, which this lossbench does not know; "
            "upgrade lossbench, or point LOSSBENCH_DATABASE_URL at another database"
        ) from error
    return revision == script.get_current_head()


def upgrade_schema(database: Database) -> str:
    """Bring the schema up to date; returns the revision. Safe to call again.

    Raises DatabaseError where this role may not change tables.
    """
    if not check_schema(database):
        try:
            command.upgrade(alembic_config(database.engine), "head")
        except sa.exc.ProgrammingError as error:
            if getattr(error.orig, "sqlstate", None) != NOT_PERMITTED:
                raise
            raise DatabaseError(
                f"the schema is not current, and this role may not change it ({error.orig}); run "
                "`lossbench db upgrade` as the owner of the tables, then `lossbench db roles`"
            ) from error
    revision = schema_revision(database.engine)
    if revision is None:
        raise DatabaseError("the migrations ran but left no revision")
    return revision
