"""Time per call: one bar per contender, quartiles, the ratio to the baseline, and the floor."""

from collections.abc import Sequence
from typing import Any

from ..contract.result import Result
from ..contract.words import Flag
from . import text, theme
from .panels import Axes, Gap, Panel, Row, Stack, select

ROOM_FOR_TEXT = 1.8
"""Length of the axis over the longest bar, so that the text behind it fits a phone."""


def latency(results: Sequence[Result], gaps: Sequence[Gap] = ()) -> dict[str, Any]:
    """Horizontal bars, fastest first: one bar trace per case and pass, coloured by kernel.

    Whiskers are the quartiles; the text behind a bar is its time and its ratio to the baseline; the
    dashed line is the floor that was timed in the same process.
    """
    selection = select(results, gaps)
    hatch = theme.patterns(selection.results)
    notes = ("whiskers: quartiles · dashed: floor · ×: ratio to the baseline", *selection.notes)
    stack = Stack(f"Time per call on {selection.device}", notes)
    for panel in selection.panels:
        _panel(stack, panel, hatch)
    return stack.figure()


def speed(result: Result) -> float | None:
    """The time of a result, or None for interpreted ones, which have no speed."""
    return None if Flag.INTERPRETED in result.flags else result.latency_ms


def _panel(stack: Stack, panel: Panel, hatch: dict[str, str]) -> None:
    rows = panel.rows(speed)
    longest = max((_end(row) for row in rows if row.value is not None), default=1.0)
    axis = {
        "title": {"text": "time per call, ms (lower is better)", "standoff": 4},
        "range": [0, longest * ROOM_FOR_TEXT],
        "nticks": 6,
    }
    axes = stack.add(panel.heading, [row.label for row in rows], axis)
    timed = [(place, row, row.result) for place, row in enumerate(rows) if row.value is not None]
    if timed:
        _bars(stack, axes, timed, hatch)
    _floor(stack, axes, rows)
    stack.gaps(axes, rows)


def _end(row: Row) -> float:
    high = row.result.latency_high_ms if row.result else None
    return max(row.value or 0.0, high or 0.0)


def _bars(
    stack: Stack, axes: Axes, timed: Sequence[tuple[int, Row, Any]], hatch: dict[str, str]
) -> None:
    places = [place for place, _, _ in timed]
    values = [row.value or 0.0 for _, row, _ in timed]
    stack.trace(
        axes,
        type="bar",
        orientation="h",
        name="time per call",
        x=values,
        y=places,
        marker={
            "color": [theme.colour(result.kernel) for _, _, result in timed],
            "pattern": {"shape": [hatch.get(row.label, "") for _, row, _ in timed], "size": 6},
        },
        error_x={
            "type": "data",
            "symmetric": False,
            "array": [max(0.0, _end(row) - (row.value or 0.0)) for _, row, _ in timed],
            "arrayminus": [
                max(0.0, value - (result.latency_low_ms or value))
                for value, (_, _, result) in zip(values, timed, strict=True)
            ],
            "color": theme.NEUTRAL,
            "thickness": 1.5,
            "width": 3,
        },
        hovertext=[_hover(row.label, result) for _, row, result in timed],
        hoverinfo="text",
    )
    stack.trace(
        axes,
        type="scatter",
        mode="text",
        name="ratio to baseline",
        x=[_end(row) for _, row, _ in timed],
        y=places,
        text=[f"  {_annotation(result)}" for _, _, result in timed],
        textposition="middle right",
        textfont={"size": theme.SMALL_FONT_SIZE},
        hoverinfo="skip",
        cliponaxis=False,
    )


def _annotation(result: Result) -> str:
    shown = text.digits(result.latency_ms)
    if result.contender == result.baseline:
        return f"{shown} · baseline"
    if result.ratio_to_baseline is None:
        return shown
    return f"{shown} · {text.ratio(result.ratio_to_baseline)}"


def _hover(label: str, result: Result) -> str:
    lines = [
        f"<b>{label}</b>",
        f"{text.milliseconds(result.latency_ms)}, quartiles "
        f"{text.interval(result.latency_low_ms, result.latency_high_ms)}",
    ]
    if result.ratio_to_baseline is not None:
        bounds = text.interval(result.ratio_low, result.ratio_high)
        lines.append(f"{text.ratio(result.ratio_to_baseline)} of the baseline, 95 % {bounds}")
    if result.floor_ratio is not None:
        lines.append(f"{text.ratio(result.floor_ratio)} of the floor")
    return "<br>".join(lines)


def _floor(stack: Stack, axes: Axes, rows: Sequence[Row]) -> None:
    xs: list[float] = []
    ys: list[float] = []
    for place, row in enumerate(rows):
        if row.value is not None and row.result is not None and row.result.floor_ms is not None:
            xs += [row.result.floor_ms] * 2
            ys += [place - 0.5, place + 0.5]
    if xs:
        stack.trace(
            axes,
            type="scatter",
            mode="lines",
            name="floor",
            x=xs,
            y=ys,
            line={"color": theme.NEUTRAL, "dash": "dash", "width": 1.5},
            meta=theme.RULE,
            hoverinfo="skip",
        )
