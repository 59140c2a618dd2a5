"""`lossbench db`: upgrade, back up and prune the database, move results between databases."""

import shutil
import sqlite3
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from ..contract.errors import ConflictError
from ..settings import Settings
from ..store.database import Database, upgrade_schema
from ..store.events import now, prune_events
from . import sets
from .output import console

app = typer.Typer(help="Upgrade, back up, prune; move results.", no_args_is_help=True)


@app.command()
def upgrade() -> None:
    """Bring the schema up to date; safe to call again.

    Example: `lossbench db upgrade`
    """
    from ..store.queue import migrate_queue

    database = Database.from_settings(Settings())
    revision = upgrade_schema(database)
    migrate_queue(database)
    console.print(f"schema is at {revision}: {database.engine.url.render_as_string()}")


@app.command()
def backup(target: Annotated[Path, typer.Argument(help="File to write.")]) -> None:
    """Copy the SQLite database to a file while it is in use.

    Example: `lossbench db backup lossbench-backup.db`
    """
    database = Database.from_settings(Settings())
    if not database.is_sqlite:
        raise ConflictError("backup copies SQLite only; use pg_dump for PostgreSQL")
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
def prune(
    events_older_than_h: Annotated[
        float, typer.Option(help="Delete events older than this many hours.", min=0)
    ] = 24.0,
) -> None:
    """Delete old events of jobs; results are never deleted.

    Example: `lossbench db prune --events-older-than-h 24`
    """
    database = Database.from_settings(Settings())
    with database.transaction() as session:
        count = prune_events(session, now() - timedelta(hours=events_older_than_h))
    console.print(f"deleted {count} events")


sets.register(app)
