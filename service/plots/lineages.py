"""One line a contender lineage over its versions: time, memory and error side by side."""

import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any, NamedTuple

from ..contract.words import Flag, Grade, Outcome
from . import text, theme
from .history import BAND
from .panels import Axes
from .planes import HEADROOM, UP_STANDOFF, Planes, axis
from .shape_map import FASTER, SLOWER
from .versions import NO_VERSION, version_order

MOST_REPLICATES = 500
"""Older results drawn of one lineage."""
MOST_KERNELS = 6
LAST_PLACES = ("top left", "bottom left")
"""Where the label of a line stands at its last point: lines of one kernel take turns."""


class LineagePoint(NamedTuple):
    """One result of a lineage; None where a number was not taken or does not count."""

    result_id: str
    version: str | None
    moment: datetime
    outcome: str
    latency_ms: float | None = None
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    workspace_bytes: int | None = None
    error_ratio: float | None = None
    grade: str | None = None
    flags: tuple[str, ...] = ()
    baseline: str = ""
    environment_id: str = ""

    @property
    def name(self) -> str:
        """Its version as the axis names it."""
        return self.version or NO_VERSION


@dataclass(frozen=True)
class Lineage:
    """A kernel with its settings over its versions, on one case, pass and device."""

    kernel: str
    params: str
    points: Sequence[LineagePoint]
    """Oldest first within a version."""

    @property
    def label(self) -> str:
        """`liger[accum_dtype=float32]`."""
        return f"{self.kernel}[{self.params}]" if self.params else self.kernel

    @property
    def versions(self) -> list[str]:
        """Its versions in order."""
        return version_order((point.version, point.moment) for point in self.points)

    @property
    def newest(self) -> list[LineagePoint]:
        """The newest result of each version, versions in order."""
        found: dict[str, LineagePoint] = {}
        for point in sorted(self.points, key=lambda point: point.moment):
            found[point.name] = point
        return [found[name] for name in self.versions]


class Change(NamedTuple):
    """A stored alert about a lineage: which metric changed in which version, and what became of it.

    `metric` is `time`, `memory` or `error`; `state` the alert's.
    """

    kernel: str
    params: str
    metric: str
    version: str
    is_worse: bool
    state: str


class _Panel(NamedTuple):
    """What one of the three panels shows."""

    metric: str
    title: str
    value: Callable[[LineagePoint], float | None]
    banded: bool


def lineage_figure(
    lineages: Sequence[Lineage], where: str, changes: Sequence[Change] = ()
) -> dict[str, Any]:
    """A row of three panels for each kernel: time over the baseline, workspace, worst error.

    Changes are marked at the version that brought them.
    """
    notes = [
        html.escape(where),
        "line: newest result of each version · band: its 95 %",
        "faint: older results · dashed: environment changed",
    ]
    if changes:
        notes.append("△ worse, ▽ better, and what became of the alert")
    kernels: dict[str, list[Lineage]] = {}
    for lineage in lineages:
        kernels.setdefault(lineage.kernel, []).append(lineage)
    if len(kernels) > MOST_KERNELS:
        notes.append(f"the first {MOST_KERNELS} of {len(kernels)} kernels; choose one to see it")
    planes = Planes("Time, memory and error by version", notes, columns=3)
    for kernel, members in list(kernels.items())[:MOST_KERNELS]:
        _row(planes, kernel, members, changes)
    return planes.figure()


def _row(
    planes: Planes, kernel: str, members: Sequence[Lineage], changes: Sequence[Change]
) -> None:
    points = [point for lineage in members for point in lineage.points]
    versions = version_order((point.version, point.moment) for point in points)
    place = {version: index for index, version in enumerate(versions)}
    most = max((point.workspace_bytes or 0 for point in points), default=0)
    unit, size = text.byte_unit(most)
    panels = (
        _Panel("time", "time / baseline (lower is better)", lambda point: point.ratio, True),
        _Panel(
            "memory",
            f"workspace, {unit} (lower is better)",
            lambda p: None if p.workspace_bytes is None else p.workspace_bytes / size,
            False,
        ),
        _Panel(
            "error", "worst error / torch's own (lower is better)", lambda p: p.error_ratio, False
        ),
    )
    for panel in panels:
        values = [panel.value(point) for point in points]
        highs = [point.ratio_high for point in points] if panel.banded else []
        highest = max((value for value in [*values, *highs] if value is not None), default=1.0)
        x_axis = {
            "title": {"text": f"version of {kernel}", "standoff": 4},
            "tickmode": "array",
            "tickvals": list(place.values()),
            "ticktext": versions,
            "range": [-0.5, max(0.5, len(versions) - 0.5)],
        }
        axes = planes.add(
            f"<b>{html.escape(kernel)}</b> {panel.title.partition(' (')[0]}",
            x_axis,
            axis(panel.title, highest, UP_STANDOFF),
        )
        _environments(planes, axes, members, place, highest * HEADROOM)
        for index, lineage in enumerate(members):
            _line(planes, axes, (lineage, LAST_PLACES[index % 2]), panel, place)
            _changes(planes, axes, lineage, panel, (changes, place))
        gaps = [
            f"{_gap(point)}: {point.name}"
            for lineage in members
            for point in lineage.newest
            if panel.value(point) is None
        ]
        planes.words(axes, max(0.5, len(versions) - 0.5), gaps)


def _environments(
    planes: Planes, axes: Axes, members: Sequence[Lineage], place: dict[str, int], top: float
) -> None:
    """A rule between two versions where another environment measured the later one."""
    at = sorted(
        {
            (place[before.name] + place[after.name]) / 2
            for lineage in members
            for before, after in pairwise(lineage.newest)
            if before.environment_id != after.environment_id
        }
    )
    if at:
        planes.trace(
            axes,
            mode="lines",
            name="environment changed",
            x=[end for x in at for end in (x, x, None)],
            y=[end for _ in at for end in (0, top, None)],
            line={"color": theme.NEUTRAL, "dash": "dash", "width": 1},
            hoverinfo="skip",
        )


def _line(
    planes: Planes,
    axes: Axes,
    named: tuple[Lineage, str],
    panel: _Panel,
    place: dict[str, int],
) -> None:
    lineage, label_at = named
    colour = theme.colour(lineage.kernel)
    shown = [point for point in lineage.newest if panel.value(point) is not None]
    if panel.banded:
        _band(planes, axes, lineage, shown, place)
    _older(planes, axes, lineage, panel, place)
    planes.trace(
        axes,
        mode="lines+markers+text",
        name=lineage.label,
        x=[place[point.name] for point in shown],
        y=[panel.value(point) for point in shown],
        text=[""] * (len(shown) - 1) + [html.escape(lineage.label)] * bool(shown),
        textposition=label_at,
        textfont={"size": theme.SMALL_FONT_SIZE},
        line={"color": colour, "width": 1.5},
        marker={"symbol": [_symbol(point) for point in shown], "size": 7},
        hovertext=[_hover(lineage, point) for point in shown],
        hoverinfo="text",
        cliponaxis=False,
    )


def _band(
    planes: Planes,
    axes: Axes,
    lineage: Lineage,
    shown: Sequence[LineagePoint],
    place: dict[str, int],
) -> None:
    """Between the ends of the 95 % intervals."""
    bounded = [p for p in shown if p.ratio_low is not None and p.ratio_high is not None]
    if len(bounded) > 1:
        planes.trace(
            axes,
            mode="none",
            name=f"95 % of {lineage.label}",
            x=[place[point.name] for point in (*bounded, *reversed(bounded))],
            y=[p.ratio_low for p in bounded] + [p.ratio_high for p in reversed(bounded)],
            fill="toself",
            fillcolor=f"{theme.colour(lineage.kernel)}{round(255 * BAND):02x}",
            hoverinfo="skip",
        )


def _older(
    planes: Planes, axes: Axes, lineage: Lineage, panel: _Panel, place: dict[str, int]
) -> None:
    """The older results of every version, faint."""
    newest = {point.result_id for point in lineage.newest}
    older = [
        point
        for point in lineage.points
        if point.result_id not in newest and panel.value(point) is not None
    ][-MOST_REPLICATES:]
    if older:
        planes.trace(
            axes,
            mode="markers",
            name="older results",
            x=[place[point.name] for point in older],
            y=[panel.value(point) for point in older],
            marker={"color": theme.colour(lineage.kernel), "opacity": 2 * BAND},
            hoverinfo="skip",
        )


def _changes(
    planes: Planes,
    axes: Axes,
    lineage: Lineage,
    panel: _Panel,
    marked: tuple[Sequence[Change], dict[str, int]],
) -> None:
    """A triangle around the point of each version that an alert is about."""
    changes, place = marked
    values = {point.name: panel.value(point) for point in lineage.newest}
    shown = [
        change
        for change in changes
        if (change.kernel, change.params) == (lineage.kernel, lineage.params)
        and change.metric == panel.metric
        and values.get(change.version) is not None
    ]
    if shown:
        planes.trace(
            axes,
            mode="markers+text",
            name="changes",
            x=[place[change.version] for change in shown],
            y=[values[change.version] for change in shown],
            text=[f" {change.state}" for change in shown],
            textposition="middle right",
            textfont={"size": theme.SMALL_FONT_SIZE},
            marker={
                "symbol": [
                    "triangle-up-open" if change.is_worse else "triangle-down-open"
                    for change in shown
                ],
                "color": [SLOWER if change.is_worse else FASTER for change in shown],
                "size": 16,
                "line": {"width": 2},
            },
            hovertext=[
                f"{html.escape(lineage.label)} {html.escape(change.version)}: {change.metric} "
                f"{'worse' if change.is_worse else 'better'}, {change.state}"
                for change in shown
            ],
            hoverinfo="text",
            cliponaxis=False,
        )


def _gap(point: LineagePoint) -> str:
    """Why a point has no number in a panel."""
    if point.outcome != Outcome.OK.value:
        return theme.OUTCOME_WORDS[Outcome(point.outcome)]
    interpreted = Flag.INTERPRETED.value in point.flags
    return theme.INTERPRETED if interpreted else theme.NOT_MEASURED


def _symbol(point: LineagePoint) -> str:
    return theme.symbol(Grade(point.grade) if point.grade else None)


def _hover(lineage: Lineage, point: LineagePoint) -> str:
    version = f"@{point.version}" if point.version else ""
    params = f"[{lineage.params}]" if lineage.params else ""
    lines = [
        f"<b>{html.escape(lineage.kernel + version + params)}</b>",
        f"{text.ratio(point.ratio)} of {html.escape(point.baseline)}, "
        f"95 % {text.interval(point.ratio_low, point.ratio_high)}",
        text.milliseconds(point.latency_ms),
        f"workspace {text.in_bytes(point.workspace_bytes)}",
        f"error {point.grade or 'not graded'}",
        text.moment(point.moment),
        *(flag.replace("_", " ") for flag in point.flags),
    ]
    return "<br>".join(lines)


HEADINGS = (
    "contender", "version", "measured", "outcome", "time, ms", "time / baseline (95 %)",
    "workspace", "error", "flags",
)  # fmt: skip


def lineage_markdown(lineages: Sequence[Lineage], where: str) -> str:
    """The newest result of each version as a table for a pull request."""
    lines = [f"**By version: {where}**", "", _row_of(HEADINGS), _row_of(["---"] * len(HEADINGS))]
    for lineage in lineages:
        for point in lineage.newest:
            bounds = text.interval(point.ratio_low, point.ratio_high)
            cells = [
                f"`{lineage.label}`",
                point.name,
                text.moment(point.moment),
                point.outcome.replace("_", " "),
                text.digits(point.latency_ms),
                f"{text.ratio(point.ratio)} ({bounds})",
                text.in_bytes(point.workspace_bytes),
                point.grade or text.NONE,
                ", ".join(point.flags),
            ]
            lines.append(_row_of(cells))
    return "\n".join(lines) + "\n"


def _row_of(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
