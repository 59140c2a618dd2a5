"""The figure of a comparison with several candidates: one line a case, one mark a contender."""

from collections.abc import Mapping, Sequence
from typing import Any

from lossbench.service.api.records import CandidateCell, CompareRow, Comparison, Side
from lossbench.service.plots.diverging import PASS_SIGNS
from lossbench.service.plots.log_scale import ERROR, FLOOR, RATIO, Scale
from lossbench.service.plots.report import COUNTED
from lossbench.service.plots.side_by_side import Dot, Line, side_by_side

from .compare_words import Figure, measured

LABELS: Mapping[str, tuple[Scale, str, str]] = {
    "": (RATIO, "several", "Time ratio of every candidate, case by case"),
    "errors": (ERROR, "errors", "Worst error over torch's own of every contender, case by case"),
    "floor": (FLOOR, "floor", "Time over the floor of every contender, case by case"),
}
"""Scale, name and description of a tab's figure."""
COLUMNS = {"errors": "worst_error_ratio", "floor": "floor_ratio"}


def several_figures(tab: str, comparison: Comparison) -> list[Figure]:
    """The figure of a tab; none where no case has a number."""
    scale, name, label = LABELS[tab]
    rows = comparison.items
    devices = {row.device_name for row in rows}
    candidates = [each.used for each in comparison.candidates]
    # ratios are to the base, which has none to itself
    names = candidates if not tab else [comparison.base.used, *candidates]
    lines = [Line(_label(row, len(devices) > 1), _dots(tab, row)) for row in rows]
    data = side_by_side(lines, names, scale)
    words = f"{label}; the table below has the same numbers"
    return [] if data is None else [(name, data, words)]


def _label(row: CompareRow, with_device: bool) -> str:
    return f"{row.case} {PASS_SIGNS[row.pass_]}" + f" {row.device_name}" * with_device


def _dots(tab: str, row: CompareRow) -> Sequence[Dot | None]:
    if not tab:
        return [_ratio(cell) for cell in row.candidates]
    return [_number(side, tab) for side in (row.base, *(cell.side for cell in row.candidates))]


def _ratio(cell: CandidateCell) -> Dot | None:
    if cell.ratio is None or cell.ratio <= 0:
        return None
    return Dot(cell.ratio, cell.ratio_low, cell.ratio_high, _counts(cell.side))


def _number(side: Side | None, tab: str) -> Dot | None:
    value: Any = measured(side, COLUMNS[tab])
    return Dot(value, exact=_counts(side)) if value is not None and value > 0 else None


def _counts(side: Side | None) -> bool:
    return side is not None and side.grade in COUNTED
