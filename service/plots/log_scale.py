"""A log axis with a rule on it: what the numbers of several cases are read against."""

import math
from typing import Any, NamedTuple

from . import theme
from .panels import Axes, Stack

TICK_STEPS = (
    (1,), (2, 5), (1.5, 3, 7), (1.2, 4), tuple(n / 20 for n in range(20, 200)),
    tuple(n / 100 for n in range(100, 1000)),
)  # fmt: skip
"""Numbers on the axis, the roundest first."""


class Scale(NamedTuple):
    """What the numbers are: the title of the figure, of the axis, and a rule with its words."""

    title: str
    axis: str
    rule: float
    rule_words: str


FLOOR = Scale(
    "Distance to the floor", "time / floor (lower is better)", 1.0, "the floor: the bare products"
)
ERROR = Scale(
    "Worst error over torch's own",
    "error / torch's own (lower is better)",
    1.0,
    "torch's own error in this dtype",
)


RATIO = Scale(
    "Time of every candidate", "time / time of the base (lower is better)", 1.0, "the base"
)


def log_axis(scale: Scale, low: float, high: float) -> dict[str, Any]:
    """A horizontal axis over these numbers, with room at the right for words."""
    # at least a fifth of an octave, so that equal numbers do not look far apart
    span = max(math.log10(high / low), 0.06)
    left, right = math.log10(low) - 0.06 * span, math.log10(high) + 0.4 * span
    ticks = _ticks(10**left, 10**right)
    return {
        "title": {"text": scale.axis, "standoff": 4},
        "type": "log",
        "range": [left, right],
        "tickmode": "array",
        "tickangle": 0,
        "tickvals": ticks,
        "ticktext": [f"{tick:g}" for tick in ticks],
    }


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers, at most five, far enough apart for a phone."""
    least = 0.22 * math.log10(high / low)
    kept: list[float] = []
    for steps in TICK_STEPS:
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        for tick in (step * 10.0**power for power in powers for step in steps):
            apart = all(abs(math.log10(tick / other)) >= least for other in kept)
            if low <= tick <= high and apart:
                kept.append(tick)
        if len(kept) > 2:
            break
    return sorted(kept)


def draw_rule(stack: Stack, axes: Axes, scale: Scale, rows: int) -> None:
    """The dashed line that numbers are read against."""
    stack.trace(
        axes,
        type="scatter",
        mode="lines",
        name="rule",
        x=[scale.rule, scale.rule],
        y=[-0.5, rows - 0.5],
        line={"color": theme.NEUTRAL, "dash": "dash", "width": 1.5},
        meta=theme.RULE,
        hoverinfo="skip",
    )
