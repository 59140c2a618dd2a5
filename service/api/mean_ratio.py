"""Geometric mean of the ratios of many pairs of results, in arrays: a page compares thousands."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..store.comparisons import HeadToHead
from ..store.result_pages import BriefRun

Pair = tuple[BriefRun, BriefRun, HeadToHead | None]
"""Base, candidate, and their newest comparison head to head."""
Triple = tuple[float | None, float | None, float | None]


class Ratio(NamedTuple):
    """A ratio of times with its 95 % interval. Plain: a comparison makes tens of thousands."""

    value: float
    low: float | None = None
    high: float | None = None


def mean_of_pairs(pairs: Sequence[Pair]) -> tuple[int, Ratio | None]:
    """How many pairs have a ratio, and their geometric mean; bounds only where every one has some.

    The ratio of a pair is that of `ratio_of`: measured head to head, else that of the two ratios to
    the baseline that they share.
    """
    # a pair measured head to head needs no baseline: its ratio stands against 1
    over = _logs([_over(pair) for pair in pairs])
    under = _logs([_under(pair) for pair in pairs])
    values = over[0] - under[0]
    widths = np.hypot(over[1], under[1])
    known = np.isfinite(values)
    count = int(known.sum())
    if not count:
        return 0, None
    mean = float(values[known].mean())
    if not np.isfinite(widths[known]).all():
        return count, Ratio(math.exp(mean))
    half = float(np.sqrt(np.square(widths[known]).sum())) / count
    return count, Ratio(math.exp(mean), math.exp(mean - half), math.exp(mean + half))


_ONE: Triple = (1.0, 1.0, 1.0)
_NONE: Triple = (None, None, None)


def _over(pair: Pair) -> Triple:
    base, candidate, meeting = pair
    if meeting is not None:
        return meeting.ratio, meeting.ratio_low, meeting.ratio_high
    if base.baseline != candidate.baseline or base.protocol_version != candidate.protocol_version:
        return _NONE
    return _to_baseline(candidate)


def _under(pair: Pair) -> Triple:
    return _ONE if pair[2] is not None else _to_baseline(pair[0])


def _to_baseline(run: BriefRun) -> Triple:
    if run.contender == run.baseline:
        return _ONE
    return run.ratio, run.ratio_low, run.ratio_high


def _logs(triples: Sequence[Triple]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Logs of the values and half-widths of their intervals; NaN where there is none."""
    table = np.array(triples, dtype=np.float64).reshape(-1, 3)
    with np.errstate(invalid="ignore", divide="ignore"):
        logs = np.log(np.where(table > 0.0, table, np.nan))
    return logs[:, 0], (logs[:, 2] - logs[:, 1]) / 2.0
