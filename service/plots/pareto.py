"""Workspace against time: one mark a contender, its shape the error grade, the front drawn."""

import html
import math
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..contract.result import Result
from ..contract.words import Flag, Grade
from . import text, theme
from .labels import Label, placed
from .latency import speed
from .panels import Axes, Gap, select
from .planes import HEADROOM, LABEL_PLACES, PANEL_PX, UP_STANDOFF, Planes, axis
from .report import COUNTED

LEGEND = (
    "line: nothing that counts beats these in both",
    "● exact ■ fair ▲ coarse ✕ poor · dotted: one kernel",
)
FAST = "fast but inexact"
WIDE = 16
"""From this ratio of the largest to the smallest workspace on, the axis is logarithmic."""
WIDTH_PX = 270.0
"""Width that labels are placed for: a panel on a phone."""
WRAP_AT = 44
LEAST = 1024
"""Bytes: a smaller workspace is drawn here on a logarithmic axis."""


class Mark(NamedTuple):
    """A contender with a time and a workspace; only one that `counts` can be on the front."""

    label: str
    kernel: str
    version: str
    params: str
    time_ms: float
    workspace_bytes: int
    grade: Grade | None
    counts: bool
    suspect: bool = False

    def short(self, with_version: bool) -> str:
        """Its label without a version that all of its kernel share."""
        version = f"@{self.version}" if with_version and self.version else ""
        return f"{self.kernel}{version}" + (f"[{self.params}]" if self.params else "")


def pareto(results: Sequence[Result], gaps: Sequence[Gap] = ()) -> dict[str, Any]:
    """One panel a case and pass. Settings of one kernel at one version are joined by a thin line.

    On the front is what no other one beats in both; coarse and poor errors never are.
    """
    selection = select(results, gaps)
    planes = Planes(f"Workspace against time on {selection.device}", (*LEGEND, *selection.notes))
    for panel in selection.panels:
        rows = panel.rows(_time)
        marks = [_mark(row.result) for row in rows if row.value is not None and row.result]
        words = [f"{row.gap}: {row.label}" for row in rows if row.gap]
        draw_front(planes, panel.heading, marks, words)
    return planes.figure()


def _mark(result: Result) -> Mark:
    suspect = Flag.SUSPECT in result.flags
    return Mark(
        result.label,
        result.kernel,
        result.version or "",
        result.params,
        result.latency_ms or 0.0,
        result.workspace_bytes or 0,
        result.grade,
        result.grade in COUNTED and not suspect,
        suspect,
    )


def _time(result: Result) -> float | None:
    return None if result.workspace_bytes is None else speed(result)


def front_of(marks: Sequence[Mark]) -> list[tuple[float, int]]:
    """(time, workspace) of what no other mark that counts beats in both, the fastest first."""
    places = {(mark.time_ms, mark.workspace_bytes) for mark in marks if mark.counts}
    return sorted(place for place in places if not _beaten(place, places))


def _beaten(place: tuple[float, int], places: set[tuple[float, int]]) -> bool:
    return any(a <= place[0] and b <= place[1] and (a, b) != place for a, b in places)


def tempting(marks: Sequence[Mark]) -> list[Mark]:
    """Marks that would be on the front if their error counted: fast but inexact."""
    able = {(mark.time_ms, mark.workspace_bytes) for mark in marks if mark.counts}
    return [
        mark
        for mark in sorted(marks, key=lambda mark: mark.label)
        if mark.grade is not None
        and not (mark.counts or mark.suspect)
        and not _beaten((mark.time_ms, mark.workspace_bytes), able)
    ]


def inexact_words(mark: Mark, marks: Sequence[Mark]) -> str:
    """What a tempting mark is, in words: fast, or small, but inexact."""
    counted = [other for other in marks if other.counts]
    if not counted or mark.time_ms < min(other.time_ms for other in counted):
        return FAST
    if mark.workspace_bytes < min(other.workspace_bytes for other in counted):
        return "small but inexact"
    return "good but inexact"


def draw_front(planes: Planes, heading: str, marks: Sequence[Mark], words: Sequence[str]) -> None:
    """One panel. Labels that would cover something are left out; the table has every name."""
    slowest = max((mark.time_ms for mark in marks), default=1.0)
    memory = _memory(marks)
    axes = planes.add(heading, axis("time per call, ms (lower is better)", slowest), memory.axis)
    inexact = tempting(marks)
    lines = [f"{inexact_words(mark, marks)}: {mark.label}" for mark in inexact]
    # first, for they take room from the axis that the labels are placed on
    planes.words(
        axes, slowest * HEADROOM, [_wrapped(html.escape(line)) for line in (*lines, *words)]
    )
    _families(planes, axes, marks, memory)
    front = front_of(marks)
    if front:
        planes.trace(
            axes,
            mode="lines",
            name="front",
            x=[x for x, _ in front],
            y=[memory.up(y) for _, y in front],
            line={"color": theme.NEUTRAL, "width": 1.5, "shape": "hv"},
            hoverinfo="skip",
        )
    labels = _labels(marks, {m for m in marks if _at(m) in front or m in inexact}, memory)
    planes.trace(
        axes,
        mode="markers+text",
        name="contenders",
        x=[mark.time_ms for mark in marks],
        y=[memory.up(mark.workspace_bytes) for mark in marks],
        text=[html.escape(name) if place else "" for name, place in labels],
        textposition=[place or LABEL_PLACES[0] for _, place in labels],
        textfont={"size": theme.SMALL_FONT_SIZE},
        marker={
            "color": [theme.colour(mark.kernel) for mark in marks],
            "symbol": [theme.symbol(mark.grade) for mark in marks],
            "size": 10,
        },
        hovertext=[_hover(mark, inexact, marks) for mark in marks],
        hoverinfo="text",
        cliponaxis=False,
    )


def _wrapped(line: str) -> str:
    """A long line is broken behind its colon, so that it fits a phone."""
    return line if len(line) <= WRAP_AT else line.replace(": ", ":<br>", 1)


class _Memory(NamedTuple):
    """The vertical axis: its layout, bytes of its unit, and the least bytes that it can show."""

    axis: dict[str, Any]
    size: int
    least: int = 0

    def up(self, workspace_bytes: int) -> float:
        """Where a workspace stands on the axis; none at all has no place on a logarithmic one."""
        return max(self.least, workspace_bytes) / self.size

    def share(self, workspace_bytes: int) -> float:
        """The same as a share of the axis from its lower end, 0 .. 1."""
        low, high = self.axis["range"]
        place = self.up(workspace_bytes)
        return float(((math.log10(place) if self.least else place) - low) / (high - low))


def _memory(marks: Sequence[Mark]) -> _Memory:
    """Logarithmic where the largest workspace is many times the smallest."""
    largest = max((mark.workspace_bytes for mark in marks), default=1)
    least = min((max(LEAST, mark.workspace_bytes) for mark in marks), default=1)
    unit, size = text.byte_unit(largest)
    if largest < WIDE * least:
        title = f"workspace, {unit} (lower is better)"
        scale = axis(title, largest / size, UP_STANDOFF)
        return _Memory(scale, size)
    low, high = math.log10(least / 3 / size), math.log10(largest * 4 / size)
    steps = range(math.ceil(math.log2(least / 3)), math.floor(math.log2(largest * 4)) + 1)
    ticks = [2**step for step in steps if step % 4 == 0]
    scale = {
        "title": {"text": "workspace, log scale (lower is better)", "standoff": UP_STANDOFF},
        "type": "log",
        "range": [low, high],
        "tickmode": "array",
        "tickvals": [tick / size for tick in ticks],
        "ticktext": [_tick(tick) for tick in ticks],
    }
    return _Memory(scale, size, LEAST)


def _tick(tick: int) -> str:
    unit, size = text.byte_unit(tick)
    return f"{tick // size} {unit}" if tick >= size else f"{tick} B"


def _at(mark: Mark) -> tuple[float, int]:
    return mark.time_ms, mark.workspace_bytes


def _labels(marks: Sequence[Mark], first: set[Mark], memory: _Memory) -> list[tuple[str, str]]:
    """Short label and place of each mark; no place where a label would cover something."""
    versions: dict[str, set[str]] = {}
    for mark in marks:
        versions.setdefault(mark.kernel, set()).add(mark.version)
    names = [mark.short(len(versions[mark.kernel]) > 1) for mark in marks]
    longest = max((mark.time_ms for mark in marks), default=1.0) * HEADROOM
    points = [
        Label(
            WIDTH_PX * mark.time_ms / longest,
            PANEL_PX * (1 - memory.share(mark.workspace_bytes)),
            name,
            mark in first,
        )
        for mark, name in zip(marks, names, strict=True)
    ]
    return list(zip(names, placed(points, WIDTH_PX, PANEL_PX), strict=True))


def _families(planes: Planes, axes: Axes, marks: Sequence[Mark], memory: _Memory) -> None:
    families: dict[tuple[str, str], list[Mark]] = {}
    for mark in marks:
        families.setdefault((mark.kernel, mark.version), []).append(mark)
    for (kernel, _), found in families.items():
        members = sorted(found, key=_setting)
        if len(members) > 1:
            planes.trace(
                axes,
                mode="lines",
                name=f"settings of {kernel}",
                x=[mark.time_ms for mark in members],
                y=[memory.up(mark.workspace_bytes) for mark in members],
                line={"color": theme.colour(kernel), "width": 1, "dash": "dot"},
                hoverinfo="skip",
            )


def _setting(mark: Mark) -> list[tuple[int, int, str]]:
    """Order of settings: `chunk_rows=512` comes before `chunk_rows=1024`."""
    parts = re.split(r"(\d+)", mark.params)
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts]


def _hover(mark: Mark, inexact: Sequence[Mark], marks: Sequence[Mark]) -> str:
    lines = [
        f"<b>{html.escape(mark.label)}</b>",
        text.milliseconds(mark.time_ms),
        f"workspace {text.in_bytes(mark.workspace_bytes)}",
        f"error {mark.grade or 'not graded'}",
    ]
    lines += [inexact_words(mark, marks)] * (mark in inexact)
    lines += ["suspect: faster than the device can be"] * mark.suspect
    return "<br>".join(lines)
