"""Pages of results in any order, and the newest result of each case for comparisons."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.orm import Session, defer, selectinload

from ..contract.contender import Contender
from .models import EnvironmentRow, RunRow
from .results import ResultFilter, filtered

SORTABLE: dict[str, Any] = {
    "latency_ms": RunRow.latency_ms,
    "workspace_bytes": RunRow.workspace_bytes,
    "ratio_to_baseline": RunRow.ratio_to_baseline,
    "floor_ratio": RunRow.floor_ratio,
    "tokens_per_s": RunRow.tokens_per_s,
    "tokens": RunRow.tokens,
    "hidden": RunRow.hidden,
    "vocab": RunRow.vocab,
}
"""Columns that a list of results can be ordered by, beside its age."""

_VIEW = (
    # the whole record is large and no view reads it
    defer(RunRow.record),
    selectinload(RunRow.environment),
    selectinload(RunRow.output_errors),
)


@dataclass(frozen=True)
class Order:
    """Order of a list of results. `column` None means by age."""

    column: str | None = None
    descending: bool = True


@dataclass(frozen=True)
class Place:
    """The last result of a page: its value in the order's column, and its id."""

    value: float | None
    run_id: str


def sorted_runs(
    session: Session, wanted: ResultFilter, order: Order, after: Place | None, limit: int
) -> list[RunRow]:
    """Results behind a place; those without the value come last, equal ones newest first."""
    query = filtered(sa.select(RunRow), wanted).options(*_VIEW).limit(limit)
    if order.column is None:
        newest = RunRow.id.desc() if order.descending else RunRow.id.asc()
        if after is not None:
            behind = RunRow.id < after.run_id if order.descending else RunRow.id > after.run_id
            query = query.where(behind)
        return list(session.scalars(query.order_by(newest)))
    column = SORTABLE[order.column]
    if after is not None:
        query = query.where(_behind(column, order.descending, after))
    direction = column.desc() if order.descending else column.asc()
    return list(session.scalars(query.order_by(column.is_(None), direction, RunRow.id.desc())))


def _behind(column: Any, descending: bool, after: Place) -> sa.ColumnElement[bool]:
    older = RunRow.id < after.run_id
    if after.value is None:
        return sa.and_(column.is_(None), older)
    further = column < after.value if descending else column > after.value
    return sa.or_(further, sa.and_(column == after.value, older), column.is_(None))


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

    The fields are in the order of the columns that `newest_runs` selects.
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


def newest_runs(
    session: Session, contender: Contender, wanted: ResultFilter, most: int
) -> list[BriefRun]:
    """The newest measured result of a contender on each case, pass and device, at most `most`.

    A contender without version stands for any version; imported results are left out.
    """
    newest = (
        sa.select(sa.func.max(RunRow.id))
        .join(EnvironmentRow, EnvironmentRow.id == RunRow.environment_id)
        .where(
            RunRow.kernel == contender.kernel,
            RunRow.params == contender.params_text,
            RunRow.imported.is_(False),
        )
        .group_by(RunRow.case_text, RunRow.pass_, EnvironmentRow.device_name)
    )
    if contender.version is not None:
        newest = newest.where(RunRow.version == contender.version)
    query = (
        sa.select(
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
        )
        .join(EnvironmentRow, EnvironmentRow.id == RunRow.environment_id)
        .where(RunRow.id.in_(filtered(newest, wanted)))
        .order_by(RunRow.id)
        .limit(most)
    )
    return [BriefRun._make(row) for row in session.execute(query)]


def newest_of_each(runs: Sequence[RunRow]) -> list[RunRow]:
    """Of results ordered newest first, the first of each contender, version, case, pass, device."""
    kept: dict[tuple[Any, ...], RunRow] = {}
    for run in runs:
        device = run.environment.device_name
        key = (run.contender, run.version, run.case_text, run.pass_, device)
        kept.setdefault(key, run)
    return list(kept.values())
