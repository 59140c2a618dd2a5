"""Changes in many histories at once: which the code explains, and which something else does.

Times are ratios to the baseline of the same process, so that an environment step hardly shows in
them. Still some steps are no kernel's: the baseline alone moves, or everything does, or a history
moves between two points of the same code. These become one note each, for all histories that show
it; what is left are candidates, to be confirmed head to head.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

import numpy as np

from .history_changes_causes import Causes
from .history_changes_records import (
    Candidate,
    History,
    HistoryChanges,
    HistoryKey,
    HistoryPoint,
    Silence,
)
from .history_changes_series import (
    EXACT,
    NUMBERS,
    OWN_TIME_LEAST,
    Movement,
    followed,
    followed_exactly,
    having,
    log_baseline,
    log_ratio,
)
from .verdict import PRACTICAL_LINE

SILENT_AFTER = 3.0
"""Usual intervals without a point."""
LEAST_DAYS = 4
"""Days with points before a history has a usual interval."""


def find_history_changes(
    histories: Iterable[History],
    *,
    aliases: Mapping[str, str] | None = None,
    now: datetime | None = None,
    silent_after: float = SILENT_AFTER,
) -> HistoryChanges:
    """Candidates, notes and silences of all histories of a service.

    Give all histories of an accelerator together: what moved everywhere is seen only so. `aliases`
    has the name of today for each earlier name of a kernel; histories that become one key are
    joined. Points are ordered by release date, then by the time they were measured. With `now`,
    histories without a point for `silent_after` usual intervals are told.

    Raises ValueError for a number that is not finite.
    """
    joined = _joined(histories, aliases or {})
    own: list[Movement] = []
    ratios: list[Movement] = []
    exact: list[Movement] = []
    short: list[HistoryKey] = []
    for key, points in joined.items():
        of_ratio = followed(key, points, log_ratio, PRACTICAL_LINE)
        if of_ratio.not_enough_data:
            short.append(key)
        ratios += of_ratio.movements
        own += followed(key, points, log_baseline, OWN_TIME_LEAST).movements
        exact += [each for metric in EXACT for each in followed_exactly(key, points, metric)]
    causes = Causes(joined, own)
    left = causes.explain([*ratios, *exact])
    return HistoryChanges(
        candidates=tuple(_candidate(movement, joined[movement.key]) for movement in left),
        notes=causes.notes(),
        not_enough_data=tuple(short),
        silent=tuple(_silences(joined, now, silent_after) if now is not None else ()),
        points=joined,
    )


def _joined(
    histories: Iterable[History], aliases: Mapping[str, str]
) -> dict[HistoryKey, tuple[HistoryPoint, ...]]:
    points: dict[HistoryKey, list[HistoryPoint]] = {}
    for history in histories:
        key = history.key
        today = HistoryKey(
            _today(key.kernel, aliases), key.case, key.pass_, key.accelerator, key.params
        )
        points.setdefault(today, []).extend(history.points)
    return {
        key: tuple(sorted(points[key], key=lambda p: (p.released_at, p.measured_at)))
        for key in sorted(points)
    }


def _today(kernel: str, aliases: Mapping[str, str]) -> str:
    """A kernel renamed twice has two aliases in a row; a circle ends where it began."""
    seen = {kernel}
    while (later := aliases.get(kernel, kernel)) not in seen:
        seen.add(later)
        kernel = later
    return kernel


def _candidate(movement: Movement, points: Sequence[HistoryPoint]) -> Candidate:
    numbered = having(points, NUMBERS[movement.metric])
    before, after = numbered[movement.before], numbered[movement.after]
    return Candidate(
        key=movement.key,
        metric=movement.metric,
        index_before=points.index(before),
        index_after=points.index(after),
        before=before,
        after=after,
        change=movement.change,
        low=movement.low,
        high=movement.high,
        p_value=movement.p_value,
        gradual=movement.gradual,
        at_environment_change=movement.new_environment,
    )


def _silences(
    joined: Mapping[HistoryKey, Sequence[HistoryPoint]], now: datetime, silent_after: float
) -> Iterable[Silence]:
    """Several points of one day are one visit: a history measured in a day is never overdue."""
    for key, points in joined.items():
        days: dict[object, datetime] = {}
        for measured_at in sorted(point.measured_at for point in points):
            days[measured_at.date()] = measured_at
        if len(days) < LEAST_DAYS:
            continue
        times = [moment.timestamp() for moment in days.values()]
        usual = timedelta(seconds=float(np.median(np.diff(times))))
        last = max(days.values())
        if now - last > silent_after * usual:
            yield Silence(key, last, usual)
