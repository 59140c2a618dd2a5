"""`lossbench db`: upgrade, back up, copy and prune the database; move results between them."""

import shutil
import sqlite3
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import sqlalchemy as sa
import typer

from ..contract.errors import ConflictError, DatabaseError, InvalidRequestError
from ..settings import Settings
from ..store.database import Database, check_schema, upgrade_schema
from ..store.events import now, prune_events
from . import sets
from .output import console, print_json, print_table

app = typer.Typer(help="Upgrade, back up, copy, prune; move results.", no_args_is_help=True)


@app.command()
def upgrade(
    with_roles: Annotated[
        bool, typer.Option("--roles", help="Then do what `lossbench db roles` does.")
    ] = False,
) -> None:
    """Bring the schema up to date; safe to call again.

    Example: `lossbench db upgrade`
    """
    from ..store.queue import migrate_queue
    from ..store.roles import SERVICE_ROLE, WORKER_ROLE, grant_roles

    database = Database.from_settings(Settings())
    revision = upgrade_schema(database)
    migrate_queue(database)
    if with_roles:
        grant_roles(database, SERVICE_ROLE, WORKER_ROLE)
    console.print(f"schema is at {revision}: {database.engine.url.render_as_string()}")


@app.command()
def backup(target: Annotated[Path, typer.Argument(help="File to write.")]) -> None:
    """Copy the SQLite database to a file while it is in use.

    Example: `lossbench db backup lossbench-backup.db`
    """
    database = _current_database()
    if not database.is_sqlite:
        raise ConflictError("backup copies SQLite only; use pg_dump for PostgreSQL")
    if not target.parent.is_dir():
        raise InvalidRequestError(f"{target.parent}: there is no such folder")
    if target.exists():
        raise ConflictError(f"{target} exists already; choose another name")
    source = sqlite3.connect(str(database.engine.url.database))
    partial = target.with_name(target.name + ".partial")
    with sqlite3.connect(partial) as copy:
        source.backup(copy)
    copy.close()
    source.close()
    shutil.move(partial, target)
    console.print(f"wrote {target} ({target.stat().st_size / 2**20:.1f} MiB)")


@app.command()
def copy(
    target: Annotated[str, typer.Argument(help="SQLAlchemy URL of an empty database.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Copy everything into another database, SQLite or PostgreSQL; open jobs resume there.

    Stop the service and its workers first. The target gets all rows or none, and every table is
    compared by a hash of its rows. Tokens keep their secrets.

    Example: `lossbench db copy postgresql://lossbench@db.example/lossbench`
    """
    from ..store.database_copy import copy_database
    from ..store.queue import LotQueue, migrate_queue

    settings = Settings()
    source = Database.from_settings(settings)
    goal = Database(settings.model_copy(update={"database_url": target}).resolved_database_url)
    try:
        upgrade_schema(goal)
        migrate_queue(goal)
        queue = LotQueue(goal)
        try:
            done = copy_database(source, goal, queue, settings.stale_after_s)
        finally:
            queue.close()
    finally:
        source.close()
        goal.close()
    if as_json:
        tables = {name: content._asdict() for name, content in done.tables.items()}
        print_json({"tables": tables, "lots_open": done.lots_open})
        return
    rows = ((name, content.rows, content.sha256[:16]) for name, content in done.tables.items())
    print_table("Copied", ("table", "rows", "hash of the rows"), rows)
    if done.lots_open:
        console.print(f"{done.lots_open} lots of open jobs wait for a worker of the target")


@app.command()
def roles(
    service: Annotated[str, typer.Option(help="Role that the service connects as.")] = (
        "lossbench_service"
    ),
    worker: Annotated[str, typer.Option(help="Role that workers connect as.")] = (
        "lossbench_worker"
    ),
    show: Annotated[bool, typer.Option("--show", help="Print the SQL and change nothing.")] = False,
) -> None:
    """Give the roles of a PostgreSQL fleet what they need, and no more.

    Run it as the owner of the tables, behind each `lossbench db upgrade`; both roles must exist.

    Example: `lossbench db roles --service lossbench_service --worker lossbench_worker`
    """
    from ..store.roles import grant_roles, grants

    if show:
        for statement in grants(service, worker):
            console.print(f"{statement};", highlight=False, soft_wrap=True)
        return
    database = Database.from_settings(Settings())
    try:
        statements = grant_roles(database, service, worker)
    finally:
        database.close()
    console.print(f"{service} and {worker} have their rights ({len(statements)} statements)")


@app.command()
def prune(
    events_older_than_h: Annotated[
        float, typer.Option(help="Delete events older than this many hours.", min=0, max=876_000)
    ] = 24.0,
) -> None:
    """Delete old events of jobs; results are never deleted.

    Example: `lossbench db prune --events-older-than-h 24`
    """
    database = _current_database()
    with database.transaction() as session:
        count = prune_events(session, now() - timedelta(hours=events_older_than_h))
    console.print(f"deleted {count} events")


def _current_database() -> Database:
    """The database of the settings, which must be there. Raises DatabaseError; makes no file."""
    url = sa.make_url(Settings().resolved_database_url)
    shown = url.render_as_string(hide_password=True)
    if url.get_backend_name() == "sqlite" and not Path(url.database or "").is_file():
        raise DatabaseError(f"there is no database at {shown}; see LOSSBENCH_DATA_DIR")
    database = Database.from_settings(Settings())
    if not check_schema(database):
        raise DatabaseError(f"{shown} has an older schema or none; run `lossbench db upgrade`")
    return database


sets.register(app)
