"""Gradual drift: steps of one direction that a straight ramp explains better.

A ramp is a level, a straight way to another level, and that level: four numbers, the two corners
included. K steps are 2 K + 1 numbers. The ramp is told where its BIC (Schwarz 1978) is lower, than
that of a single step by `LEAST_BIC`; points that linger count for less. A drift that no step shows
has a test of its own.
"""

import math
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from .change_points_noise import (
    Floats,
    Noise,
    Whole,
    around_levels,
    at_least,
    from_differences,
    resolution,
    without_outliers,
)
from .change_points_search import Levels, fewer_and_fewer

LEAST_DRIFT = 8
"""Points from corner to corner; a shorter ramp is a step that noise has blurred."""
LEAST_BIC = 10.0
"""Very strong evidence (Kass and Raftery 1995). With 0, noise blurs 5 in 1,000 steps of four
deviations to ramps (1,500 series, 2026-11-30); a drift as large leaves no doubt."""
LEAST_FOR_SLOW_DRIFT = 30
"""Points. In 20, noise that lingers (0.5) looks like a slow drift of strength 8.6 in 1 of 1,000
series, above the 7.0 of steps, and would raise the threshold for steps too (2026-11-30)."""
_CORNERS = 13
_RAMP_NUMBERS = 4


class Ramp(NamedTuple):
    """A drift in place of the steps `steps` (places among the inner edges)."""

    steps: range
    first: int
    """Index of the last point before the way begins, and of the first point of the new level."""
    last: int
    change: float
    deviation: float
    """Standard error of the change, for these corners."""

    @property
    def strength(self) -> float:
        """The change over its deviation."""
        return abs(self.change) / self.deviation


def find_ramps(levels: Levels) -> list[Ramp]:
    """Drifts among the steps of `levels`, in order; steps in none of them stay steps."""
    found = (_ramp(levels, run) for run in _runs(np.sign(np.diff(levels.means()))))
    return [ramp for ramp in found if ramp is not None]


def _runs(signs: Floats) -> list[range]:
    """Neighbouring steps of one direction."""
    turns = [0, *(int(i) + 1 for i in np.flatnonzero(np.diff(signs))), len(signs)]
    return [range(*pair) for pair in pairwise(turns)]


def find_slow_drift(values: Floats) -> tuple[Ramp, Noise] | None:
    """The ramp that fits a whole series best, with the noise around it.

    For a series in which no step is sure: a slow drift looks like noise that lingers to the search
    for steps. None for fewer than `LEAST_FOR_SLOW_DRIFT` points, or equal ones.
    """
    floor = resolution(values)
    if len(values) < LEAST_FOR_SLOW_DRIFT or floor == 0.0:
        return None
    clean = without_outliers(values)
    fit = _fitted(clean)
    edges = np.array([0, len(clean)])
    noise = at_least(floor, around_levels(fit.rest, edges, from_differences(clean).correlation))
    return _as_ramp(fit, range(0), 0, noise), noise


def strongest(values: Floats) -> float:
    """The highest threshold at which a series still has a step or a drift: for calibration."""
    slow = find_slow_drift(values)
    steps = (float(levels.strengths.min()) for levels in fewer_and_fewer(values))
    return max([0.0 if slow is None else slow[0].strength, *steps])


def _ramp(levels: Levels, run: range) -> Ramp | None:
    edges = levels.edges[run.start : run.stop + 2]
    start = int(edges[0])
    values = levels.values[start : int(edges[-1])]
    if len(values) <= LEAST_DRIFT:
        return None
    fit = _fitted(values)
    means = np.repeat(levels.means()[run.start : run.stop + 1], np.diff(edges))
    count = len(values) / _inflation(levels.noise)
    least = levels.noise.deviation**2 * 1e-6
    of_steps, of_ramp = (float(rest @ rest) for rest in (values - means, fit.rest))
    gain = count * math.log(max(of_steps, least) / max(of_ramp, least))
    more = (_RAMP_NUMBERS - (2 * len(run) + 1)) * math.log(max(count, 2.0))
    if gain <= more + (LEAST_BIC if len(run) == 1 else 0.0):
        return None
    return _as_ramp(fit, run, start, levels.noise)


class _Fit(NamedTuple):
    first: int
    last: int
    change: float
    weight: float
    """Sum of squares of the ramp from 0 to 1 around its mean."""
    rest: Floats


def _fitted(values: Floats) -> _Fit:
    """The ramp of least squares, by trying corners on a grid."""
    count = len(values)
    centred = values - values.mean()
    first, last = _corners(count)
    ones = np.ones(count)
    # centred values sum to 0, so the ramp's mean need not be taken off here
    changes = _along(centred, first, last)
    means = _along(ones, first, last) / count
    # a ramp's squares: those of its way, and 1 for each point behind
    steps = last - first
    squares = (steps + 1) * (2 * steps + 1) / (6 * steps) + (count - 1 - last)
    weights = squares - count * means**2
    best = int((changes**2 / weights).argmax())
    change = float(changes[best] / weights[best])
    shape = np.clip((np.arange(count) - first[best]) / steps[best], 0.0, 1.0) - means[best]
    rest = centred - change * shape
    return _Fit(int(first[best]), int(last[best]), change, float(weights[best]), rest)


def _along(values: Floats, first: Whole, last: Whole) -> Floats:
    """Sum of the values times each ramp from 0 at `first` to 1 at `last`."""
    sums = np.cumsum(values)
    moments = np.cumsum(np.arange(len(values)) * values)
    on_way = moments[last] - moments[first] - first * (sums[last] - sums[first])
    return np.asarray(on_way / (last - first) + sums[-1] - sums[last])


def _inflation(noise: Noise) -> float:
    """How much larger lingering makes the variance of a mean over many points."""
    return (1.0 + noise.correlation) / (1.0 - noise.correlation)


def _as_ramp(fit: _Fit, steps: range, start: int, noise: Noise) -> Ramp:
    deviation = noise.deviation * math.sqrt(_inflation(noise) / fit.weight)
    return Ramp(steps, start + fit.first, start + fit.last, fit.change, deviation)


def _corners(count: int) -> tuple[Whole, Whole]:
    """Pairs of corners on a grid over more than `LEAST_DRIFT` points."""
    grid = np.unique(np.round(np.linspace(0, count - 1, _CORNERS)).astype(np.int64))
    first, last = np.meshgrid(grid, grid, indexing="ij")
    apart = last - first >= LEAST_DRIFT
    return first[apart], last[apart]
