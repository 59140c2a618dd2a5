"""Numerical error: relative L2 of dW, dx and loss against float64, beside the yardstick's own."""

import math
from collections.abc import Sequence
from typing import Any

from ..contract.result import OutputErrorView, Result
from ..contract.words import Grade
from ..statistics.grade import grade_of
from . import text, theme
from .panels import Gap, Panel, Row, Stack, select

OUTPUT_WORDS = {"dw": "dW", "dx": "dx", "loss": "loss", "db": "db"}
SMALLEST = 1e-12
"""Stands for an error of exactly zero, which a log axis cannot show."""


def error(results: Sequence[Result], gaps: Sequence[Gap] = ()) -> dict[str, Any]:
    """Dots on a log axis, smallest first: one panel per case, pass and output.

    Marker shape and text give the grade of that output; the dashed line is torch's own error in
    that dtype.
    """
    selection = select(results, gaps)
    notes = (
        "● exact  ■ fair  ▲ coarse  ✕ poor · dashed: torch's own error (loss: torch-upcast's)",
        *selection.notes,
    )
    outputs = _outputs(selection.results)
    stack = Stack(f"Error against float64 on {selection.device}", notes, max(1, len(outputs)))
    for panel in selection.panels:
        order = _order(panel)
        for output in outputs:
            _panel(stack, panel, output, order)
    return stack.figure()


def _outputs(results: Sequence[Result]) -> list[str]:
    known = {found.output for result in results for found in result.errors}
    return [output for output in OUTPUT_WORDS if output in known]


def _order(panel: Panel) -> list[str]:
    """Labels by their worst ratio to the yardstick: the same order for every output."""

    def worst(result: Result) -> float | None:
        known = [found.ratio for found in result.errors if found.ratio is not None]
        return max(known, default=None)

    return [row.label for row in panel.rows(worst)]


def _relative(result: Result, output: str) -> float | None:
    found = result.error_of(output)
    if found is None or found.relative_l2 is None:
        return None
    return max(found.relative_l2, SMALLEST)


def _yardstick(found: OutputErrorView | None) -> float | None:
    value = found.detail.get("yardstick_relative_l2") if found else None
    return float(value) if isinstance(value, int | float) and value > 0 else None


def _panel(stack: Stack, panel: Panel, output: str, order: Sequence[str]) -> None:
    found = panel.rows(lambda result: _relative(result, output))
    rows = sorted(found, key=lambda row: order.index(row.label))
    yardsticks = [_yardstick(row.result.error_of(output)) if row.result else None for row in rows]
    axis, start = _axis(output, [*(row.value for row in rows), *yardsticks])
    short = f"<b>{OUTPUT_WORDS[output]}</b>"
    heading = f"{short}, {panel.heading}"
    axes = stack.add(heading, [row.label for row in rows], axis, short)
    lines = [(place, value) for place, value in enumerate(yardsticks) if value is not None]
    stack.trace(
        axes,
        type="scatter",
        mode="lines",
        name="yardstick",
        x=[value for _, value in lines for _ in range(2)],
        y=[place + half for place, _ in lines for half in (-0.5, 0.5)],
        line={"color": theme.NEUTRAL, "dash": "dash", "width": 1.5},
        meta=theme.RULE,
        hoverinfo="skip",
    )
    dots = [(place, row, row.result) for place, row in enumerate(rows) if row.value is not None]
    stack.trace(
        axes,
        type="scatter",
        mode="markers+text",
        name=OUTPUT_WORDS[output],
        x=[row.value for _, row, _ in dots],
        y=[place for place, _, _ in dots],
        marker={
            "color": [theme.colour(result.kernel) for _, _, result in dots if result],
            "symbol": [theme.symbol(_grade(result, output)) for _, _, result in dots if result],
            "size": 10,
        },
        text=[f"  {_annotation(result, output)}" for _, _, result in dots if result],
        textposition="middle right",
        textfont={"size": theme.SMALL_FONT_SIZE},
        hovertext=[_hover(row, output) for _, row, _ in dots],
        hoverinfo="text",
        cliponaxis=False,
    )
    stack.gaps(axes, rows, start)


def _axis(output: str, values: Sequence[float | None]) -> tuple[dict[str, Any], float]:
    known = [math.log10(value) for value in values if value]
    low, high = min(known, default=-6.0), max(known, default=0.0)
    # at least half a decade, so that equal errors do not look far apart
    span = max(high - low, 0.5)
    left, right = low - 0.15 * span, low + span * 1.75
    ticks = _ticks(left, low + span)
    axis = {
        "title": {
            "text": "relative L2, log (lower is better)",
            "standoff": 4,
        },
        "type": "log",
        "range": [left, right],
        "tickmode": "array",
        "tickvals": ticks,
        "ticktext": [text.digits(tick, 1) for tick in ticks],
    }
    return axis, 10.0**left


def _ticks(left: float, right: float) -> list[float]:
    """1, 2 and 5 times powers of ten; only the powers where the axis is long."""
    steps = (1, 2, 5) if right - left < 1.5 else (1,)
    powers = range(math.floor(left), math.ceil(right) + 1)
    known = [step * 10.0**power for power in powers for step in steps]
    return [tick for tick in known if left <= math.log10(tick) <= right]


def _annotation(result: Result, output: str) -> str:
    found = result.error_of(output)
    parts = [text.ratio(found.ratio)] if found and found.ratio is not None else []
    return " ".join([*parts, str(_grade(result, output) or "ungraded")])


def _grade(result: Result, output: str) -> Grade | None:
    """Grade of this output alone; the result carries that of its worst one."""
    found = result.error_of(output)
    return grade_of(found.ratio) if found and found.ratio is not None else None


def _hover(row: Row, output: str) -> str:
    found = row.result.error_of(output) if row.result else None
    if found is None:
        return row.label
    return "<br>".join(
        [
            f"<b>{row.label}</b>",
            f"{OUTPUT_WORDS[output]}: relative L2 {text.digits(found.relative_l2)}",
            f"{text.ratio(found.ratio)} of the yardstick's {text.digits(_yardstick(found))}",
            f"largest absolute {text.digits(found.max_abs)}",
        ]
    )
