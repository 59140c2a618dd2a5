"""Series: the results of one kernel and params on one case, pass and device model over time.

A renamed kernel keeps its series: `Renames` says under which names it was stored. Imported results
are in no series.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

import sqlalchemy as sa
from packaging.version import InvalidVersion, Version
from sqlalchemy.orm import Session

from ..contract.words import Flag, Outcome
from .models import EnvironmentRow, OutputErrorRow, RunRow
from .results import ResultFilter, filtered

MOST_READ = 10_000
"""Results that a list of series looks through, the newest first, unless cases are named: their rows
are few and lie together in an index, and all are looked at."""

Renames = Mapping[str, str]
"""Name of today of every earlier name of a kernel."""


class SeriesKey(NamedTuple):
    """What a series is: the kernel by its name of today."""

    kernel: str
    params: str
    case: str
    pass_: str
    device_name: str


class SeriesRow(NamedTuple):
    """A series with its extent: when its oldest and its newest result began."""

    key: SeriesKey
    points: int
    versions: int
    first_at: datetime
    last_at: datetime
    newest_result_id: str


def _today(column: Any, renames: Renames) -> Any:
    return sa.case(dict(renames), value=column, else_=column) if renames else column


def series_page(
    session: Session, wanted: ResultFilter, renames: Renames, before: str | None, limit: int
) -> tuple[list[SeriesRow], bool]:
    """Series by their newest result, the latest first, behind the newest result `before`.

    Also whether all results that match were looked at.
    """
    inner, bounded = _looked_through(wanted, renames)
    group = [
        *(inner.c[name] for name in ("kernel", "params", "case_text", "pass_")),
        EnvironmentRow.device_name,
    ]
    newest = sa.func.max(inner.c.id)
    query = (
        sa.select(
            *group,
            sa.func.count(),
            sa.func.count(sa.distinct(inner.c.version)),
            sa.func.min(inner.c.id),
            newest,
        )
        .join_from(inner, EnvironmentRow, EnvironmentRow.id == inner.c.environment_id)
        .group_by(*group)
        .order_by(newest.desc())
        .limit(limit)
    )
    if before is not None:
        query = query.having(newest < before)
    found = [tuple(row) for row in session.execute(query)]
    times = _times(session, [run_id for row in found for run_id in row[7:9]])
    rows = [
        SeriesRow(SeriesKey._make(row[:5]), row[5], row[6], times[row[7]], times[row[8]], row[8])
        for row in found
    ]
    complete = True
    if bounded:
        total = session.scalar(sa.select(sa.func.count()).select_from(inner)) or 0
        complete = total <= MOST_READ
    return rows, complete


def _looked_through(wanted: ResultFilter, renames: Renames) -> tuple[sa.Subquery, bool]:
    """Results that a list of series is made of, and whether they are only the newest."""
    columns = {
        "id": RunRow.id,
        "kernel": _today(RunRow.kernel, renames),
        "params": RunRow.params,
        "case_text": RunRow.case_text,
        "pass_": RunRow.pass_,
        "environment_id": RunRow.environment_id,
        "version": RunRow.version,
    }
    matching = filtered(
        sa.select(*(column.label(name) for name, column in columns.items())), wanted
    ).where(RunRow.imported.is_(False))
    bounded = not wanted.case
    if bounded:
        matching = matching.order_by(RunRow.id.desc()).limit(MOST_READ + 1)
    return matching.subquery(), bounded


def _times(session: Session, run_ids: Sequence[str]) -> dict[str, datetime]:
    """When results began, by id."""
    found: dict[str, datetime] = {}
    for start in range(0, len(run_ids), 500):
        query = sa.select(RunRow.id, RunRow.started_at).where(
            RunRow.id.in_(run_ids[start : start + 500])
        )
        found |= {run_id: moment for run_id, moment in session.execute(query)}
    return found


POINT_COLUMNS: dict[str, Any] = {
    "result_id": RunRow.id,
    "kernel": RunRow.kernel,
    "version": RunRow.version,
    "started_at": RunRow.started_at,
    "outcome": RunRow.outcome,
    "processes": RunRow.processes,
    "latency_ms": RunRow.latency_ms,
    "latency_low_ms": RunRow.latency_low_ms,
    "latency_high_ms": RunRow.latency_high_ms,
    "baseline": RunRow.baseline,
    "baseline_ms": RunRow.baseline_ms,
    "ratio_to_baseline": RunRow.ratio_to_baseline,
    "ratio_low": RunRow.ratio_low,
    "ratio_high": RunRow.ratio_high,
    "floor_ratio": RunRow.floor_ratio,
    "workspace_bytes": RunRow.workspace_bytes,
    "worst_error_ratio": sa.select(sa.func.max(OutputErrorRow.ratio))
    .where(OutputErrorRow.run_id == RunRow.id)
    .scalar_subquery(),
    "grade": RunRow.grade,
    # as text: to decode the same few lists a thousand times would take half of the time
    "flags": sa.cast(RunRow.flags, sa.Text),
    "environment_id": RunRow.environment_id,
    "protocol_version": RunRow.protocol_version,
    "invalidated": RunRow.invalidated_at.is_not(None),
}
"""Columns of the points of a series, by their name in the API."""


@lru_cache(maxsize=64)
def _points_query(wanted: str, newest: bool, limit: int) -> sa.Select[Any]:
    """Points of one series, the newest first.

    The same statement, not an equal one, for the same question: to put it together and to fit its
    columns to the kept text of an equal one takes longer than to run it.
    """
    query = sa.select(*POINT_COLUMNS.values())
    if not newest:
        query = query.where(RunRow.id < sa.bindparam("before"))
    return (
        filtered(query, ResultFilter.model_validate_json(wanted))
        .join(EnvironmentRow, EnvironmentRow.id == RunRow.environment_id)
        .where(
            RunRow.case_text == sa.bindparam("case"),
            RunRow.kernel.in_(sa.bindparam("names", expanding=True)),
            RunRow.params == sa.bindparam("params"),
            RunRow.pass_ == sa.bindparam("pass_"),
            EnvironmentRow.device_name == sa.bindparam("device_name"),
            RunRow.imported.is_(False),
        )
        .order_by(RunRow.id.desc())
        .limit(limit)
    )


_TIMES = (
    "latency_ms", "latency_low_ms", "latency_high_ms", "ratio_to_baseline", "ratio_low",
    "ratio_high", "floor_ratio",
)  # fmt: skip
_NUMBERS = (*_TIMES, "workspace_bytes", "worst_error_ratio")


def series_points(
    session: Session,
    key: SeriesKey,
    names: Sequence[str],
    wanted: ResultFilter,
    page: tuple[str | None, int],
) -> tuple[dict[str, list[Any]], str | None]:
    """Points of a series as columns, ordered by version and then by age.

    `names`: what its kernel was stored under. `page`: read behind this result id, at most so many,
    the newest first. Also the id to go on behind, None at the end. A result that is not `ok` has no
    numbers, an interpreted one no times.
    """
    before, limit = page
    query = _points_query(wanted.model_dump_json(exclude_defaults=True), before is None, limit + 1)
    sought = {name: value for name, value in key._asdict().items() if name != "kernel"}
    sought |= {"names": tuple(names)} | ({} if before is None else {"before": before})
    # through the session, so that one that looks at a past moment sees only what was there
    rows = session.execute(query, sought).all()
    following = rows[limit - 1][0] if len(rows) > limit else None
    rows = sorted(reversed(rows[:limit]), key=_ranks(rows))
    taken = zip(*rows, strict=True) if rows else ([] for _ in POINT_COLUMNS)
    columns = {name: list(values) for name, values in zip(POINT_COLUMNS, taken, strict=True)}
    lists = {text: json.loads(text) for text in set(columns["flags"])}
    columns["flags"] = [lists[text] for text in columns["flags"]]
    _withhold(columns)
    return columns, following


def _ranks(rows: Sequence[Sequence[Any]]) -> Any:
    """Sort key of a row: releases by PEP 440, then commits and folders by when they appeared."""
    place = list(POINT_COLUMNS).index("version")
    order: dict[str | None, tuple[int, Any]] = {}
    for age, row in enumerate(reversed(rows)):
        if row[place] not in order:
            order[row[place]] = _rank(row[place], age)
    return lambda row: order[row[place]]


def _rank(version: str | None, age: int) -> tuple[int, Any]:
    release = _release(version)
    return (1, age) if release is None else (0, release)


@lru_cache(maxsize=4096)
def _release(version: str | None) -> Version | None:
    try:
        return Version(version or "0")
    except InvalidVersion:
        return None


def _withhold(columns: dict[str, list[Any]]) -> None:
    """Null for every number that does not count."""
    for place, outcome in enumerate(columns["outcome"]):
        hidden: Sequence[str] = ()
        if outcome != Outcome.OK.value:
            hidden = _NUMBERS
        elif Flag.INTERPRETED.value in columns["flags"][place]:
            hidden = _TIMES
        for name in hidden:
            columns[name][place] = None
