"""Pages of results in any order, and the newest result of each case for comparisons."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.orm import Session, defer, selectinload

from ..contract.contender import Contender
from ..contract.words import CellState
from .kept_runs import INFO, KeptRuns, State
from .models import CellRow, EnvironmentRow, OutputErrorRow, RunRow, RunTallyRow
from .result_ids import SORTABLE, Order, Place, page_ids
from .results import ResultFilter, filtered

__all__ = [
    "SORTABLE",
    "BriefRun",
    "Order",
    "Place",
    "SideError",
    "SideRow",
    "newest_of_each",
    "newest_runs",
    "runs_by_id",
    "side_rows",
    "sorted_runs",
]

_VIEW = (
    # the whole record is large and no view reads it
    defer(RunRow.record),
    selectinload(RunRow.environment),
    selectinload(RunRow.output_errors),
)


def sorted_runs(
    session: Session, wanted: ResultFilter, order: Order, after: Place | None, limit: int
) -> list[RunRow]:
    """Results behind a place, without their whole records; those without the value come last.

    From high to low, equal ones come newest first; from low to high, oldest first.
    """
    ids = page_ids(session, wanted, order, after, limit)
    found = runs_by_id(session, ids)
    return [found[run_id] for run_id in ids if run_id in found]


def runs_by_id(session: Session, run_ids: Iterable[str]) -> dict[str, RunRow]:
    """Results by id, without their whole records."""
    wanted = sorted(set(run_ids))
    found: dict[str, RunRow] = {}
    for start in range(0, len(wanted), 500):
        query = sa.select(RunRow).where(RunRow.id.in_(wanted[start : start + 500])).options(*_VIEW)
        found.update({run.id: run for run in session.scalars(query)})
    return found


class BriefRun(NamedTuple):
    """What a comparison needs of every result before it loads the page's.

    The fields are in the order of `_BRIEF`.
    """

    id: str
    contender: str
    case: str
    pass_: str
    device_name: str
    environment_id: str
    outcome: str
    grade: str | None
    baseline: str
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    tokens: int
    hidden: int
    vocab: int
    protocol_version: int


_BRIEF = (
    RunRow.id,
    RunRow.contender,
    RunRow.case_text,
    RunRow.pass_,
    EnvironmentRow.device_name,
    RunRow.environment_id,
    RunRow.outcome,
    RunRow.grade,
    RunRow.baseline,
    RunRow.ratio_to_baseline,
    RunRow.ratio_low,
    RunRow.ratio_high,
    RunRow.tokens,
    RunRow.hidden,
    RunRow.vocab,
    RunRow.protocol_version,
)
_OF_CASE = frozenset(
    f"{name}{end}" for name in ("tokens", "hidden", "vocab") for end in ("", "_gte", "_lte")
) | {"dtype", "recipe"}
"""Filters that hold for every result of a case or for none."""


def newest_runs(
    session: Session, contender: Contender, wanted: ResultFilter, most: int
) -> list[BriefRun]:
    """The newest measured result of a contender on each case, pass and device, at most `most`.

    A contender without version stands for any version; imported results are left out.
    """
    columns: Sequence[Any] = _BRIEF
    query: sa.Select[Any] = sa.select(*columns).join(
        EnvironmentRow, EnvironmentRow.id == RunRow.environment_id
    )
    if wanted.job or wanted.label:
        # as many as the jobs have cells: all are read, and the newest kept here
        query = filtered(query.where(*_is(contender)), wanted)
        found = [BriefRun._make(row) for row in session.execute(query.order_by(RunRow.id))]
        newest = {(run.case, run.pass_, run.device_name): run for run in found}
        return sorted(newest.values())[:most]
    fields = wanted.model_dump(exclude_defaults=True)
    of_case = ResultFilter(**{name: fields[name] for name in fields if name in _OF_CASE})
    others = {name: fields[name] for name in fields if name not in _OF_CASE}
    query = query.where(RunRow.id.in_(_newest_ids(contender, ResultFilter(**others))))
    query = filtered(query, of_case.model_copy(update={"include_invalid": True}))
    return [BriefRun._make(row) for row in session.execute(query.order_by(RunRow.id).limit(most))]


def newest_kept(
    session: Session, contender: Contender, wanted: ResultFilter, most: int
) -> Sequence[BriefRun]:
    """`newest_runs`, from what is kept where that is still so."""
    kept: KeptRuns | None = session.info.get(INFO)
    if kept is None or wanted.label:
        return newest_runs(session, contender, wanted, most)
    # which results a job has changes without a new result, when a stored one answers its cell
    answered = _answered_cells(session, wanted.job) if wanted.job else 0
    state = _stored_state(session)
    key = (contender.text, wanted.model_dump_json(), most, answered)
    found = kept.look_up(state, key)
    if found is None:
        found = newest_runs(session, contender, wanted, most)
        kept.keep(state, key, found)
    return found


def _answered_cells(session: Session, job_ids: Sequence[str]) -> int:
    done = sa.and_(CellRow.job_id.in_(job_ids), CellRow.state == CellState.DONE.value)
    return session.scalar(sa.select(sa.func.count()).select_from(CellRow).where(done)) or 0


def _stored_state(session: Session) -> State:
    row = RunTallyRow
    invalid = sa.func.sum(sa.case((row.invalid, row.results), else_=0))
    total, fallen = session.execute(sa.select(sa.func.sum(row.results), invalid)).one()
    return int(total or 0), int(fallen or 0)


def _is(contender: Contender) -> list[sa.ColumnElement[bool]]:
    same = [
        RunRow.kernel == contender.kernel,
        RunRow.params == contender.params_text,
        RunRow.imported.is_(False),
    ]
    return same if contender.version is None else [*same, RunRow.version == contender.version]


def _newest_ids(contender: Contender, wanted: ResultFilter) -> sa.Select[str]:
    """Ids, from one pass over an index: the newest by environment, and of these by device."""
    group: Sequence[Any] = (RunRow.case_text, RunRow.pass_, RunRow.environment_id)
    each: sa.Select[Any] = sa.select(*group, sa.func.max(RunRow.id).label("id"))
    narrowed = filtered(each, wanted).where(*_is(contender))
    places = narrowed.group_by(*group).subquery()
    return (
        sa.select(sa.func.max(places.c.id))
        .join(EnvironmentRow, EnvironmentRow.id == places.c.environment_id)
        .group_by(places.c.case_text, places.c.pass_, EnvironmentRow.device_name)
    )


class SideRow(NamedTuple):
    """What a table of two contenders shows of a result; in the order of `_SIDE`."""

    id: str
    kernel: str
    version: str | None
    params: str
    outcome: str
    reason: str | None
    latency_ms: float | None
    latency_low_ms: float | None
    latency_high_ms: float | None
    baseline: str
    ratio_to_baseline: float | None
    floor_ratio: float | None
    peak_forward_bytes: int | None
    peak_backward_bytes: int | None
    workspace_bytes: int | None
    grade: str | None
    flags: list[str]
    environment_id: str


class SideError(NamedTuple):
    """Error of one output of a result; in the order of `_SIDE_ERROR`."""

    output: str
    relative_l2: float | None
    ratio: float | None
    max_abs: float | None
    detail: dict[str, Any]


_SIDE = [getattr(RunRow, name) for name in SideRow._fields]
_SIDE_ERROR = [getattr(OutputErrorRow, name) for name in SideError._fields]


def side_rows(
    session: Session, run_ids: Iterable[str]
) -> tuple[dict[str, SideRow], dict[str, list[SideError]]]:
    """Results by id and their errors by the same, without ORM objects: there may be thousands."""
    wanted = sorted(set(run_ids))
    rows: dict[str, SideRow] = {}
    errors: dict[str, list[SideError]] = {}
    for start in range(0, len(wanted), 500):
        some = wanted[start : start + 500]
        for row in session.execute(sa.select(*_SIDE).where(RunRow.id.in_(some))):
            rows[row[0]] = SideRow._make(row)
        query = sa.select(OutputErrorRow.run_id, *_SIDE_ERROR).where(
            OutputErrorRow.run_id.in_(some)
        )
        for run_id, *values in session.execute(
            query.order_by(OutputErrorRow.run_id, OutputErrorRow.output)
        ):
            errors.setdefault(run_id, []).append(SideError._make(values))
    return rows, errors


def newest_of_each(runs: Sequence[RunRow]) -> list[RunRow]:
    """Of results ordered newest first, the first of each contender, version, case, pass, device."""
    kept: dict[tuple[Any, ...], RunRow] = {}
    for run in runs:
        device = run.environment.device_name
        key = (run.contender, run.version, run.case_text, run.pass_, device)
        kept.setdefault(key, run)
    return list(kept.values())
