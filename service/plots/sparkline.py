"""A small line without axes, as coordinates for an inline SVG: it needs no scripts."""

from collections.abc import Sequence
from typing import NamedTuple

WIDTH, HEIGHT = 96, 34
"""Of the picture, in pixels."""
EDGE = 4


class SparkPoint(NamedTuple):
    """A value with its 95 % interval where it has one."""

    value: float
    low: float | None = None
    high: float | None = None


class Spark(NamedTuple):
    """Coordinates in a box of `WIDTH` by `HEIGHT`; higher values lie higher."""

    line: str
    band: str
    """Empty with fewer than two intervals."""
    last: tuple[float, float]


def spark(points: Sequence[SparkPoint]) -> Spark | None:
    """The line from the first to the last point, from zero up; None with fewer than two."""
    if len(points) < 2:
        return None
    top = max(max(point.value, point.high or 0.0) for point in points) or 1.0
    across = (WIDTH - 2 * EDGE) / (len(points) - 1)

    def at(place: int, value: float) -> tuple[float, float]:
        up = HEIGHT - EDGE - (HEIGHT - 2 * EDGE) * value / top
        return round(EDGE + across * place, 1), round(up, 1)

    line = [at(place, point.value) for place, point in enumerate(points)]
    lows = [at(n, p.low) for n, p in enumerate(points) if p.low is not None]
    highs = [at(n, p.high) for n, p in enumerate(points) if p.high is not None]
    whole = len(lows) == len(highs) > 1
    band = _joined([*lows, *reversed(highs)]) if whole else ""
    return Spark(_joined(line), band, line[-1])


def _joined(places: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:g},{y:g}" for x, y in places)
