"""Workspace: what a contender needs beyond inputs and outputs, the peaks behind it on hover."""

import math
from collections.abc import Sequence
from typing import Any

from ..contract.result import Result
from . import text, theme
from .latency import ROOM_FOR_TEXT
from .panels import Gap, Panel, Stack, select

LOG_SPREAD = 20.0
"""Largest over smallest workspace above which the axis is logarithmic."""


def memory(results: Sequence[Result], gaps: Sequence[Gap] = ()) -> dict[str, Any]:
    """Horizontal bars of workspace bytes, smallest first: one bar trace per case and pass."""
    selection = select(results, gaps)
    hatch = theme.patterns(selection.results)
    notes = ("largest peak - inputs - outputs", *selection.notes)
    stack = Stack(f"Workspace on {selection.device}", notes)
    for panel in selection.panels:
        _panel(stack, panel, hatch)
    return stack.figure()


def _workspace(result: Result) -> float | None:
    return None if result.workspace_bytes is None else float(result.workspace_bytes)


def _panel(stack: Stack, panel: Panel, hatch: dict[str, str]) -> None:
    rows = panel.rows(_workspace)
    known = [row.value for row in rows if row.value is not None]
    unit, size = text.byte_unit(max(known, default=0.0))
    axis, start = _axis([value / size for value in known], unit)
    axes = stack.add(panel.heading, [row.label for row in rows], axis)
    measured = [(place, row) for place, row in enumerate(rows) if row.value is not None]
    if measured:
        values = [(row.value or 0.0) / size for _, row in measured]
        stack.trace(
            axes,
            type="bar",
            orientation="h",
            name="workspace",
            x=values,
            y=[place for place, _ in measured],
            marker={
                "color": [theme.colour(row.result.kernel) for _, row in measured if row.result],
                "pattern": {"shape": [hatch.get(row.label, "") for _, row in measured], "size": 6},
            },
            hovertext=[_hover(row.label, row.result) for _, row in measured if row.result],
            hoverinfo="text",
        )
        stack.trace(
            axes,
            type="scatter",
            mode="text",
            name="bytes",
            x=[max(value, start) for value in values],
            y=[place for place, _ in measured],
            text=[f"  {text.in_bytes(round(row.value or 0))}" for _, row in measured],
            textposition="middle right",
            textfont={"size": theme.SMALL_FONT_SIZE},
            hoverinfo="skip",
            cliponaxis=False,
        )
    stack.gaps(axes, rows, start)


def _axis(values: Sequence[float], unit: str) -> tuple[dict[str, Any], float]:
    """The x axis and the value at its left end."""
    title = f"workspace, {unit} (lower is better)"
    positive = [value for value in values if value > 0]
    largest = max(positive, default=1.0)
    smallest = min(positive, default=1.0)
    if largest / smallest <= LOG_SPREAD:
        title_of = {"text": title, "standoff": 4}
        return {"title": title_of, "range": [0, largest * ROOM_FOR_TEXT], "nticks": 6}, 0.0
    low = math.floor(math.log10(smallest / 2))
    high = math.log10(largest)
    axis = {
        "title": {"text": f"{unit}, log (lower is better)", "standoff": 4},
        "type": "log",
        "range": [low, high + (high - low) * (ROOM_FOR_TEXT - 1)],
        "dtick": 1,
    }
    return axis, 10.0**low


def _hover(label: str, result: Result) -> str:
    return "<br>".join(
        [
            f"<b>{label}</b>",
            f"workspace {text.in_bytes(result.workspace_bytes)}",
            f"forward peak {text.in_bytes(result.peak_forward_bytes)}",
            f"held {text.in_bytes(result.held_bytes)}",
            f"backward peak {text.in_bytes(result.peak_backward_bytes)}",
            f"outputs {text.in_bytes(result.outputs_bytes)}",
        ]
    )
