"""Where a series of measurements changed: steps and drifts, and how sure that is.

For one series of a benchmark over versions, commits or nights. Values are compared by difference,
so times, ratios and errors come as logarithms: a step of 0.02 is 2 %. The noise may have 1 % of
outliers and may linger from point to point. How a step's strength becomes a p-value is a table made
from simulated clean series (`change_points_table.py`), and how well steps are found is in
docs/reference/detection.md. What is deterministic, such as bytes, has `find_exact_steps`.
"""

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from .change_points_drift import Ramp, find_ramps, find_slow_drift
from .change_points_noise import Floats, variance_of_step
from .change_points_search import Levels, fewer_and_fewer
from .change_points_table import LEAST_POINTS, p_value
from .student_t import quantile
from .verdict import PRACTICAL_LINE

FALSE_RATE = 0.001
"""Share of clean series, of whatever length, that show a step or a drift."""
CONFIDENCE = 0.95
LEAST_BYTES = 1024**2
LEAST_SHARE_OF_BYTES = 0.005
"""Memory is compared exactly; changes up to max(1 MiB, 0.5 %) are no change (docs/measuring.md)."""

Direction = Literal["up", "down"]


@dataclass(frozen=True)
class ChangePoint:
    """A step from one level to the next. Values are in the unit of the series."""

    index: int
    """Of the first point of the new level."""
    position: float
    """The same point's position; the index where the series has none."""
    before: float
    after: float
    change: float
    """after - before: for logarithms the log ratio."""
    low: float
    """95 % interval of the change, for this place of the step."""
    high: float
    p_value: float
    """Share of clean series of this length with a step as strong anywhere. 0 for exact steps."""

    @property
    def direction(self) -> Direction:
        """`up` for a larger value: slower, bigger or less exact."""
        return "up" if self.change > 0 else "down"

    @property
    def ratio(self) -> float:
        """Of a series of logarithms: after / before of what was logged."""
        return math.exp(self.change)


@dataclass(frozen=True)
class Drift:
    """A gradual change: straight from the level at `first` to the level at `last`."""

    first: int
    """Index of the last point of the old level."""
    last: int
    """Index of the first point of the new level, or of the last point there is."""
    first_position: float
    last_position: float
    change: float
    """In the unit of the series."""
    low: float
    """95 % interval of the change, for these two places."""
    high: float
    p_value: float
    """Of the strongest step in its place, or of the drift where no step is sure."""

    @property
    def direction(self) -> Direction:
        """`up` for a larger value: slower, bigger or less exact."""
        return "up" if self.change > 0 else "down"


@dataclass(frozen=True)
class Changes:
    """What became of one series."""

    points: tuple[ChangePoint, ...] = ()
    drifts: tuple[Drift, ...] = ()
    short: tuple[range, ...] = ()
    """Segments, as ranges of indices, with too few points to say anything."""
    count: int = 0

    @property
    def not_enough_data(self) -> bool:
        """True where no segment has enough points: nothing is known, not even that it is quiet."""
        return sum(len(segment) for segment in self.short) == self.count


def find_changes(
    values: Sequence[float],
    *,
    positions: Sequence[float] | None = None,
    segments: Sequence[Hashable] | None = None,
    least_change: float = PRACTICAL_LINE,
    false_rate: float = FALSE_RATE,
) -> Changes:
    """Steps and drifts of a noisy series, in its order.

    `positions` (days, version numbers) are handed through to the result. `segments` names the
    environment of each point: neighbours of different environments are never compared, and the
    false rate is shared out by points. Steps up to `least_change`, in the values' unit, are no
    result. A segment of fewer than `LEAST_POINTS` points is told as short. A level has at least
    three points at either end and five between two steps; single points that lie far out are no
    level.

    Raises ValueError for a value or position that is not finite, or lengths that differ.
    Cost: about 3 ms for 1,000 points.
    """
    series = _checked("values", values)
    places = _checked("positions", range(len(series)) if positions is None else positions)
    for name, given in (("positions", places), ("segments", segments)):
        if given is not None and len(given) != len(series):
            raise ValueError(f"{name} must be as many as values, got {len(given)}, {len(series)}")
    points: list[ChangePoint] = []
    drifts: list[Drift] = []
    short: list[range] = []
    for segment in _segments(len(series), segments):
        if len(segment) < LEAST_POINTS:
            short.append(segment)
            continue
        cut = _Cut(segment, places, series)
        of_segment = _in_segment(cut, false_rate, least_change)
        points += of_segment.points
        drifts += of_segment.drifts
    return Changes(tuple(points), tuple(drifts), tuple(short), len(series))


def find_exact_steps(
    values: Sequence[float],
    *,
    positions: Sequence[float] | None = None,
    least_change: float = LEAST_BYTES,
    least_share: float = LEAST_SHARE_OF_BYTES,
) -> Changes:
    """Steps of a series without noise, such as bytes or the rank of a grade: no statistics.

    A step is where a value leaves the level by more than max(least_change, least_share x level);
    the level is the value at the last step, so small changes that add up are a step too. One point
    is enough. Raises ValueError for a value or position that is not finite, or lengths that differ.
    """
    series = _checked("values", values)
    places = _checked("positions", range(len(series)) if positions is None else positions)
    if len(places) != len(series):
        raise ValueError(f"positions must be as many as values, got {len(places)}, {len(series)}")
    points: list[ChangePoint] = []
    level = float(series[0]) if len(series) else 0.0
    for index, value in enumerate(series.tolist()):
        change = value - level
        if abs(change) > max(least_change, least_share * abs(level)):
            place = float(places[index])
            points.append(
                ChangePoint(index, place, level, value, change, change, change, p_value=0.0)
            )
            level = value
    return Changes(tuple(points), count=len(series))


def _checked(name: str, given: Sequence[float]) -> Floats:
    array = np.asarray(given, dtype=np.float64)
    if array.ndim != 1:
        raise ValueError(f"{name} must be one series, got {array.ndim} dimensions")
    if bad := np.flatnonzero(~np.isfinite(array)).tolist():
        raise ValueError(f"{name} must be finite, got {array[bad[0]]} at index {bad[0]}")
    return array


def _segments(count: int, names: Sequence[Hashable] | None) -> Iterator[range]:
    """Neighbours of one name; an environment that comes back is a segment of its own."""
    start = 0
    for i in range(1, count + 1):
        if i == count or (names is not None and names[i] != names[i - 1]):
            yield range(start, i)
            start = i


@dataclass(frozen=True)
class _Cut:
    """A segment of a series, and its place in it."""

    segment: range
    positions: Floats
    """Of the whole series."""
    series: Floats

    @property
    def values(self) -> Floats:
        return self.series[self.segment.start : self.segment.stop]

    @property
    def share(self) -> float:
        """Of the series' points."""
        return len(self.segment) / len(self.series)

    def p_value(self, strength: float) -> float:
        """Of one segment, for a false rate of the whole series."""
        return min(1.0, p_value(strength, len(self.segment)) / self.share)


def _in_segment(cut: _Cut, false_rate: float, least_change: float) -> Changes:
    for levels in fewer_and_fewer(cut.values, least_change):
        if cut.p_value(float(levels.strengths.min())) <= false_rate:
            return _told(levels, cut)
    slow = find_slow_drift(cut.values)
    if slow is None or abs(slow[0].change) <= least_change:
        return Changes()
    drift = _drift(slow[0], slow[0].strength, len(cut.segment) - 2, cut)
    return Changes(drifts=(drift,) if drift.p_value <= false_rate else ())


def _told(levels: Levels, cut: _Cut) -> Changes:
    """The steps of a segment, or the drifts that explain them better."""
    ramps = find_ramps(levels)
    taken = {step for ramp in ramps for step in ramp.steps}
    degrees = len(levels.values) - len(levels.edges) + 1
    return Changes(
        points=tuple(
            _point(levels, i, degrees, cut) for i in range(len(levels.strengths)) if i not in taken
        ),
        drifts=tuple(
            _drift(ramp, max(float(levels.strengths[i]) for i in ramp.steps), degrees, cut)
            for ramp in ramps
        ),
    )


def _point(levels: Levels, step: int, degrees: int, cut: _Cut) -> ChangePoint:
    means, sides = levels.means(), np.diff(levels.edges[step : step + 3])
    variance = float(variance_of_step(sides[:1], sides[1:], levels.noise.correlation)[0])
    change = float(means[step + 1] - means[step])
    half = _half(levels.noise.deviation * math.sqrt(variance), degrees)
    index = cut.segment.start + int(levels.edges[step + 1])
    return ChangePoint(
        index=index,
        position=float(cut.positions[index]),
        before=float(means[step]),
        after=float(means[step + 1]),
        change=change,
        low=change - half,
        high=change + half,
        p_value=cut.p_value(float(levels.strengths[step])),
    )


def _drift(ramp: Ramp, strength: float, degrees: int, cut: _Cut) -> Drift:
    half = _half(ramp.deviation, degrees)
    first, last = cut.segment.start + ramp.first, cut.segment.start + ramp.last
    return Drift(
        first=first,
        last=last,
        first_position=float(cut.positions[first]),
        last_position=float(cut.positions[last]),
        change=ramp.change,
        low=ramp.change - half,
        high=ramp.change + half,
        p_value=cut.p_value(strength),
    )


def _half(deviation: float, degrees: int) -> float:
    """Half of the interval."""
    return quantile(0.5 + CONFIDENCE / 2, max(degrees, 1)) * deviation
