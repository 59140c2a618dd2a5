"""From one history to the movements of its numbers, each with its window in time."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from ..contract.words import Grade
from .change_points import ChangePoint, Changes, Drift, find_changes, find_exact_steps
from .history_changes_records import HistoryKey, HistoryPoint, Metric

PLACE_ERROR = 3
"""Points by which the place of a step may be wrong: 95 % of 2 % steps at a noise of 0.5 % lie
nearer (docs/reference/detection.md)."""
OWN_TIME_LEAST = math.log(1.01)
"""Smaller movements of a baseline's own time are no note: it follows temperature and clock."""
_RANKS = {grade: rank for rank, grade in enumerate(Grade)}
Value = Callable[[HistoryPoint], float | None]


@dataclass(frozen=True)
class Movement:
    """A step or drift of one number of one history."""

    key: HistoryKey
    metric: Metric
    before: int
    """Index of the last point before, among the points that have the number."""
    after: int
    """Index of the first point after."""
    since: datetime
    """First and last time at which a point was measured that may be beside the step."""
    until: datetime
    change: float
    low: float
    high: float
    p_value: float
    gradual: bool
    new_environment: bool
    baseline_change: float | None
    """Log change of the baseline's own time over the same levels; None where it is unknown."""
    floor_change: float | None
    """The same of the floor's own time."""
    ratio_change: float | None
    """The same of the ratio to the baseline."""

    def overlaps(self, other: "Movement") -> bool:
        """Whether both may have happened at one time, on one model of accelerator."""
        return (
            self.key.accelerator == other.key.accelerator
            and self.since <= other.until
            and other.since <= self.until
        )


@dataclass(frozen=True)
class Followed:
    """Movements of a number in one history."""

    movements: tuple[Movement, ...]
    not_enough_data: bool


def log_ratio(point: HistoryPoint) -> float | None:
    """Log of the ratio to the baseline."""
    return _log(point.ratio_to_baseline)


def log_baseline(point: HistoryPoint) -> float | None:
    """Log of the baseline's own time."""
    return _log(point.baseline_ms)


def log_floor(point: HistoryPoint) -> float | None:
    """Log of the floor's own time."""
    return _log(point.floor_ms)


def _log(value: float | None) -> float | None:
    return math.log(value) if value is not None and value > 0.0 else None


def workspace(point: HistoryPoint) -> float | None:
    """Workspace in bytes."""
    return point.workspace_bytes


def grade_rank(point: HistoryPoint) -> float | None:
    """0 for the best grade."""
    return None if point.grade is None else _RANKS[point.grade]


EXACT = frozenset({Metric.MEMORY, Metric.ERROR})
"""Deterministic numbers."""
NUMBERS: dict[Metric, Value] = {
    Metric.TIME: log_ratio,
    Metric.MEMORY: workspace,
    Metric.ERROR: grade_rank,
}


def having(points: Sequence[HistoryPoint], value: Value) -> list[HistoryPoint]:
    """Those of which the number is known."""
    return [point for point in points if value(point) is not None]


def followed(
    key: HistoryKey, points: Sequence[HistoryPoint], value: Value, least_change: float
) -> Followed:
    """Steps and drifts of a noisy number, over all environments: it is a ratio, or asks for notes.

    Raises ValueError for a number that is not finite.
    """
    kept = having(points, value)
    found = find_changes(_numbers(kept, value), least_change=least_change)
    return Followed(_movements(key, Metric.TIME, kept, found), found.not_enough_data)


def followed_exactly(
    key: HistoryKey, points: Sequence[HistoryPoint], metric: Metric
) -> tuple[Movement, ...]:
    """Steps of bytes or of grades. Raises ValueError for a number that is not finite."""
    kept = having(points, NUMBERS[metric])
    numbers = _numbers(kept, NUMBERS[metric])
    if metric is Metric.MEMORY:
        return _movements(key, metric, kept, find_exact_steps(numbers))
    steps = find_exact_steps(numbers, least_change=0.5, least_share=0.0)
    return _movements(key, metric, kept, steps)


def _numbers(points: Sequence[HistoryPoint], value: Value) -> list[float]:
    return [number for number in map(value, points) if number is not None]


class _Levels:
    """The levels beside each step, as ranges among the points that have the number."""

    def __init__(self, found: Changes) -> None:
        starts = [(point.index - 1, point.index) for point in found.points]
        starts += [(drift.first, drift.last) for drift in found.drifts]
        self.steps = sorted(starts)
        self.count = found.count

    def beside(self, step: tuple[int, int]) -> tuple[range, range]:
        """Before and after: up to the neighbouring steps."""
        place = self.steps.index(step)
        start = self.steps[place - 1][1] if place else 0
        last = place + 1 == len(self.steps)
        stop = self.count if last else self.steps[place + 1][0] + 1
        return range(start, step[0] + 1), range(step[1], stop)


def _movements(
    key: HistoryKey,
    metric: Metric,
    points: Sequence[HistoryPoint],
    found: Changes,
) -> tuple[Movement, ...]:
    """`points` are those that have the number."""
    levels, error = _Levels(found), 0 if metric in EXACT else PLACE_ERROR
    steps: list[ChangePoint | Drift] = [*found.points, *found.drifts]
    movements = []
    for step in steps:
        gradual = isinstance(step, Drift)
        ends = (step.first, step.last) if isinstance(step, Drift) else (step.index - 1, step.index)
        around = points[max(ends[0] - error, 0) : ends[1] + error + 1]
        times = [point.measured_at for point in around]
        sides = levels.beside(ends)
        movements.append(
            Movement(
                key=key,
                metric=metric,
                before=ends[0],
                after=ends[1],
                since=min(times),
                until=max(times),
                change=step.change,
                low=step.low,
                high=step.high,
                p_value=step.p_value,
                gradual=gradual,
                new_environment=len({point.environment for point in around}) > 1,
                baseline_change=_own_change(points, sides, log_baseline),
                floor_change=_own_change(points, sides, log_floor),
                ratio_change=_own_change(points, sides, log_ratio),
            )
        )
    return tuple(movements)


def _own_change(
    points: Sequence[HistoryPoint], sides: tuple[range, range], value: Value
) -> float | None:
    """Difference of the medians of another number over the same two levels."""
    numbers = [[value(points[i]) for i in side] for side in sides]
    known = [[number for number in side if number is not None] for side in numbers]
    if not all(known):
        return None
    before, after = (float(np.median(side)) for side in known)
    return after - before
