"""A comparison as bars to the left (less time) and to the right (more), sorted by ratio."""

import html
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..contract.words import Pass
from . import text, theme
from .case_labels import case_labels
from .panels import Axes, Stack
from .shape_map import FASTER, SLOWER

MOST_BARS = 60
"""Bars of one figure: the most changed at either end; the table has the rest."""
WAY_COLOURS = {"faster": FASTER, "slower": SLOWER}
WAY_SIGNS = {"faster": "▼", "slower": "▲"}
PASS_SIGNS = {Pass.FORWARD: "fwd", Pass.BACKWARD: "bwd", Pass.FORWARD_BACKWARD: "fwd+bwd"}
"""Passes in the label of a bar, where there is no room for words."""
LEAST_SPAN = 0.05
"""log2 of the ratio that half of the axis holds at least, so that noise does not fill it."""


class Bar(NamedTuple):
    """One case of a comparison. `way` is what its verdict or its interval says; empty: nothing."""

    label: str
    ratio: float
    low: float | None
    high: float | None
    way: str
    exact: bool
    """Whether the candidate's error counts."""


def diverging(
    bars: Sequence[Bar], base: str, candidate: str, without: int = 0, where: str = ""
) -> dict[str, Any]:
    """Horizontal bars on a log axis around 1; whiskers are 95 % intervals.

    `without`: cases that have no ratio, which a note counts. `where`: a device, said in a note.
    """
    ordered = sorted(bars, key=lambda bar: (bar.ratio, bar.label))
    half = MOST_BARS // 2
    shown = ordered if len(ordered) <= MOST_BARS else [*ordered[:half], *ordered[-half:]]
    notes = [f"on {html.escape(where)}"] if where else []
    notes.append("▼ less, ▲ more time than the base · whiskers: 95 %")
    if len(shown) < len(ordered):
        notes.append(f"the {len(shown)} most changed of {len(ordered)} cases")
    if without:
        notes.append(f"{text.plural(without, 'case')} without a ratio not drawn")
    stack = Stack(f"{html.escape(candidate)} against {html.escape(base)}", notes)
    if not shown:
        return stack.figure()
    span = max(LEAST_SPAN, *(abs(math.log2(end)) for bar in shown for end in _ends(bar))) * 1.35
    cases = case_labels([bar.label for bar in shown])
    heading = f"each bar: one case, {cases.shared}".rstrip(", ")
    axes = stack.add(heading, cases.lines, _ratio_axis(span))
    _bars(stack, axes, shown)
    stack.trace(
        axes,
        type="scatter",
        mode="text",
        name="words",
        x=[_beside(bar) for bar in shown],
        y=list(range(len(shown))),
        text=[f" {_words(bar)} " for bar in shown],
        # in the half that the bar leaves free, where there is room on a phone too
        textposition=["middle left" if bar.ratio >= 1 else "middle right" for bar in shown],
        textfont={"size": theme.SMALL_FONT_SIZE},
        hoverinfo="skip",
        cliponaxis=False,
    )
    return stack.figure()


def _ratio_axis(span: float) -> dict[str, Any]:
    ticks = _ticks(span)
    return {
        "title": {"text": "time / time of the base, log scale", "standoff": 4},
        "range": [-span, span],
        "tickmode": "array",
        "tickvals": [math.log2(tick) for tick in ticks],
        "tickangle": 0,
        "ticktext": [f"{tick:g}×" for tick in ticks],
    }


def _bars(stack: Stack, axes: Axes, shown: Sequence[Bar]) -> None:
    stack.trace(
        axes,
        type="bar",
        orientation="h",
        name="ratio",
        x=[math.log2(bar.ratio) for bar in shown],
        y=list(range(len(shown))),
        marker={"color": [WAY_COLOURS.get(bar.way, theme.NEUTRAL) for bar in shown]},
        error_x={
            "type": "data",
            "symmetric": False,
            "array": [math.log2(bar.high / bar.ratio) if bar.high else 0.0 for bar in shown],
            "arrayminus": [math.log2(bar.ratio / bar.low) if bar.low else 0.0 for bar in shown],
            "color": theme.NEUTRAL,
            "thickness": 1.5,
            "width": 3,
        },
        hovertext=[_hover(bar) for bar in shown],
        hoverinfo="text",
    )


def _beside(bar: Bar) -> float:
    """Where the words of a bar start: at 1, or behind a whisker that crosses it."""
    logs = [math.log2(end) for end in _ends(bar)]
    return min(0.0, *logs[1:]) if bar.ratio >= 1 else max(0.0, *logs[1:])


def _ends(bar: Bar) -> tuple[float, ...]:
    return bar.ratio, bar.low or bar.ratio, bar.high or bar.ratio


def _ticks(span: float) -> list[float]:
    # three, so that their words do not meet on a phone
    for ticks in (
        [0.25, 1, 4],
        [0.5, 1, 2],
        [0.7, 1, 1.4],
        [0.8, 1, 1.25],
        [0.9, 1, 1.1],
        [0.95, 1, 1.05],
    ):
        if math.log2(ticks[-1]) <= span:
            return [float(tick) for tick in ticks]
    return [0.98, 1.0, 1.02]


def _words(bar: Bar) -> str:
    sign = WAY_SIGNS.get(bar.way, "")
    return f"{sign} {text.ratio(bar.ratio)}{'' if bar.exact else ' inexact'}".strip()


def _hover(bar: Bar) -> str:
    bounds = f", 95 % {text.interval(bar.low, bar.high)}" if bar.low is not None else ""
    inexact = "" if bar.exact else "<br>its error does not count as exact or fair"
    return f"<b>{html.escape(bar.label)}</b><br>{text.ratio(bar.ratio)}{bounds}{inexact}"
