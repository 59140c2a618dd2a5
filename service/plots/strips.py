"""Times of every process as boxes on one scale, for an inline SVG: they need no scripts."""

import statistics
from collections.abc import Sequence
from typing import NamedTuple

from ..contract.run import SampleBlock
from ..contract.words import Arm

WIDTH, ROW = 320, 18
"""Of the picture and of one process, in pixels."""
EDGE = 6


class Box(NamedTuple):
    """One process of one side, in ms, and where its marks lie across the picture, in pixels."""

    side: str
    process: int
    samples: int
    low: float
    q1: float
    median: float
    q3: float
    high: float
    across: tuple[float, float, float, float, float]


def boxes(sides: Sequence[tuple[str, Sequence[SampleBlock]]]) -> list[Box]:
    """A box for each process of each side: the ends, the middle half and the median.

    All lie on one linear scale from the fastest to the slowest call.
    """
    found = [
        (side, block)
        for side, blocks in sides
        for block in blocks
        if block.arm is Arm.CONTENDER and block.latency_ms
    ]
    if not found:
        return []
    first = min(min(block.latency_ms) for _, block in found)
    last = max(max(block.latency_ms) for _, block in found)
    span = (last - first) or 1.0

    def at(value: float) -> float:
        return round(EDGE + (WIDTH - 2 * EDGE) * (value - first) / span, 1)

    made = []
    for side, block in found:
        times = sorted(block.latency_ms)
        quarters = statistics.quantiles(times, n=4) if len(times) > 1 else [times[0]] * 3
        q1, median, q3 = quarters
        low, high = times[0], times[-1]
        places = (at(low), at(q1), at(median), at(q3), at(high))
        made.append(Box(side, block.process, len(times), low, q1, median, q3, high, across=places))
    return made
