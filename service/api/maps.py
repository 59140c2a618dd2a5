"""Shape map and memory-time fronts of the newest results. What may not win never does."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..contract.catalogue import Catalogue
from ..contract.lineage import names_of
from ..contract.words import Flag, Grade, Outcome
from ..store.aggregates import Brief, Newest, NewestKey, within_grade
from ..store.results import ResultFilter
from .aggregate_records import Front, FrontPoint, Fronts, MapCell, MapEntry, ShapeMap, Slice
from .recommendation import shape_free

MOST_CELLS = 400
MOST_FRONTS = 50
MOST_SLICES = 50
MOST_ENTRIES = 2000
"""Results shown by one map."""
Worst = Mapping[str, tuple[str, float]]


def with_all_names(wanted: ResultFilter, catalogue: Catalogue) -> ResultFilter:
    """The filter with every name that the kernels it names were stored under."""
    if not wanted.kernel:
        return wanted
    names = [name for asked in wanted.kernel for name in names_of(asked, catalogue)]
    return wanted.model_copy(update={"kernel": list(dict.fromkeys(names))})


def _entry(row: Brief, worst_grade: Grade) -> dict[str, Any]:
    ratio = row.over_baseline
    return {
        "contender": row.label,
        "kernel": row.kernel,
        "result_id": row.id,
        "outcome": Outcome(row.outcome),
        "reason": row.reason,
        "latency_ms": row.latency_ms if row.has_speed else None,
        "ratio_to_baseline": ratio.value if ratio else None,
        "ratio_low": ratio.low if ratio else None,
        "ratio_high": ratio.high if ratio else None,
        "workspace_bytes": row.workspace_bytes if row.outcome == Outcome.OK.value else None,
        "grade": Grade(row.grade) if row.grade else None,
        "flags": tuple(Flag(flag) for flag in row.flags),
        "may_win": row.may_win and within_grade(row.grade, worst_grade),
    }


def _slice_of(key: NewestKey) -> tuple[str, str, str]:
    return key.device_name, key.pass_, shape_free(key.case)


@dataclass(frozen=True)
class MapPlan:
    """What a shape map will show: its slice, and the results of each cell to be loaded."""

    slices: Sequence[Slice]
    cells: Sequence[Sequence[str]]
    """Ids by cell, hidden size first."""
    cells_total: int
    found: Newest

    @property
    def run_ids(self) -> list[str]:
        """All results to be loaded."""
        return [run_id for cell in self.cells for run_id in cell]


def plan_map(found: Newest) -> MapPlan:
    """The largest slice of the results by shape: at most `MOST_CELLS` cells, hidden size first."""
    counts = Counter(map(_slice_of, found.keys))
    order = sorted(counts, key=lambda key: (-counts[key], key))
    by_shape: dict[tuple[int, int, int], list[str]] = {}
    for key in found.keys:
        if order and _slice_of(key) == order[0]:
            by_shape.setdefault((key.hidden, key.vocab, key.tokens), []).append(key.id)
    shown: list[list[str]] = []
    for shape in sorted(by_shape)[:MOST_CELLS]:
        if sum(map(len, shown)) + len(by_shape[shape]) > MOST_ENTRIES and shown:
            break
        shown.append(by_shape[shape])
    slices = [_slice(key, counts[key]) for key in order[:MOST_SLICES]]
    return MapPlan(slices, shown, len(by_shape), found)


def shape_map(plan: MapPlan, rows: Sequence[Brief], worst_grade: Grade) -> ShapeMap:
    """The map of a plan, its results loaded."""
    by_id = {row.id: row for row in rows}
    cells = [[by_id[run_id] for run_id in cell if run_id in by_id] for cell in plan.cells]
    return ShapeMap(
        shown=plan.slices[0] if plan.slices else None,
        slices=tuple(plan.slices),
        contenders=tuple(sorted({row.label for row in rows})),
        cells=tuple(_cell(cell, worst_grade) for cell in cells if cell),
        cells_total=plan.cells_total,
        read=plan.found.read,
        complete=plan.found.complete,
    )


def _slice(key: tuple[str, str, str], results: int) -> Slice:
    values: dict[str, Any] = {"device_name": key[0], "pass": key[1]}
    return Slice(settings=key[2], results=results, **values)


def _cell(rows: Sequence[Brief], worst_grade: Grade) -> MapCell:
    """One shape. Only contenders over the baseline that most share can be set side by side."""
    ratios = {row.id: row.over_baseline for row in rows}
    shared = Counter(row.baseline for row in rows if ratios[row.id] is not None)
    baseline = max(shared, key=lambda name: (shared[name], name)) if shared else None

    def wins(row: Brief) -> bool:
        ranked = ratios[row.id] is not None and row.baseline == baseline
        return ranked and row.may_win and within_grade(row.grade, worst_grade)

    def rank(row: Brief) -> tuple[bool, bool, float, str]:
        ratio = ratios[row.id]
        return row.id not in won, ratio is None, ratio.value if ratio else 0.0, row.label

    won = {row.id for row in rows if wins(row)}
    ranked = sorted(rows, key=rank)
    winners = [row for row in ranked if row.id in won]
    told_apart: bool | None = None
    if len(winners) > 1:
        first, second = ratios[winners[0].id], ratios[winners[1].id]
        told_apart = first.is_below(second) if first and second else None
    return MapCell(
        tokens=rows[0].tokens,
        hidden=rows[0].hidden,
        vocab=rows[0].vocab,
        case=rows[0].case,
        baseline=baseline,
        winner=winners[0].label if winners else None,
        told_apart=told_apart,
        entries=tuple(MapEntry(**_entry(row, worst_grade)) for row in ranked),
    )


@dataclass(frozen=True)
class FrontPlan:
    """Cases whose fronts will be shown, with the results to be loaded."""

    groups: Sequence[tuple[tuple[str, str, str], Sequence[str]]]
    """Device, case and pass, and ids."""
    groups_total: int
    found: Newest

    @property
    def run_ids(self) -> list[str]:
        """All results to be loaded."""
        return [run_id for _, ids in self.groups for run_id in ids]


def plan_fronts(found: Newest) -> FrontPlan:
    """One front a case, pass and device; those with the most contenders, at most `MOST_FRONTS`."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for key in found.keys:
        groups.setdefault((key.device_name, key.case, key.pass_), []).append(key.id)
    order = sorted(groups, key=lambda key: (-len(groups[key]), key))[:MOST_FRONTS]
    return FrontPlan([(key, groups[key]) for key in order], len(groups), found)


def fronts(plan: FrontPlan, rows: Sequence[Brief], worst: Worst, worst_grade: Grade) -> Fronts:
    """The fronts of a plan, its results loaded."""
    by_id = {row.id: row for row in rows}
    return Fronts(
        items=tuple(
            _front(key, [by_id[run_id] for run_id in ids if run_id in by_id], worst, worst_grade)
            for key, ids in plan.groups
        ),
        items_total=plan.groups_total,
        read=plan.found.read,
        complete=plan.found.complete,
    )


def _front(
    key: tuple[str, str, str], rows: Sequence[Brief], worst: Worst, worst_grade: Grade
) -> Front:
    entries = [_entry(row, worst_grade) for row in rows]
    sized = [
        (entry["latency_ms"], entry["workspace_bytes"])
        for entry in entries
        if entry["may_win"] and entry["workspace_bytes"] is not None
    ]
    points = [
        FrontPoint(
            params=row.params,
            worst_output=worst[row.id][0] if row.id in worst else None,
            worst_error_ratio=worst[row.id][1] if row.id in worst else None,
            on_front=entry["may_win"] and _leads(entry, sized),
            **entry,
        )
        for row, entry in zip(rows, entries, strict=True)
    ]
    points.sort(key=lambda p: (p.latency_ms is None, p.latency_ms or 0.0, p.contender))
    values: dict[str, Any] = {"device_name": key[0], "case": key[1], "pass": key[2]}
    return Front(points=tuple(points), **values)


def _leads(entry: Mapping[str, Any], sized: Sequence[tuple[float, int]]) -> bool:
    here = (entry["latency_ms"], entry["workspace_bytes"])
    if here[1] is None:
        return False
    return not any(other[0] <= here[0] and other[1] <= here[1] and other != here for other in sized)
