"""Distance to the floor: time over the bare matrix products that the pass cannot do without."""

from collections.abc import Sequence
from typing import Any

from ..contract.result import Result
from ..contract.words import Flag
from . import text, theme
from .latency import speed
from .panels import Axes, Gap, Panel, Row, Stack, select


def floor(results: Sequence[Result], gaps: Sequence[Gap] = ()) -> dict[str, Any]:
    """Bars that start at 1.0, the floor itself, nearest first: one bar trace per case and pass."""
    selection = select(results, gaps)
    hatch = theme.patterns(selection.results)
    notes = ("line at 1.0: the bare matrix products, same GPU, same process", *selection.notes)
    stack = Stack(f"Distance to the floor on {selection.device}", notes)
    for panel in selection.panels:
        _panel(stack, panel, hatch)
    return stack.figure()


def _ratio(result: Result) -> float | None:
    return None if speed(result) is None else result.floor_ratio


def _panel(stack: Stack, panel: Panel, hatch: dict[str, str]) -> None:
    rows = panel.rows(_ratio)
    known = [row.value for row in rows if row.value is not None]
    low, high = min([1.0, *known]), max([1.2, *known])
    span = high - low
    axis = {
        "title": {"text": "time / floor (lower is better)", "standoff": 4},
        "range": [low - 0.04 * span, high + 0.4 * span],
        "nticks": 6,
    }
    axes = stack.add(panel.heading, [row.label for row in rows], axis)
    found = [(place, row, row.result) for place, row in enumerate(rows) if row.value is not None]
    if found:
        _bars(stack, axes, found, hatch)
    stack.trace(
        axes,
        type="scatter",
        mode="lines",
        name="floor",
        x=[1.0, 1.0],
        y=[-0.5, len(rows) - 0.5],
        line={"color": theme.NEUTRAL, "dash": "dash", "width": 1.5},
        meta=theme.RULE,
        hoverinfo="skip",
    )
    stack.gaps(axes, rows, 1.0)


def _bars(
    stack: Stack, axes: Axes, found: Sequence[tuple[int, Row, Any]], hatch: dict[str, str]
) -> None:
    stack.trace(
        axes,
        type="bar",
        orientation="h",
        name="time over floor",
        base=1.0,
        x=[(row.value or 1.0) - 1.0 for _, row, _ in found],
        y=[place for place, _, _ in found],
        marker={
            "color": [theme.colour(result.kernel) for _, _, result in found if result],
            "pattern": {"shape": [hatch.get(row.label, "") for _, row, _ in found], "size": 6},
        },
        hovertext=[_hover(row.label, result) for _, row, result in found if result],
        hoverinfo="text",
    )
    stack.trace(
        axes,
        type="scatter",
        mode="text",
        name="floor ratio",
        x=[max(1.0, row.value or 1.0) for _, row, _ in found],
        y=[place for place, _, _ in found],
        text=[f"  {_annotation(result)}" for _, _, result in found if result],
        textposition="middle right",
        textfont={"size": theme.SMALL_FONT_SIZE},
        hoverinfo="skip",
        cliponaxis=False,
    )


def _annotation(result: Result) -> str:
    suspect = " · suspect" if Flag.SUSPECT in result.flags else ""
    return f"{text.ratio(result.floor_ratio)}{suspect}"


def _hover(label: str, result: Result) -> str:
    return "<br>".join(
        [
            f"<b>{label}</b>",
            f"{text.ratio(result.floor_ratio)} of the floor",
            f"{text.milliseconds(result.latency_ms)} against {text.milliseconds(result.floor_ms)}",
        ]
    )
