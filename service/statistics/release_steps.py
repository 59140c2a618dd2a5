"""Whether a release is slower or faster than the one before, from one stored result of each.

Each result has the ratio of its times to its baseline's, taken in the same processes, with a 95 %
interval over the processes. The log of the quotient of two ratios has both variances; its t-test
is Welch's (1947), with the degrees of freedom of Satterthwaite (1946). Few processes, as usual in a
nightly run, give few degrees of freedom: this finds candidates, and a comparison head to head
decides.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from .multiple_tests import FALSE_SHARE, adjusted_p_values
from .student_t import quantile, upper_tail
from .verdict import PRACTICAL_LINE

_WIDTH = 0.975


@dataclass(frozen=True)
class MeasuredRatio:
    """Time over the baseline's, its 95 % interval, and the processes it is over."""

    value: float
    low: float
    high: float
    processes: int

    @property
    def degrees(self) -> int:
        """Degrees of freedom of its interval."""
        return self.processes - 1

    @property
    def standard_error(self) -> float:
        """Of its log. Raises ValueError for fewer than two processes or bounds out of order."""
        if self.degrees < 1 or not 0.0 < self.low <= self.value <= self.high < math.inf:
            raise ValueError(f"no ratio with an interval over processes: {self}")
        return math.log(self.high / self.low) / 2.0 / quantile(_WIDTH, self.degrees)


@dataclass(frozen=True)
class Step:
    """From one ratio to the next: log of the quotient with its 95 % interval and p-value."""

    change: float
    low: float
    high: float
    p_value: float

    @property
    def ratio(self) -> float:
        """After over before: above 1 is slower."""
        return math.exp(self.change)


def step_between(before: MeasuredRatio, after: MeasuredRatio) -> Step:
    """The step from one release to the next. Raises ValueError as `standard_error` does."""
    change = math.log(after.value / before.value)
    parts = [(each.standard_error**2, each.degrees) for each in (before, after)]
    variance = sum(part for part, _ in parts)
    if variance == 0.0:
        return Step(change, change, change, 0.0 if change else 1.0)
    degrees = variance**2 / sum(part**2 / freedom for part, freedom in parts)
    error = math.sqrt(variance)
    half = quantile(_WIDTH, degrees) * error
    p_value = 2.0 * upper_tail(abs(change) / error, degrees)
    return Step(change, change - half, change + half, min(1.0, p_value))


def candidates_among(
    steps: Sequence[Step], false_share: float = FALSE_SHARE, least_change: float = PRACTICAL_LINE
) -> list[tuple[bool, float]]:
    """For each step of a batch: whether it is a candidate, and its adjusted p-value.

    A candidate is larger than `least_change`, in log ratio, and its p-value stands among all of the
    batch (Benjamini and Hochberg).
    """
    adjusted = adjusted_p_values([step.p_value for step in steps])
    return [
        (value <= false_share and abs(step.change) > least_change, value)
        for step, value in zip(steps, adjusted, strict=True)
    ]


def p_value_of(log_ratios: Sequence[float]) -> float:
    """Two-sided t-test that the mean over processes is 0; 1 for fewer than two processes."""
    count = len(log_ratios)
    if count < 2:
        return 1.0
    mean = math.fsum(log_ratios) / count
    variance = math.fsum((value - mean) ** 2 for value in log_ratios) / (count - 1)
    if variance == 0.0:
        return 0.0 if mean else 1.0
    return min(1.0, 2.0 * upper_tail(abs(mean) / math.sqrt(variance / count), count - 1))
