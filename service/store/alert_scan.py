"""Looks through the histories that a finished job added to, for changes between versions.

Releases are compared with the release before, by one result of each; nightlies, branches and
repeated runs are searched as series (`statistics/history_changes.py`). Releases that run the same
code count as one, results of other protocols and imported ones not at all.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

from packaging.version import Version
from sqlalchemy.orm import Session

from ..contract.alert import AlertDirection, AlertKind, AlertMetric
from ..contract.catalogue import Catalogue
from ..contract.lineage import names_of
from ..statistics.history_changes import find_history_changes
from ..statistics.history_changes_records import (
    Candidate,
    History,
    HistoryChanges,
    HistoryKey,
    HistoryPoint,
    Metric,
    Note,
    Silence,
)
from ..statistics.release_steps import Step, candidates_among, step_between
from .alert_findings import Found, FoundCase, FoundNote
from .alert_histories import Histories, StoredPoint, histories_of, read_histories
from .results import ResultFilter
from .series import SeriesKey, series_page

MOST_HISTORIES = 1000
"""Histories looked at for being overdue, those with the newest results."""
_FIRST_RELEASE = datetime(2000, 1, 1, tzinfo=UTC)
"""Releases have no date here: they stand a day apart, in the order of their versions."""
_METRICS = {
    Metric.TIME: AlertMetric.TIME,
    Metric.MEMORY: AlertMetric.MEMORY,
    Metric.ERROR: AlertMetric.ERROR,
}


def scan_job(session: Session, job_id: str, catalogue: Catalogue, moment: datetime) -> Found:
    """Changes in the histories that a job added results to. Nothing is stored."""
    return scan(histories_of(session, job_id, catalogue), moment)


def scan(histories: Histories, moment: datetime) -> Found:
    """Changes in these histories; `moment` decides which of them are overdue."""
    steps = [step for key, points in histories.items() for step in _release_steps(key, points)]
    chosen = candidates_among([step for _, _, _, step in steps]) if steps else []
    cases = [
        _release_case(key, before, after, step, adjusted)
        for (key, before, after, step), (is_candidate, adjusted) in zip(steps, chosen, strict=True)
        if is_candidate
    ]
    given = [_history(key, points) for key, points in histories.items()]
    changes = find_history_changes(given, now=moment)
    by_key = {_key(key): (key, points) for key, points in histories.items()}
    cases += [case for each in changes.candidates if (case := _history_case(each, by_key, changes))]
    return Found(
        cases=cases,
        notes=[_note(note) for note in changes.notes],
        tests=[step.p_value for _, _, _, step in steps],
        histories=len(histories),
        not_enough_data=len(changes.not_enough_data),
    )


def _release_steps(
    key: SeriesKey, points: Sequence[StoredPoint]
) -> Iterator[tuple[SeriesKey, StoredPoint, StoredPoint, Step]]:
    """Steps of time from each measured code of a release to the next, by their newest results."""
    newest: dict[str, StoredPoint] = {}
    for point in sorted(points, key=lambda point: point.started_at):
        if point.is_release and point.measured_ratio is not None:
            newest[point.code] = point
    order = sorted(newest.values(), key=lambda point: Version(point.code))
    for before, after in pairwise(order):
        ratios = before.measured_ratio, after.measured_ratio
        if ratios[0] is not None and ratios[1] is not None:
            yield key, before, after, step_between(ratios[0], ratios[1])


def _release_case(
    key: SeriesKey, before: StoredPoint, after: StoredPoint, step: Step, adjusted: float
) -> FoundCase:
    ratios = [point.measured_ratio for point in (before, after)]
    return FoundCase(
        **_place(key, before, after),
        metric=AlertMetric.TIME,
        direction=AlertDirection.WORSE if step.change > 0 else AlertDirection.BETTER,
        before=_over_baseline(before),
        after=_over_baseline(after),
        ratio=step.ratio,
        ratio_low=math.exp(step.low),
        ratio_high=math.exp(step.high),
        p_value=step.p_value,
        adjusted_p_value=adjusted,
        inputs={
            "method": "release_steps",
            "ratios": [[r.value, r.low, r.high, r.processes] for r in ratios if r is not None],
        },
    )


def _place(key: SeriesKey, before: StoredPoint, after: StoredPoint) -> dict[str, Any]:
    return {
        "kernel": key.kernel,
        "params": key.params,
        "case": key.case,
        "pass_": key.pass_,
        "device_name": key.device_name,
        "before_version": before.version,
        "after_version": after.version,
        "before_result_id": before.result_id,
        "after_result_id": after.result_id,
        "environments_differ": before.environment_id != after.environment_id,
    }


def _over_baseline(point: StoredPoint) -> str:
    return f"{point.ratio:.4g}× the baseline"


def _key(key: SeriesKey) -> HistoryKey:
    return HistoryKey(key.kernel, key.case, key.pass_, key.device_name, key.params)


def _history(key: SeriesKey, points: Sequence[StoredPoint]) -> History:
    codes = sorted({point.code for point in points if point.is_release}, key=Version)
    days = {code: _FIRST_RELEASE + timedelta(days=rank) for rank, code in enumerate(codes)}
    first: dict[str, datetime] = {}
    for point in points:
        first[point.code] = min(point.started_at, first.get(point.code, point.started_at))
    return History(
        _key(key),
        tuple(
            HistoryPoint(
                # by its id the point is found again; which version it is, its code says
                version=point.result_id,
                released_at=days.get(point.code, first[point.code]),
                measured_at=point.started_at,
                environment=point.environment_id,
                code_hash=point.code,
                ratio_to_baseline=point.ratio,
                baseline_ms=point.baseline_ms,
                floor_ms=point.floor_ms,
                workspace_bytes=point.workspace_bytes,
                grade=point.grade,
            )
            for point in points
        ),
    )


def _history_case(
    found: Candidate,
    histories: Mapping[HistoryKey, tuple[SeriesKey, Sequence[StoredPoint]]],
    changes: HistoryChanges,
) -> FoundCase | None:
    """A candidate of a series; None where releases were compared one by one already."""
    key, points = histories[found.key]
    by_id = {point.result_id: point for point in points}
    before, after = by_id[found.before.version], by_id[found.after.version]
    if found.metric is Metric.TIME and before.is_release and after.is_release:
        return None
    ratios: dict[str, Any] = {}
    if found.metric is Metric.TIME:
        bounds = (found.change, found.low, found.high)
        ratios = dict(zip(("ratio", "ratio_low", "ratio_high"), map(math.exp, bounds), strict=True))
    elif found.metric is Metric.MEMORY and before.workspace_bytes and after.workspace_bytes:
        ratios = {"ratio": after.workspace_bytes / before.workspace_bytes}
    series = changes.points[found.key]
    return FoundCase(
        **_place(key, before, after),
        **ratios,
        metric=_METRICS[found.metric],
        direction=AlertDirection.WORSE if found.change > 0 else AlertDirection.BETTER,
        before=_text(found.metric, before),
        after=_text(found.metric, after),
        p_value=found.p_value,
        adjusted_p_value=found.p_value,
        inputs={
            "method": "history_changes",
            "metric": found.metric.value,
            "gradual": found.gradual,
            "at_environment_change": found.at_environment_change,
            "results": [point.version for point in series],
            "values": [_value(found.metric, point) for point in series],
            "index_after": found.index_after,
        },
    )


def _text(metric: Metric, point: StoredPoint) -> str:
    if metric is Metric.TIME:
        return _over_baseline(point)
    if metric is Metric.MEMORY:
        return f"{(point.workspace_bytes or 0) / 2**20:,.1f} MiB"
    return str(point.grade)


def _value(metric: Metric, point: HistoryPoint) -> float | str | None:
    if metric is Metric.TIME:
        return point.ratio_to_baseline
    return point.workspace_bytes if metric is Metric.MEMORY else point.grade


def _note(note: Note) -> FoundNote:
    day = note.until.date().isoformat()
    return FoundNote(
        AlertKind(note.kind.value),
        f"{note.kind.value}:{note.metric.value}:{note.accelerator}:{day}",
        note.sentence,
        {
            "change": note.change,
            "since": note.since.isoformat(),
            "until": note.until.isoformat(),
            "new_environment": note.new_environment,
            "histories": [[k.kernel, k.params, k.case, k.pass_, k.accelerator] for k in note.keys],
        },
    )


def overdue(session: Session, catalogue: Catalogue, moment: datetime) -> list[FoundNote]:
    """Histories that had a rhythm and have had no result for three of their usual intervals."""
    renames = {each: name for name in catalogue.kernels for each in names_of(name, catalogue)[1:]}
    rows, _ = series_page(session, ResultFilter(), renames, None, MOST_HISTORIES)
    old = [row.key for row in rows if row.points > 3 and moment - row.last_at > timedelta(days=1)]
    read = read_histories(session, catalogue, dict.fromkeys(old))
    histories = [_history(key, points) for key, points in read.items()]
    return [_silence(each) for each in find_history_changes(histories, now=moment).silent]


def _silence(silence: Silence) -> FoundNote:
    key = silence.key
    params = f"[{key.params}]" if key.params else ""
    last = silence.last_measured_at.date().isoformat()
    days = silence.usual_interval / timedelta(days=1)
    return FoundNote(
        AlertKind.SILENT,
        f"silent:{key.kernel}[{key.params}]:{key.case}:{key.pass_}:{key.accelerator}:{last}",
        f"{key.kernel}{params} on {key.case}, {key.pass_}, {key.accelerator}: no new result since "
        f"{last}, usually every {days:.2g} days",
        {"usual_interval_s": silence.usual_interval.total_seconds()},
    )
