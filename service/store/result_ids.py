"""Which results a page of a list holds: ids from one index, before any row is read.

A list is ordered by age or by one column, and each of these orders is an index. A repeated filter
is read value by value, each in order and no further than the page, and then merged: the database
would otherwise collect and sort everything that matches.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from .models import CellRow, EnvironmentRow, JobRow, RunRow
from .results import ResultFilter, carry_labels, filtered

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


MANY = 10_000
"""So many results are not sorted for one page."""


def page_ids(
    session: Session, wanted: ResultFilter, order: Order, after: Place | None, limit: int
) -> list[str]:
    """Ids of the results behind a place, in order, at most `limit`."""
    if order.column is None:
        return _by_age(session, wanted, order.descending, after.run_id if after else None, limit)
    column, found = SORTABLE[order.column], list[str]()
    matching = _by_column(session, wanted)
    if after is None or after.value is not None:
        query = matching.where(column.is_not(None))
        if after is not None:
            query = query.where(_behind(column, order.descending, after))
        found += session.scalars(_ordered(query, order.descending, column, limit))
    if len(found) < limit:
        query = matching.where(column.is_(None))
        if after is not None and after.value is None:
            query = query.where(_beyond(order.descending, after.run_id))
        found += session.scalars(_ordered(query, order.descending, column, limit - len(found)))
    return found


def _by_column(session: Session, wanted: ResultFilter) -> sa.Select[Any]:
    """What matches: few results are collected and sorted, of many the column's index is walked."""
    every = sa.select(RunRow.id)
    if wanted == ResultFilter(include_invalid=wanted.include_invalid):
        return filtered(every, wanted)
    inner = filtered(every, wanted).limit(MANY).subquery()
    many = session.scalar(sa.select(sa.func.count()).select_from(inner)) == MANY
    return filtered(every, wanted, walking=many)


def _ordered(query: sa.Select[Any], descending: bool, column: Any, limit: int) -> sa.Select[Any]:
    terms = (column, RunRow.id)
    return query.order_by(*(t.desc() if descending else t.asc() for t in terms)).limit(limit)


def _beyond(descending: bool, run_id: str) -> sa.ColumnElement[bool]:
    return RunRow.id < run_id if descending else RunRow.id > run_id


def _behind(column: Any, descending: bool, after: Place) -> sa.ColumnElement[bool]:
    # said as a range of the column too, which is what an index can begin at
    bound = column <= after.value if descending else column >= after.value
    further = column < after.value if descending else column > after.value
    return sa.and_(bound, sa.or_(further, _beyond(descending, after.run_id)))


def _by_age(
    session: Session, wanted: ResultFilter, descending: bool, after: str | None, limit: int
) -> list[str]:
    parts = []
    for each in _split(session, wanted):
        query = filtered(sa.select(RunRow.id), each[0]).where(*each[1])
        if after is not None:
            query = query.where(_beyond(descending, after))
        newest = RunRow.id.desc() if descending else RunRow.id.asc()
        parts.append(query.order_by(newest).limit(limit))
    if not parts:
        return []
    if len(parts) == 1:
        return list(session.scalars(parts[0]))
    merged = sa.union_all(*(sa.select(part.subquery().c.id) for part in parts)).subquery()
    newest = merged.c.id.desc() if descending else merged.c.id.asc()
    return list(session.scalars(sa.select(merged.c.id).order_by(newest).limit(limit)))


Part = tuple[ResultFilter, Sequence[sa.ColumnElement[bool]]]


def _split(session: Session, wanted: ResultFilter) -> list[Part]:
    """The filters as alternatives that do not overlap, each of one index's range."""
    if wanted.label:
        return _of_labelled_jobs(session, wanted)
    if wanted.job:
        return [(wanted, ())]
    for name in _LEADING:
        values = list(dict.fromkeys(getattr(wanted, name)))
        if values:
            return [(wanted.model_copy(update={name: [value]}), ()) for value in values]
    if wanted.gpu and wanted.imported is not True:
        return _of_devices(session, wanted)
    return [(wanted, ())]


def _of_devices(session: Session, wanted: ResultFilter) -> list[Part]:
    """Measured results by environment; imported ones, whose every commit has one, apart."""
    on_device = sa.select(EnvironmentRow.id).where(EnvironmentRow.device_name.in_(wanted.gpu))
    imported = EnvironmentRow.hardware_fingerprint.startswith("imported")
    places = list(session.scalars(on_device.where(~imported).limit(MOST_PARTS + 1)))
    if len(places) > MOST_PARTS:
        return [(wanted, ())]
    rest = wanted.model_copy(update={"gpu": []})
    parts: list[Part] = [(rest, (RunRow.environment_id == place,)) for place in places]
    if wanted.imported is None and session.scalar(on_device.where(imported).limit(1)):
        parts.append((wanted.model_copy(update={"imported": True}), ()))
    return parts


def _of_labelled_jobs(session: Session, wanted: ResultFilter) -> list[Part]:
    """Results of few jobs by their cells; of many jobs, the newest results that are in one."""
    jobs = sa.select(JobRow.id).where(carry_labels(wanted.label))
    found = list(session.scalars(jobs.limit(FEW_JOBS + 1)))
    if not found:
        return []
    rest = wanted.model_copy(update={"label": []})
    cells = sa.select(CellRow.run_id)
    if len(found) <= FEW_JOBS:
        of_jobs = cells.where(CellRow.job_id.in_(found), CellRow.run_id.is_not(None))
        return [(rest, (RunRow.id.in_(of_jobs),))]
    is_in = cells.where(CellRow.run_id == RunRow.id, CellRow.job_id.in_(jobs))
    return [(rest, (is_in.exists(),))]


FEW_JOBS = 100
MOST_PARTS = 100
"""Parts of one query: SQLite joins 500 at most, and each costs a look into the index."""
_LEADING = ("case", "kernel", "outcome", "tokens", "hidden", "vocab")
"""Filters that an index of lists begins with, the narrowest first."""
