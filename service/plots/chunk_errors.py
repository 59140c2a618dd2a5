"""Error against the number of chunks: what summing in more parts costs, kernel by kernel."""

import html
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..contract.words import Grade
from . import text, theme
from .panels import Axes
from .planes import UP_STANDOFF, Planes

LIMITS = ((1.1, "exact"), (1.5, "fair"), (4.0, "coarse"))
"""Ratios up to which an error has this grade."""


class ChunkError(NamedTuple):
    """A contender's worst error on a case, and in how many chunks it took the tokens."""

    contender: str
    kernel: str
    version: str | None
    case: str
    chunks: int
    error_ratio: float
    grade: str | None

    @property
    def line(self) -> tuple[str, str]:
        """What is joined: one kernel at one version on one case."""
        return f"{self.kernel}@{self.version}" if self.version else self.kernel, self.case


def chunks_of(params: str, tokens: int) -> int | None:
    """Number of chunks that the params say; None where they say none."""
    found = dict(part.partition("=")[::2] for part in params.split(",") if "=" in part)
    for name in ("chunks", "chunk_rows"):
        value = found.get(name, "")
        if value.isdigit() and int(value) > 0:
            return int(value) if name == "chunks" else -(-tokens // int(value))
    return None


def chunk_errors(points: Sequence[ChunkError]) -> dict[str, Any] | None:
    """A line for each kernel, version and case with two chunk counts or more; None without any."""
    lines: dict[tuple[str, str], list[ChunkError]] = {}
    for point in points:
        lines.setdefault(point.line, []).append(point)
    drawn = {
        name: sorted(found, key=lambda point: point.chunks)
        for name, found in lines.items()
        if len({point.chunks for point in found}) > 1
    }
    if not drawn:
        return None
    planes = Planes(
        "Error against the number of chunks",
        ("● exact ■ fair ▲ coarse ✕ poor", "dashed: limits of the grades"),
    )
    everything = [point for found in drawn.values() for point in found]
    errors = [point.error_ratio for point in everything]
    low, high = min([*errors, 1.0]) / 1.1, max([*errors, 1.6]) * 1.2
    counts = sorted({point.chunks for point in everything})
    axes = planes.add("worst error over torch's own", _chunk_axis(counts), _error_axis(low, high))
    limits = [limit for limit, _ in LIMITS if limit < high]
    planes.trace(
        axes,
        mode="lines",
        name="limits",
        x=[at for _ in limits for at in (counts[0] / 1.4, counts[-1] * 3, None)],
        y=[end for limit in limits for end in (limit, limit, None)],
        line={"color": theme.NEUTRAL, "dash": "dash", "width": 1},
        meta=theme.RULE,
        hoverinfo="skip",
    )
    for (name, case), found in sorted(drawn.items()):
        _line(planes, axes, (name, case), found)
    return planes.figure()


def _chunk_axis(counts: Sequence[int]) -> dict[str, Any]:
    return {
        "title": {"text": "chunks, log", "standoff": 4},
        "type": "log",
        "range": [math.log10(counts[0]) - 0.15, math.log10(counts[-1]) + 0.5],
        "tickmode": "array",
        "tickvals": list(counts),
        "ticktext": [str(count) for count in counts],
    }


def _error_axis(low: float, high: float) -> dict[str, Any]:
    return {
        "title": {"text": "error / torch's own (lower is better)", "standoff": UP_STANDOFF},
        "type": "log",
        "range": [math.log10(low), math.log10(high)],
        "tickmode": "array",
        "tickvals": [tick for tick in (0.5, 1, 1.5, 2, 4, 10, 30, 100) if low <= tick <= high],
    }


def _line(planes: Planes, axes: Axes, named: tuple[str, str], found: Sequence[ChunkError]) -> None:
    name, case = named
    planes.trace(
        axes,
        mode="lines+markers+text",
        name=f"{name}, {case}",
        x=[point.chunks for point in found],
        y=[point.error_ratio for point in found],
        text=[""] * (len(found) - 1) + [f" {html.escape(name)}"],
        textposition="middle right",
        textfont={"size": theme.SMALL_FONT_SIZE},
        line={"color": theme.colour(found[0].kernel), "width": 1.5},
        marker={"symbol": [_symbol(point) for point in found], "size": 8},
        hovertext=[
            f"<b>{html.escape(point.contender)}</b><br>{html.escape(case)}<br>"
            f"{text.plural(point.chunks, 'chunk')}: {text.ratio(point.error_ratio)} torch's own"
            for point in found
        ],
        hoverinfo="text",
        cliponaxis=False,
    )


def _symbol(point: ChunkError) -> str:
    return theme.symbol(Grade(point.grade) if point.grade else None)
