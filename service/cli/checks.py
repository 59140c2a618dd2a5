"""`lossbench kernels check` and `kernels report`: the correctness grid, run here and stored."""

import sys
from collections import Counter
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated

import typer
from packaging.version import InvalidVersion, Version

from ..contract.catalogue import Catalogue
from ..contract.check import CaseCheck, CheckRecord
from ..contract.contender import Contender
from ..contract.errors import InvalidRequestError
from ..contract.known_faults import explained
from ..contract.plan import expand_contender, refuse
from ..contract.words import FAILURES, Outcome
from ..settings import Settings
from ..store.checks import insert_check, newest_checks, record_of
from ..store.database import Database, upgrade_schema
from .check_report import refused_everywhere, report_of
from .output import console, errors, print_json, print_table
from .requests import split_contenders

EVERYTHING = "all"
_ORDER = ("exact", "fair", "coarse", "poor", "wrong", "failed", "timed_out", "out_of_memory")

Names = Annotated[
    list[str], typer.Argument(metavar="NAME[@V]...", help="Contenders, or `all` kernels.")
]
Cases = Annotated[
    list[str] | None, typer.Option("--case", help="Only ids of this pattern: options/bias/*.")
]
Jobs = Annotated[int | None, typer.Option(min=1, max=64, help="Processes side by side.")]


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command()(check)
    app.command()(report)


def check(
    names: Names,
    case: Cases = None,
    quick: Annotated[bool, typer.Option("--quick", help="One case of each kind.")] = False,
    jobs: Jobs = None,
    gpu: Annotated[int | None, typer.Option(help="Index of the GPU.")] = None,
    save: Annotated[bool, typer.Option(help="Store what it finds.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Ask contenders the whole correctness grid; exit 1 on a fault that is not a known one.

    Example: `lossbench kernels check flce liger@all`
    """
    from lossbench.kernels.checks.grid import GRID
    from lossbench.worker.grid_runner import GridRunner
    from lossbench.worker.known_contenders import own_catalogue

    settings = Settings()
    catalogue = own_catalogue(settings)
    contenders = _contenders(names, catalogue)
    patterns = case or ["*"]
    cases = [
        c
        for c in GRID
        if any(fnmatchcase(c.id, pattern) for pattern in patterns) and (c.quick or not quick)
    ]
    if not cases:
        raise InvalidRequestError(f"no case of the grid is called {' or '.join(patterns)}")
    database = _open(settings) if save else None
    found = []
    with GridRunner(settings, gpu, jobs or 2) as runner:
        for made in runner.run(contenders, cases, _progress):
            if database is not None:
                with database.transaction() as session:
                    insert_check(session, made)
            record = explained(made, catalogue)
            found.append(record)
            if not as_json:
                print_check(record)
    if database is not None:
        database.close()
    if as_json:
        print_json([record.model_dump(mode="json") for record in found])
    unexplained = [c for record in found for c in record.cases if is_unexplained(c)]
    if unexplained and not as_json:
        errors.print(f"{len(unexplained)} faults that are not known ones")
    sys.exit(1 if unexplained else 0)


def _open(settings: Settings) -> Database:
    database = Database.from_settings(settings)
    upgrade_schema(database)
    return database


def is_unexplained(case: CaseCheck) -> bool:
    """Whether a case failed and no known fault says why."""
    return case.outcome in FAILURES and case.known_fault is None


def _contenders(names: Sequence[str], catalogue: Catalogue) -> list[Contender]:
    """Exact contenders of the names; `all` is the newest of every kernel."""
    texts = split_contenders(names)
    if EVERYTHING in texts:
        texts = [*catalogue.kernels, *(text for text in texts if text != EVERYTHING)]
    found: dict[str, Contender] = {}
    for index, text in enumerate(texts):
        try:
            asked = Contender.parse(text)
        except ValueError as error:
            raise InvalidRequestError(str(error)) from error
        resolved, faults = expand_contender(asked, catalogue, f"/contenders/{index}")
        refuse(faults)
        found |= {contender.text: contender for contender in resolved}
    return list(found.values())


def _progress(contender: str, done: int, total: int) -> None:
    errors.print(f"{contender}: {done} of {total} cases", style="dim")


def print_check(record: CheckRecord) -> None:
    """The table of one contender: results by group, then every case that is not right."""
    where = record.environment.device_name
    how = ", in Triton's interpreter" if record.interpreted else ""
    version = "" if record.contender.version else f" ({record.version})"
    title = f"{record.contender}{version} on {where}{how}"
    console.print(title, style="bold")
    if reason := refused_everywhere(record.cases):
        console.print(f"unsupported: {reason}\n")
        return
    groups = dict.fromkeys(case.group for case in record.cases)
    shown = [word for word in _ORDER if word in record.counts] + ["unsupported"]
    rows = []
    for group in groups:
        counts = Counter(case.result for case in record.cases if case.group == group)
        rows.append((group, *(counts[word] or "" for word in shown)))
    rows.append(("all", *(record.counts.get(word, "") for word in shown)))
    print_table("", ("cases", *shown), rows)
    bad = [case for case in record.cases if not _is_right(case)]
    if bad:
        print_table(
            "",
            ("case", "result", "output", "error", "x yardstick", "why"),
            (_row(case) for case in bad),
        )
    console.print()


def _is_right(case: CaseCheck) -> bool:
    return case.outcome is Outcome.UNSUPPORTED or case.result in ("exact", "fair")


def _row(case: CaseCheck) -> tuple[object, ...]:
    why = case.known_fault or case.reason or "; ".join(case.notes)
    error = f"{case.relative_l2:.2g}" if case.relative_l2 is not None else ""
    ratio = f"{case.ratio:.3g}" if case.ratio is not None else ""
    return (case.case, case.result, case.worst_output or "", error, ratio, why)


def _place(record: CheckRecord, order: list[str]) -> tuple[int, Version, str]:
    """Where a record stands in the page: as in the catalogue, older releases first."""
    kernel = record.contender.kernel
    try:
        version = Version(record.contender.version or "0")
    except InvalidVersion:
        version = Version("0")
    return (order.index(kernel) if kernel in order else len(order), version, kernel)


def report(
    output: Annotated[
        Path | None, typer.Option(help="File to write; else standard output.")
    ] = None,
) -> None:
    """Write the stored checks as one Markdown page: the newest of each contender and device.

    Example: `lossbench kernels report --output contenders.md`
    """
    from lossbench.worker.known_contenders import own_catalogue

    settings = Settings()
    catalogue, database = own_catalogue(settings), _open(settings)
    with database.reading() as session:
        records = [explained(record_of(row), catalogue) for row in newest_checks(session)]
    order = list(catalogue.kernels)
    records.sort(key=lambda record: _place(record, order))
    text = report_of(records)
    if output is None:
        sys.stdout.write(text)
    else:
        output.write_text(text, encoding="utf-8")
