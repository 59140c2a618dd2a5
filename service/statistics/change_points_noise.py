"""Noise of a series of measurements: its outliers, its deviation, and how it lingers.

The model: levels that step, plus noise with correlation `r` from point to point (AR(1)), plus rare
outliers. Deviation and correlation come twice: from differences of neighbours, which steps hardly
touch, before the levels are known; and from what is left around the levels.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]

WINDOW = 5
OUTLIER_CLIP = 2.5
"""A point is moved to at most this many deviations from the median of its window."""
MOST_OUTLIERS = 0.07
"""Largest share of the points that are moved: more are no outliers but a second mode.

In 100 points of two modes 2 % apart, the rarer in 30, 20 or 10 of 100, the detector told a change
in 245, 236 and 41 of 1,000 clean series without this limit, in 1, 4 and 16 with it; in the other
kinds of noise nothing changed (2026-12-01)."""
_MAD_TO_SD = 2.04
"""For distances to the median of five, itself included (1,000,000 normal draws)."""
_MOST_CORRELATION = 0.9
CORRELATION_MARGIN = 1.2
"""The correlation is counted as this many times the estimate.

An estimate from 100 points has a deviation of 0.1, and steps that noise imitates look best where it
is too small. Of 1.0, 1.2 and 1.4, at thresholds for one false alarm in 1,000 series (5.2, 4.9, 4.7;
100 points, the worst of three kinds of noise): steps of 4 deviations found 3 points after: 90, 95,
96 %; in noise of correlation 0.5, anywhere: 97, 89, 71 % (6,000 clean series, 400 steps,
2026-11-30)."""


class Noise(NamedTuple):
    """Deviation of one point in the values' unit, and correlation of two neighbours (>= 0)."""

    deviation: float
    correlation: float


def without_outliers(values: Floats) -> Floats:
    """Values with outliers moved towards the median of the five points around (Hampel's filter).

    A step stays where it is when three points follow it, also at the end of the series: three of a
    window's five decide. Of two modes, as an autotuner's lottery makes, the rarer is not moved:
    three of it in a row would look like a step in noise that has become too small. At least five
    values.
    """
    starts = np.clip(np.arange(len(values)) - WINDOW // 2, 0, len(values) - WINDOW)
    middle = np.sort(values[starts[:, None] + np.arange(WINDOW)], axis=1)[:, WINDOW // 2]
    distance = values - middle
    far = np.abs(distance)
    usual = OUTLIER_CLIP * _MAD_TO_SD * float(np.median(far))
    most = max(usual, float(np.quantile(far, 1.0 - MOST_OUTLIERS)))
    return np.asarray(middle + np.clip(distance, -most, most))


def resolution(values: Floats) -> float:
    """The smallest deviation that is taken for real: a billionth of the values' range."""
    return 1e-9 * float(np.ptp(values))


def at_least(floor: float, noise: Noise) -> Noise:
    """The noise, of deviation `floor` where it has less: so that exact series divide by no zero."""
    return Noise(max(noise.deviation, floor), noise.correlation)


def from_differences(values: Floats) -> Noise:
    """Noise from neighbours one and two apart: var(x[i+2] - x[i]) / var(x[i+1] - x[i]) = 1 + r."""
    near = _deviation(np.abs(values[1:] - values[:-1]))
    if near == 0.0:
        return Noise(0.0, 0.0)
    far = _deviation(np.abs(values[2:] - values[:-2]))
    correlation = min(max((far / near) ** 2 - 1.0, 0.0), 0.8)
    return Noise(near / float(np.sqrt(2.0 * (1.0 - correlation))), correlation)


def _deviation(distances: Floats) -> float:
    """Root mean square with the largest clipped at 3 deviations; 0.99 is what clipping takes."""
    centre = float(np.median(distances)) / 0.6745
    if centre == 0.0:
        return float(np.sqrt(np.mean(distances**2)))
    return float(np.sqrt(np.mean(np.minimum(distances, 3.0 * centre) ** 2) / 0.99))


def around_levels(values: Floats, edges: Whole, of_differences: float) -> Noise:
    """Noise around the means of the segments between `edges` (0, ..., n).

    Both numbers are corrected for what the fitted means take away (Kendall 1954 for the
    correlation). The correlation is at least half way to the one `of_differences`, and carries
    `CORRELATION_MARGIN`.
    """
    lengths = np.diff(edges)
    sums = np.concatenate([[0.0], np.cumsum(values)])
    rest = values - np.repeat(np.diff(sums[edges]) / lengths, lengths)
    squares = float(rest @ rest)
    if squares == 0.0:
        return Noise(0.0, 0.0)
    products = rest[1:] * rest[:-1]
    first = (float(products.sum()) - float(products[edges[1:-1] - 1].sum())) / squares
    first += (1.0 + 3.0 * first) * len(lengths) / len(values)
    # levels that follow the noise hide its correlation; differences do not see levels
    known = max(first, (first + of_differences) / 2.0, 0.0)
    correlation = min(known * CORRELATION_MARGIN, _MOST_CORRELATION)
    taken = float((variance_of_sum(lengths, correlation) / lengths).sum())
    return Noise(float(np.sqrt(squares / max(len(values) - taken, 1.0))), correlation)


def variance_of_sum(count: Whole, correlation: float) -> Floats:
    """Variance of the sum of `count` neighbours of deviation 1: n + 2 sum (n - j) r^j."""
    n = np.asarray(count, dtype=np.float64)
    if correlation <= 0.0:
        return n
    rest = 1.0 - correlation
    return np.asarray(
        n * (1.0 + correlation) / rest - 2.0 * correlation * (1.0 - correlation**n) / rest**2
    )


def variance_of_step(left: Whole, right: Whole, correlation: float) -> Floats:
    """Variance of the difference of two neighbouring means over `left` and `right` points."""
    of_left, of_right = variance_of_sum(left, correlation), variance_of_sum(right, correlation)
    common = (variance_of_sum(left + right, correlation) - of_left - of_right) / 2.0
    return of_left / left**2 + of_right / right**2 - 2.0 * common / (left * right)
