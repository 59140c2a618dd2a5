"""The stored results that claims rest on: the newest of each cell and environment, in four queries.

Imported and invalidated results are left out. Of a cell's environments only those count that have
all cells of one part of a rule, and of these the newest few.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import sqlalchemy as sa
from sqlalchemy.orm import Session, aliased

from ..contract.claim_evidence import CellError, MeasuredCell, MetPair
from ..contract.claim_rule import CellName, FloorRatio, LeafRule, OutcomeIs
from ..contract.machine import accelerator_name
from ..contract.words import Arm, Flag, Grade, Outcome, Pass
from ..statistics.claims import Found
from .claim_failures import failed_cells
from .models import ComparisonRow, EnvironmentRow, OutputErrorRow, RunRow, SampleRow
from .run_rows import unpack_samples

MOST_ENVIRONMENTS = 4
"""Of one part of a rule, the newest; older ones decide nothing where these do."""


class Wanted(NamedTuple):
    """One part of a rule, and the accelerator on which it is decided."""

    rule: LeafRule
    accelerator: str


class _Place(NamedTuple):
    """The newest result of a cell in an environment."""

    result_id: str
    environment_id: str
    accelerator: str


def found_for(session: Session, wanted: Collection[Wanted]) -> Found:
    """The results and comparisons that decide these parts of rules, newest first."""
    names = {name.key: name for each in wanted for name in each.rule.cells}
    places = _newest(session, list(names.values()))
    chosen: dict[str, str] = {}
    floors: set[str] = set()
    for each in wanted:
        ids = _chosen(each, places)
        chosen |= ids
        if isinstance(each.rule, FloorRatio):
            floors |= set(ids)
    cells: dict[str, list[MeasuredCell]] = {}
    for cell in _cells(session, chosen, floors):
        cells.setdefault(cell.key, []).append(cell)
    _add_failures(session, wanted, cells)
    for found in cells.values():
        found.sort(key=lambda cell: cell.measured_at, reverse=True)
    # a cell that was measured, but nowhere with the others of its rule, is not a missing one
    return Found(cells=cells, met=_met(session, names.values()))


def _add_failures(
    session: Session, wanted: Collection[Wanted], cells: dict[str, list[MeasuredCell]]
) -> None:
    """Failed cells of the rules about outcomes, in place of older results of the same place."""
    asked = {
        name.key: each.accelerator
        for each in wanted
        if isinstance(each.rule, OutcomeIs)
        for name in each.rule.cells
    }
    for cell, accelerator in failed_cells(session, asked):
        there = cells.setdefault(cell.key, [])
        same = [each for each in there if each.environment_id == cell.environment_id]
        if accelerator != asked[cell.key] or any(e.measured_at >= cell.measured_at for e in same):
            continue
        cells[cell.key] = [each for each in there if each not in same] + [cell]


def _chosen(wanted: Wanted, places: Mapping[str, Sequence[_Place]]) -> dict[str, str]:
    """Result id -> cell key, of the newest environments that have every cell of the rule."""
    keys = [name.key for name in wanted.rule.cells]
    if not keys:
        return {}
    by_cell = [_by_environment(places.get(key, ()), wanted.accelerator) for key in keys]
    shared = set(by_cell[0]).intersection(*by_cell[1:])
    newest = sorted(shared, key=lambda env: max(ids[env] for ids in by_cell), reverse=True)
    chosen = {
        ids[environment]: key
        for environment in newest[:MOST_ENVIRONMENTS]
        for key, ids in zip(keys, by_cell, strict=True)
    }
    if not chosen:
        # one of each is enough to say that no device has them all
        chosen = {max(ids.values()): key for key, ids in zip(keys, by_cell, strict=True) if ids}
    return chosen


def _by_environment(places: Sequence[_Place], accelerator: str) -> dict[str, str]:
    """Environment -> newest result, of those on this accelerator."""
    there = [place for place in places if place.accelerator == accelerator]
    # ids sort by time, so that the newest comes last and stays
    return {place.environment_id: place.result_id for place in sorted(there)}


def _newest(session: Session, names: Sequence[CellName]) -> dict[str, list[_Place]]:
    """The newest result of each cell in each environment, from the index alone."""
    if not names:
        return {}
    wanted: dict[tuple[str, ...], list[CellName]] = {}
    for name in names:
        params, case = name.contender.params_text, name.case.text
        columns = (name.contender.kernel, params, case, name.pass_.value)
        wanted.setdefault(columns, []).append(name)
    # all versions of a contender on a case lie side by side in the index
    newest = (
        sa.select(*_CELL, RunRow.environment_id, RunRow.version, sa.func.max(RunRow.id).label("id"))
        .where(
            # column by column: SQLite would read the whole index for a list of tuples
            *(
                column.in_(sorted(set(of)))
                for column, of in zip(_CELL, zip(*wanted, strict=True), strict=True)
            ),
            RunRow.imported.is_(False),
            RunRow.invalidated_at.is_(None),
        )
        .group_by(*_CELL, RunRow.environment_id, RunRow.version)
        .subquery()
    )
    query = sa.select(newest, EnvironmentRow.device_name).join(
        EnvironmentRow, EnvironmentRow.id == newest.c.environment_id
    )
    places: dict[str, list[_Place]] = {}
    for *cell, environment_id, version, run_id, device in session.execute(query):
        place = _Place(run_id, environment_id, accelerator_name(device))
        for name in wanted.get(tuple(cell), ()):
            if name.contender.version in (None, version):
                places.setdefault(name.key, []).append(place)
    return places


_CELL: Sequence[Any] = (RunRow.kernel, RunRow.params, RunRow.case_text, RunRow.pass_)

_COLUMNS: Sequence[Any] = (
    RunRow.id,
    RunRow.contender,
    RunRow.case_text,
    RunRow.pass_,
    RunRow.environment_id,
    EnvironmentRow.device_name,
    RunRow.protocol_version,
    RunRow.outcome,
    RunRow.reason,
    RunRow.flags,
    RunRow.grade,
    RunRow.baseline,
    RunRow.processes,
    RunRow.latency_ms,
    RunRow.ratio_to_baseline,
    RunRow.ratio_low,
    RunRow.ratio_high,
    RunRow.floor_ms,
    RunRow.workspace_bytes,
    RunRow.peak_forward_bytes,
    RunRow.peak_backward_bytes,
    RunRow.started_at,
    RunRow.record["errors"]["checksum"].as_string().label("checksum"),
    RunRow.record["errors"]["deterministic_in_process"].as_boolean().label("in_process"),
    RunRow.record["errors"]["deterministic_across"].as_boolean().label("across"),
    RunRow.record["measurement"]["recompiles"].as_integer().label("recompiles"),
)


def _cells(
    session: Session, chosen: Mapping[str, str], floors: Collection[str]
) -> Iterable[MeasuredCell]:
    ids = sorted(chosen)
    errors: dict[str, dict[str, CellError]] = {}
    shown = (OutputErrorRow.relative_l2, OutputErrorRow.ratio, OutputErrorRow.max_abs)
    query = sa.select(OutputErrorRow.run_id, OutputErrorRow.output, *shown)
    for run_id, output, *values in session.execute(query.where(OutputErrorRow.run_id.in_(ids))):
        errors.setdefault(run_id, {})[output] = CellError(*values)
    medians = _floor_medians(session, floors)
    runs = sa.select(*_COLUMNS).join(EnvironmentRow, EnvironmentRow.id == RunRow.environment_id)
    for row in session.execute(runs.where(RunRow.id.in_(ids))):
        yield _cell(row, chosen[row.id], errors.get(row.id, {}), medians.get(row.id, ()))


def _cell(
    row: Any, key: str, errors: Mapping[str, CellError], floors_ms: tuple[float, ...]
) -> MeasuredCell:
    peaks = [p for p in (row.peak_forward_bytes, row.peak_backward_bytes) if p is not None]
    repeats = [each for each in (row.in_process, row.across) if each is not None]
    return MeasuredCell(
        result_id=row.id,
        key=key,
        contender=row.contender,
        case=row.case_text,
        pass_=Pass(row[3]),
        environment_id=row.environment_id,
        device_name=row.device_name,
        protocol_version=row.protocol_version,
        outcome=Outcome(row.outcome),
        measured_at=row.started_at,
        reason=row.reason,
        flags=frozenset(Flag(flag) for flag in row.flags),
        grade=Grade(row.grade) if row.grade else None,
        baseline=row.baseline,
        processes=row.processes,
        latency_ms=row.latency_ms,
        ratio=row.ratio_to_baseline,
        ratio_low=row.ratio_low,
        ratio_high=row.ratio_high,
        floor_ms=row.floor_ms,
        floors_ms=floors_ms,
        workspace_bytes=row.workspace_bytes,
        peak_bytes=max(peaks, default=None),
        errors=errors,
        checksum=row.checksum,
        repeats_bits=all(repeats) if repeats else None,
        recompiles=row.recompiles,
    )


def _floor_medians(session: Session, ids: Collection[str]) -> dict[str, tuple[float, ...]]:
    """Median of the floor in each process, ms, by result."""
    if not ids:
        return {}
    query = (
        sa.select(SampleRow.run_id, SampleRow.latency_ms)
        .where(SampleRow.run_id.in_(sorted(ids)), SampleRow.arm == Arm.FLOOR.value)
        .order_by(SampleRow.run_id, SampleRow.process)
    )
    found: dict[str, list[float]] = {}
    for run_id, blob in session.execute(query):
        samples = unpack_samples(blob)
        if samples:
            found.setdefault(run_id, []).append(float(np.median(samples)))
    return {run_id: tuple(medians) for run_id, medians in found.items()}


_MET: Sequence[Any] = [
    *(getattr(ComparisonRow, name) for name in ("base", "candidate", "case_text", "pass_")),
    *(getattr(ComparisonRow, name) for name in ("environment_id", "id", "protocol_version")),
    *(getattr(ComparisonRow, name) for name in ("processes", "measured_at")),
    *(getattr(ComparisonRow, name) for name in ("ratio", "ratio_low", "ratio_high")),
]


def _met(
    session: Session, names: Iterable[CellName]
) -> dict[tuple[str, str, str, str, str], MetPair]:
    """The newest valid comparison of any two of these contenders on any of these cases."""
    some = list(names)
    texts = sorted({name.contender.text for name in some})
    cases = sorted({name.case.text for name in some})
    runs = [aliased(RunRow), aliased(RunRow)]
    query = (
        sa.select(*_MET)
        .outerjoin(runs[0], runs[0].id == ComparisonRow.base_run_id)
        .outerjoin(runs[1], runs[1].id == ComparisonRow.candidate_run_id)
        .where(
            ComparisonRow.base.in_(texts),
            ComparisonRow.candidate.in_(texts),
            ComparisonRow.case_text.in_(cases),
            runs[0].invalidated_at.is_(None),
            runs[1].invalidated_at.is_(None),
        )
        .order_by(ComparisonRow.id)
    )
    found: dict[tuple[str, str, str, str, str], MetPair] = {}
    for base, candidate, case, pass_, environment_id, comparison_id, *rest in session.execute(
        query
    ):
        found[base, candidate, case, pass_, environment_id] = MetPair(
            comparison_id, base, candidate, case, Pass(pass_), environment_id, *rest
        )
    return found
