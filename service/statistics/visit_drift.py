"""Whether an arm's time drifts from visit to visit within its processes.

Test: Kendall's S of visit number and median, summed over processes (Mann 1945; summed as by Hirsch,
Slack and Smith, 1982). Where visits have no order, every permutation is as likely, so the
distribution is exact whatever the noise: that of inversions of a permutation, convolved over
processes. A device that drifts up in one process and down in the next does not add up here: it
makes ratios spread, and the interval wider.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

FALSE_RATE = 0.003
"""At most this share of steady measurements is flagged. One process of six visits can just reach
it, if its medians rise (or fall) without exception: 2 of 720 orders do."""
LEAST_CHANGE = math.log(1.01)
"""Smaller drifts are certain on a quiet device, and without interest."""


class Drift(NamedTuple):
    """A trend of an arm's visit medians."""

    change: float
    """Log ratio of the last visit to the first along the trend, median over processes."""
    p_value: float


def find_drift(visit_medians_ms: Sequence[Sequence[float]]) -> Drift | None:
    """The trend of one arm's visit medians within its processes, or None where there is none.

    One sequence per process, medians in ms in the order of the visits. Raises ValueError for times
    that are not positive and finite.
    """
    processes = [_logarithms(medians) for medians in visit_medians_ms if len(medians) > 1]
    if not processes:
        return None
    change = float(np.median([_trend(logs) for logs in processes]))
    score = abs(sum(_score(logs) for logs in processes))
    chances = np.ones(1)
    for logs in processes:
        chances = np.convolve(chances, _chances(len(logs)))
    # position i of `chances` is S = i - (length - 1) / 2, in steps of two
    scores = 2 * np.arange(len(chances)) - (len(chances) - 1)
    p_value = min(1.0, float(chances[np.abs(scores) >= score].sum()))
    found = p_value <= FALSE_RATE and abs(change) > LEAST_CHANGE
    return Drift(change, p_value) if found else None


def _logarithms(medians_ms: Sequence[float]) -> NDArray[np.float64]:
    if not all(0.0 < median < math.inf for median in medians_ms):
        raise ValueError(f"medians must be positive and finite, got {list(medians_ms)}")
    return np.log(np.asarray(medians_ms, dtype=np.float64))


def _score(logs: NDArray[np.float64]) -> int:
    """Kendall's S: pairs of visits that rise less those that fall; ties count for neither."""
    return int(np.triu(np.sign(logs[None, :] - logs[:, None]), 1).sum())


def _trend(logs: NDArray[np.float64]) -> float:
    """Change from first to last visit: Theil and Sen's slope over all visits."""
    first, second = np.triu_indices(len(logs), 1)
    slope = float(np.median((logs[second] - logs[first]) / (second - first)))
    return slope * (len(logs) - 1)


@lru_cache(maxsize=64)
def _chances(visits: int) -> NDArray[np.float64]:
    """Share of orders of `visits` with 0, 1, 2 ... inversions (Knuth 3, section 5.1.1)."""
    chances = np.ones(1)
    for place in range(2, visits + 1):
        chances = np.convolve(chances, np.full(place, 1.0 / place))
    return chances
