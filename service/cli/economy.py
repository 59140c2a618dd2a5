"""Where the wall time of a job went: one line at its end."""

from collections.abc import Iterable, Mapping

from ..contract.run import RunRecord
from .output import errors


def walls_of(records: Iterable[RunRecord | None]) -> list[Mapping[str, float]]:
    """Wall time by part, once for each case: its cells are measured together and share it."""
    by_case: dict[str, Mapping[str, float]] = {}
    for record in records:
        wall = record.details.get("wall_s") if record else None
        if record is None or not wall:
            continue
        case = record.cell.case.text
        # the cell that was finished last has the whole of it
        if case not in by_case or wall["total"] > by_case[case]["total"]:
            by_case[case] = wall
    return list(by_case.values())


def print_wall_time(records: Iterable[RunRecord | None]) -> None:
    """One line on standard error; nothing where nothing was measured."""
    from lossbench.worker.wall_time import added, wall_line

    if walls := walls_of(records):
        errors.print(wall_line(added(walls)), highlight=False, soft_wrap=True)
