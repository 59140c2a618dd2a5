"""The raw samples of one result: every call of every process, in the order measured."""

from collections.abc import Sequence
from typing import Any

from ..contract.run import SampleBlock
from ..contract.words import Arm
from . import theme

MAX_POINTS = 2000
ARM_COLOURS = {Arm.CONTENDER: "#d97514", Arm.BASELINE: "#2f7fc1", Arm.FLOOR: theme.NEUTRAL}
ARM_SYMBOLS = {Arm.CONTENDER: "circle", Arm.BASELINE: "square", Arm.FLOOR: "line-ew-open"}


def samples(blocks: Sequence[SampleBlock]) -> dict[str, Any]:
    """Time per call by call number: one trace per arm, processes one after the other.

    Above 2,000 samples the least and the greatest of each stretch are drawn: no outlier is lost.
    """
    layout = theme.base_layout("Samples", ("every timed call, processes side by side",), 320)
    layout |= {
        "showlegend": True,
        "legend": {"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0},
        "xaxis": {"title": {"text": "call, in the order measured"}, "zeroline": False},
        "yaxis": {
            "title": {"text": "time per call, ms (lower is better)"},
            "rangemode": "tozero",
            "zeroline": False,
            "automargin": True,
        },
    }
    layout["margin"] |= {"l": 60, "b": 44, "t": 76}
    return {"data": [_trace(arm, blocks) for arm in Arm if _of(arm, blocks)], "layout": layout}


def _of(arm: Arm, blocks: Sequence[SampleBlock]) -> list[tuple[int, float]]:
    return [
        (block.process, value) for block in blocks if block.arm is arm for value in block.latency_ms
    ]


def thinned(points: Sequence[tuple[int, tuple[int, float]]]) -> Sequence[Any]:
    """At most `MAX_POINTS` of them in their order: of each stretch the least and the greatest."""
    if len(points) <= MAX_POINTS:
        return points
    stretch = -(-2 * len(points) // MAX_POINTS)
    kept = []
    for start in range(0, len(points), stretch):
        part = points[start : start + stretch]
        ends = {min(part, key=lambda p: p[1][1]), max(part, key=lambda p: (p[1][1], p[0]))}
        kept += sorted(ends)
    return kept


def _trace(arm: Arm, blocks: Sequence[SampleBlock]) -> dict[str, Any]:
    points = list(enumerate(_of(arm, blocks), start=1))
    kept = thinned(points)
    return {
        "type": "scatter",
        "mode": "markers",
        "name": arm.value,
        "x": [number for number, _ in kept],
        "y": [value for _, (_, value) in kept],
        "marker": {
            "size": 5,
            "color": ARM_COLOURS[arm],
            "symbol": ARM_SYMBOLS[arm],
            "line": {"width": 1.5 if arm is Arm.FLOOR else 0},
        },
        "hovertext": [f"process {process}: {value:.4g} ms" for _, (process, value) in kept],
        "hoverinfo": "text+name",
    }
