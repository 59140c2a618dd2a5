"""Times that other benchmarks published, as their tables say them: apart from what is measured."""

import html
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from . import text, theme
from .lineages import MOST_REPLICATES, Lineage
from .planes import UP_STANDOFF, Planes, axis


class Imported(NamedTuple):
    """Lineages of another benchmark's table on one case, pass and device."""

    case: str
    pass_: str
    """In words."""
    device: str
    lineages: Sequence[Lineage]

    @property
    def heading(self) -> str:
        """Where they were measured."""
        return f"{self.case}, {self.pass_}, {self.device}"


def imported_sentences(groups: Sequence[Imported]) -> list[str]:
    """How published times moved from version to version, over cases. They are no verdict."""
    ratios: dict[tuple[str, str, str, str], list[float]] = {}
    for group in groups:
        for lineage in group.lineages:
            timed = [(p.name, p.latency_ms) for p in lineage.newest if p.latency_ms]
            for (before, first_ms), (after, then_ms) in pairwise(timed):
                step = (lineage.label, f"{group.pass_}, {group.device}", before, after)
                ratios.setdefault(step, []).append(then_ms / first_ms)
    return [
        f"Published: {label} {after} takes {_range(found)} the time of {before} "
        f"({where}, {text.plural(len(found), 'case')}). Not measured here, so no verdict."
        for (label, where, before, after), found in ratios.items()
    ]


def _range(ratios: Sequence[float]) -> str:
    low, high = text.ratio(min(ratios)), text.ratio(max(ratios))
    return low if low == high else f"{low} to {high}"


def imported_figure(groups: Sequence[Imported]) -> dict[str, Any]:
    """Time of imported results by the day they were measured; nobody checked them here."""
    notes = ["as their authors published them", "no interval, no error, no memory"]
    devices = {group.device for group in groups}
    if len(devices) == 1:
        notes.append(f"on {html.escape(devices.pop())}")
    planes = Planes("Imported, not measured here", notes, columns=2)
    for group in groups:
        times = [p.latency_ms or 0.0 for lineage in group.lineages for p in lineage.points]
        axes = planes.add(
            html.escape(f"{group.case}, {group.pass_}" if len(notes) > 2 else group.heading),
            {
                "title": {"text": "day of the measurement", "standoff": 4},
                "type": "date",
                "nticks": 5,
            },
            axis("time per call, ms (lower is better)", max(times, default=1.0), UP_STANDOFF),
        )
        for index, lineage in enumerate(group.lineages):
            points = sorted(lineage.points, key=lambda point: point.moment)[-MOST_REPLICATES:]
            planes.trace(
                axes,
                mode="lines+markers+text",
                name=lineage.label,
                x=[point.moment.strftime("%Y-%m-%d %H:%M") for point in points],
                y=[point.latency_ms for point in points],
                text=[html.escape(f"{lineage.kernel} {point.version or ''}") for point in points],
                textposition="bottom center" if index % 2 else "top center",
                textfont={"size": theme.SMALL_FONT_SIZE},
                line={"color": theme.colour(lineage.kernel), "width": 1.5, "dash": "dot"},
                marker={"symbol": theme.UNGRADED_SYMBOL, "size": 7},
                hovertext=[
                    f"{html.escape(lineage.label)} {text.milliseconds(p.latency_ms)}"
                    for p in points
                ],
                hoverinfo="text",
                cliponaxis=False,
            )
    return planes.figure()
