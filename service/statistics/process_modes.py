"""Whether processes fall into two groups, as a lottery of autotuned configurations leaves them.

Statistic: the largest ratio of the sum of squares between to that within two groups, over all cuts
of the sorted values with at least two on either side (Engelman and Hartigan, Percentage points of
a test for clusters, 1969). It does not depend on place or scale, so its 99.7 % points for one
normal group depend on the number of processes only. Two on either side, because one process that
was disturbed is no mode: so heavy tails (Student's t with 3 degrees) flag as rarely as normals.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .verdict import PRACTICAL_LINE

FALSE_RATE = 0.003
"""At most this share of comparisons without modes is flagged; fewer where spread is small, since
modes nearer than the practical line are not called modes."""
LEAST_PROCESSES = 6
LEAST_IN_A_MODE = 2
# fmt: off
CRITICAL = (
    55.01, 32.42, 22.10, 16.89, 13.69, 11.59, 10.15, 9.120, 8.305, 7.671,
    7.141, 6.730, 6.383, 6.058, 5.813, 5.587, 5.393, 5.212, 5.059,
)
# fmt: on
"""For 6 to 24 processes: from 3,000,000 samples of a normal each, standard error below 0.6 %
(numpy's PCG64, seed 20261201). More processes use the last, which is then too strict."""


class Modes(NamedTuple):
    """Two groups of processes."""

    gap: float
    """Distance of the groups' means, in the values' unit: a log ratio."""
    lower: int
    """Processes in the group of smaller values."""
    upper: int
    strength: float
    """Sum of squares between the groups over that within them."""


def find_two_modes(log_values: Sequence[float]) -> Modes | None:
    """The two groups into which one logarithm per process falls, or None where it does not.

    For log ratios to a base that draws no lot itself, or logs of the medians of one arm: where both
    sides of a ratio draw, it has three modes, which this does not look for. None for fewer than six
    processes. Raises ValueError for values that are not finite.
    """
    values = np.sort(np.asarray(log_values, dtype=np.float64))
    if not bool(np.all(np.isfinite(values))):
        raise ValueError(f"values must be finite, got {list(log_values)}")
    if len(values) < LEAST_PROCESSES:
        return None
    found = max(
        (_split(values.tolist(), cut) for cut in _cuts(len(values))), key=lambda m: m.strength
    )
    critical = CRITICAL[min(len(values) - LEAST_PROCESSES, len(CRITICAL) - 1)]
    return found if found.strength > critical and found.gap > PRACTICAL_LINE else None


def _cuts(processes: int) -> range:
    return range(LEAST_IN_A_MODE, processes - LEAST_IN_A_MODE + 1)


def _split(values: Sequence[float], cut: int) -> Modes:
    lower, upper = np.asarray(values[:cut]), np.asarray(values[cut:])
    gap = float(upper.mean() - lower.mean())
    between = gap**2 * len(lower) * len(upper) / len(values)
    within = float(((lower - lower.mean()) ** 2).sum() + ((upper - upper.mean()) ** 2).sum())
    strength = between / within if within > 0 else math.inf if between > 0 else 0.0
    return Modes(gap, len(lower), len(upper), strength)
