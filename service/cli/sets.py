"""`lossbench db export` and `db load`: results with raw samples, from database to database."""

from pathlib import Path
from typing import Annotated

import typer

from ..contract.errors import InvalidRequestError
from ..settings import Settings
from ..store.database import Database, upgrade_schema
from .output import console


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command("export")(export)
    app.command("load")(load)


def export(
    file: Annotated[Path, typer.Argument(help="File to write, NAME.jsonl.gz.")],
    job: Annotated[
        list[str] | None, typer.Option(help="Only this job's results; may be repeated.")
    ] = None,
    label: Annotated[
        list[str] | None, typer.Option(help="Only jobs with this label, name=value; repeatable.")
    ] = None,
    device: Annotated[
        list[str] | None, typer.Option(help="Only this device, such as 'NVIDIA H200'; repeatable.")
    ] = None,
    checks: Annotated[
        bool, typer.Option("--checks", help="Also the checks of contenders.")
    ] = False,
    results: Annotated[
        bool, typer.Option(help="Jobs that have ended, their results and comparisons.")
    ] = True,
) -> None:
    """Write results with raw samples and where they come from to one file, for `db load`.

    Without filters: everything that has ended. With --device no jobs, only results and checks.

    Example: `lossbench db export h200-first.jsonl.gz --label suite=first`
    """
    from ..store.set_export import Wanted, collect_set
    from ..store.set_files import write_set

    wrong = next((pair for pair in label or [] if "=" not in pair), None)
    if wrong is not None:
        raise InvalidRequestError(f"label {wrong!r} is not name=value, such as suite=first")
    wanted = Wanted(tuple(job or ()), tuple(label or ()), tuple(device or ()), results, checks)
    database = _database()
    with database.reading() as session:
        parts = collect_set(session, wanted)
    database.close()
    if not parts.lines:
        raise InvalidRequestError("nothing matches: no result" + (" and no check" * checks))
    header = write_set(file, parts.jobs, parts.environments, parts.lines)
    counts = ", ".join(f"{n} {kind.removesuffix('s')}s" for kind, n in header.counts.items())
    size = file.stat().st_size / 1024
    console.print(f"wrote {file}: {counts}; {size:.0f} KiB")


def load(
    file: Annotated[
        Path | None,
        typer.Argument(help="Set file; without it those of the package.", show_default=False),
    ] = None,
) -> None:
    """Load the results of a set file into the database; loading it again changes nothing.

    Records keep their ids, times, environments and workers, and name their set: jobs by the label
    `set`, results and checks in their details. Without a file the package's tables of other
    benchmarks are imported too.

    Example: `lossbench db load h200-first.jsonl.gz`
    """
    from ..store.set_files import read_set, shipped_sets
    from ..store.set_loading import load_set, summary
    from ..store.shipped_tables import import_shipped, table_lines

    sets = [read_set(path) for path in ([file] if file is not None else shipped_sets())]
    database = _database()
    for line in summary([load_set(database, found) for found in sets]):
        console.print(line)
    if file is None:
        for line in table_lines(import_shipped(database)):
            console.print(line)
    database.close()


def _database() -> Database:
    from ..store.queue import migrate_queue

    database = Database.from_settings(Settings())
    upgrade_schema(database)
    migrate_queue(database)
    return database
