"""The verdict on a comparison: slower, faster, no difference, or not known yet.

Input is one log ratio of times per process (`summary.visit_log_ratio`), contender over base, so
that more than 0 is slower. The process is the unit of replication. Rules, in this order
(docs/measuring.md):

1. `slower` / `faster`: the mean lies beyond the practical line, and its interval at ALPHA excludes
   0. Looks at P = 3, 8, 12, 16, 20, 24 may each end the series: six looks of 0.0002 are a false
   verdict in at most 0.12 % of comparisons of the same code, if processes are independent.
2. `no_difference`: the 95 % interval lies inside 1/1.01 to 1.01.
3. `inconclusive`: more processes are needed, and `next_look` says how many.

How often each verdict is wrong is simulated in tests/simulation, for five kinds of noise.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..contract.words import Verdict
from .student_t import quantile

LOOKS = (3, 8, 12, 16, 20, 24)
"""Numbers of processes at which a series may end."""
ALPHA = 0.0002
"""Two-sided error of one look."""
PRACTICAL_LINE = math.log(1.005)
"""Smaller differences are never called, however certain."""
SAME_WITHIN = math.log(1.01)
LEAST_DEVIATION = 0.002
"""A smaller standard deviation over processes counts as this one, in rule 1 only.

Three processes can agree by luck. Where each side draws one of two autotuned configurations 2 %
apart, all three draws are alike in 1 of 32 comparisons of the same code, and 0.15 to 2 % of all
were called different (4 % apart: 0.3 to 3 %; simulated, noise 0.4 to 0.05 % beside); with this
least deviation 0.1 %. Nothing below eight processes helps against choices 8 % apart or more.
0.2 % is the largest value that costs nothing from eight processes on, where it asks for a mean of
0.5 %, the practical line; at three it asks for 8.5 %.
"""
CONFIDENCE = 0.95
POWER = 0.9
LARGEST_LOG_RATIO = 20.0
"""A ratio of 5e8: beyond it the input is no ratio of times."""
_DEVIATION_STEPS = 241
_HALVINGS = 26
_NO_DEVIATION = LEAST_DEVIATION / 1000


class Decision(NamedTuple):
    """A verdict with what it rests on."""

    verdict: Verdict
    ratio: float | None
    """Contender's time over the base's, geometric mean over processes; None of no process."""
    low: float | None
    high: float | None
    """95 % interval of the ratio by t over processes; None for fewer than two."""
    minimum_detectable_effect: float | None
    """True slowdown, as a fraction (0.01 is 1 %), that POWER of such comparisons would find."""
    processes: int
    look: int
    """How many of LOOKS these processes reach: 0 below three, at most six."""
    reason: str | None
    """Why the verdict is inconclusive; None where it is not."""


def decide(log_ratios: Sequence[float]) -> Decision:
    """Verdict on one log ratio of times per process (or per pair of processes).

    Raises ValueError for a value that is not finite or beyond LARGEST_LOG_RATIO.
    """
    values = np.asarray(log_ratios, dtype=np.float64)
    if not bool(np.all(np.abs(values) <= LARGEST_LOG_RATIO)):
        raise ValueError(f"log ratios must be finite and within 20 of 0, got {list(log_ratios)}")
    processes = len(values)
    look = sum(reached <= processes for reached in LOOKS)
    if processes < LOOKS[0]:
        return _too_few(values)
    mean, deviation = float(values.mean()), float(values.std(ddof=1))
    half_width = quantile(0.5 + CONFIDENCE / 2, processes - 1) * deviation / math.sqrt(processes)
    line = decision_line(deviation, processes)
    verdict, reason = Verdict.INCONCLUSIVE, None
    if abs(mean) > line:
        verdict = Verdict.SLOWER if mean > 0 else Verdict.FASTER
    elif abs(mean) + half_width < SAME_WITHIN:
        verdict = Verdict.NO_DIFFERENCE
    else:
        reason = (
            f"{processes} processes of this spread show a difference from {_fraction(line):.1%} "
            "on; this one is smaller, and its 95 % interval reaches beyond 1 %"
        )
    return Decision(
        verdict=verdict,
        ratio=math.exp(mean),
        low=math.exp(mean - half_width),
        high=math.exp(mean + half_width),
        minimum_detectable_effect=minimum_detectable_effect(deviation, processes),
        processes=processes,
        look=look,
        reason=reason,
    )


def _too_few(values: NDArray[np.float64]) -> Decision:
    """No verdict below three processes; two still have an interval, as a result page shows it."""
    mean = float(values.mean()) if len(values) else math.nan
    low = high = None
    if len(values) == 2:
        half_width = quantile(0.5 + CONFIDENCE / 2, 1) * float(values.std(ddof=1)) / math.sqrt(2)
        low, high = math.exp(mean - half_width), math.exp(mean + half_width)
    word = "process" if len(values) == 1 else "processes"
    return Decision(
        verdict=Verdict.INCONCLUSIVE,
        ratio=math.exp(mean) if len(values) else None,
        low=low,
        high=high,
        minimum_detectable_effect=None,
        processes=len(values),
        look=0,
        reason=f"{len(values)} {word}: a verdict needs {LOOKS[0]}",
    )


def next_look(processes: int) -> int | None:
    """Processes at the next look of a series that has `processes`; None after the last."""
    return next((reached for reached in LOOKS if reached > processes), None)


def decision_line(deviation: float, processes: int) -> float:
    """|mean log ratio| above which it is called slower or faster, at this standard deviation.

    Raises ValueError for a deviation that is not at least 0, or fewer than two processes.
    """
    if not 0.0 <= deviation < math.inf or processes < 2:
        raise ValueError(f"deviation {deviation} over {processes} processes says nothing")
    counted = max(deviation, LEAST_DEVIATION)
    least = quantile(1.0 - ALPHA / 2, processes - 1) * counted / math.sqrt(processes)
    return max(PRACTICAL_LINE, least)


def minimum_detectable_effect(deviation: float, processes: int) -> float:
    """True slowdown, as a fraction, that POWER of comparisons with `processes` call slower.

    `deviation` is taken for the true one of the log ratios. A comparison sees another, with
    (P - 1) seen^2 / deviation^2 chi-squared, so its power is
    E[Phi((effect - decision_line(seen)) sqrt(P) / deviation)]: the noncentral t's, but for the
    practical line and the least deviation. Always above the practical line. Raises ValueError as
    `decision_line` does.
    """
    line = decision_line(deviation, processes)
    if deviation < _NO_DEVIATION:
        return _fraction(line)
    error = deviation / math.sqrt(processes)
    seen, weights = _seen_deviations(processes - 1)
    t = quantile(1.0 - ALPHA / 2, processes - 1)
    bars = np.maximum(decision_line(0.0, processes) / error, t * seen).tolist()
    low, high = 0.0, max(bars) + 2.0
    for _ in range(_HALVINGS):
        effect = 0.5 * (low + high)
        missed = sum(
            weight * 0.5 * math.erfc((effect - bar) / math.sqrt(2.0))
            for weight, bar in zip(weights, bars, strict=True)
        )
        low, high = (low, effect) if missed < 1.0 - POWER else (effect, high)
    return _fraction(high * error)


def _fraction(log_ratio: float) -> float:
    """The change that a log ratio stands for, 0.01 for 1 %; none is shown beyond the largest."""
    return math.expm1(min(log_ratio, LARGEST_LOG_RATIO))


@lru_cache(maxsize=128)
def _seen_deviations(degrees: int) -> tuple[NDArray[np.float64], tuple[float, ...]]:
    """Standard deviations that samples of a normal of deviation 1 show, with their weights."""
    width = 10.0 / math.sqrt(2.0 * degrees)
    seen = np.linspace(max(0.0, 1.0 - width), 1.0 + width, _DEVIATION_STEPS)[1:-1]
    log_density = (degrees - 1) * np.log(seen) - degrees * seen**2 / 2
    density = np.exp(log_density - log_density.max())
    return seen, tuple((density / density.sum()).tolist())
