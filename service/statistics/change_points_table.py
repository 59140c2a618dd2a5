"""From the strength of a step to its p-value: a table of clean series.

Printed by `python -P tests/benchmarks/detection_calibration.py` (seed 20261130): for each number of
points the strength that 1 % and 0.1 % of clean series reach anywhere, in the worst of three kinds
of noise: independent normal, the same with 1 % outliers, and AR(1) of 0.5. 40,000 series of each
kind, 25,000 of 400 points and 10,000 of 1,000.

In fewer than 100 points a correlation can hardly be told from steps. There ten times as many series
of AR(1) may reach the strength: else 24 % of 2 % steps would be missed in 30 points at a noise of
0.5 %. Ratios to a baseline hardly linger: over processes of an H200 the correlation was -0.05
(2026-11-30).
"""

import math
from bisect import bisect_right

SHARES = (0.01, 0.001)
# fmt: off
TABLE = (
    (10, 3.67, 6.49),
    (12, 3.91, 6.08),
    (15, 4.00, 5.89),
    (20, 3.92, 5.38),
    (25, 3.89, 5.27),
    (30, 3.93, 5.42),
    (40, 3.89, 4.98),
    (60, 3.91, 4.75),
    (100, 4.18, 5.09),
    (200, 4.27, 5.10),
    (400, 4.59, 5.40),
    (1000, 5.00, 5.94),
)
# fmt: on
"""Points; strength reached by a share of 0.01; by 0.001."""
LEAST_POINTS = TABLE[0][0]
"""Fewer points are not enough data."""


def p_value(strength: float, count: int) -> float:
    """Share of clean series of `count` points with a step at least as strong, roughly.

    Between and beyond the table's two shares log p is straight in the log of the strength, as in
    the tail of Student's t: below 0.001 that is an extrapolation, and for long series too large.
    Longer series than the table's follow its last two rows. Raises ValueError for too few points.
    """
    if count < LEAST_POINTS:
        raise ValueError(f"at least {LEAST_POINTS} points are needed, got {count}")
    if strength <= 0.0:
        return 1.0
    often, rare = _row(count)
    slope = math.log(SHARES[1] / SHARES[0]) / math.log(rare / often)
    exponent = math.log(SHARES[1]) + slope * math.log(strength / rare)
    return math.exp(min(exponent, 0.0))


def _row(count: int) -> tuple[float, float]:
    """Both strengths, straight in the log of the number of points."""
    place = min(bisect_right([row[0] for row in TABLE], count), len(TABLE) - 1)
    (low, *of_low), (high, *of_high) = TABLE[place - 1], TABLE[place]
    share = math.log(count / low) / math.log(high / low)
    often, rare = (a + share * (b - a) for a, b in zip(of_low, of_high, strict=True))
    return often, rare
