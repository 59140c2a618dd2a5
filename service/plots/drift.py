"""How one machine drifts: the time of the same baseline on the same case, over the days."""

import html
import statistics
from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any, NamedTuple

from . import text, theme
from .panels import Axes
from .planes import UP_STANDOFF, Planes

LEAST_SPAN = 0.01
"""Half of the axis holds at least so much, as a share, so that noise does not fill it."""
LEAST_TIMES = 3
"""Times of one baseline on one case; fewer have no usual time to be compared with."""
COLOURS = ("#2f7fc1", "#d97514", "#1f9a78", "#b3679b")
SYMBOLS = ("circle", "square", "diamond", "cross")
SIGNS = ("●", "■", "◆", "✚")


class BaselineTime(NamedTuple):
    """Time of a baseline beside one result."""

    moment: datetime
    latency_ms: float
    result_id: str
    environment_id: str


class DriftLine(NamedTuple):
    """One baseline on one case and pass; oldest first."""

    label: str
    times: Sequence[BaselineTime]

    @property
    def relative(self) -> list[float]:
        """Each time over the median of all."""
        usual = statistics.median(time.latency_ms for time in self.times)
        return [time.latency_ms / usual for time in self.times]


class Seen(NamedTuple):
    """What one comparison could see: the slowdown that nine in ten such comparisons find."""

    effect: float
    processes: int
    case: str
    measured_at: datetime


def detectable_by_case(seen: Sequence[Seen], most: int = 15) -> list[tuple[str, int, float]]:
    """By case, how many comparisons were made and their median detectable effect, least first."""
    by_case: dict[str, list[float]] = {}
    for each in seen:
        by_case.setdefault(each.case, []).append(each.effect)
    rows = [(case, len(found), statistics.median(found)) for case, found in by_case.items()]
    return sorted(rows, key=lambda row: row[2])[:most]


def drift_sentence(lines: Sequence[DriftLine]) -> str:
    """How far the same code varied, as nine in ten of its times did."""
    values = sorted(value for line in lines for value in line.relative)
    if len(values) < LEAST_TIMES:
        return "Too few times of the same baseline on the same case to tell how steady it is."
    ends = (values[round(0.05 * (len(values) - 1))], values[round(0.95 * (len(values) - 1))])
    low, high = (_percent(end) for end in ends)
    return (
        f"Nine in ten times of the same baseline on the same case lie within {low} and {high} of "
        f"the usual one ({text.plural(len(values), 'time')}, {text.plural(len(lines), 'case')})."
    )


def _percent(relative: float) -> str:
    return f"{100 * (relative - 1):+.1f} %".replace("-", "\N{MINUS SIGN}")


def drift_figure(lines: Sequence[DriftLine], device: str) -> dict[str, Any]:
    """A point a result and a line a case; rules stand where the environment changed."""
    notes = (
        "time / median of its case: only the machine moves it",
        *(f"{SIGNS[i % len(SIGNS)]} {html.escape(line.label)}" for i, line in enumerate(lines)),
        "dashed: the environment changed",
    )
    planes = Planes(f"The same code again on {html.escape(device)}", notes)
    values = [value for line in lines for value in line.relative]
    span = max([LEAST_SPAN, *(abs(value - 1) for value in values)]) * 1.15
    axes = planes.add(
        "time / median of its case",
        {
            "title": {"text": "when it was measured (UTC)", "standoff": 4},
            "type": "date",
            "nticks": 6,
        },
        {
            "title": {"text": "time / median (1 is usual)", "standoff": UP_STANDOFF},
            "range": [1 - span, 1 + span],
            "nticks": 6,
        },
    )
    _rules(planes, axes, _changes(lines), span)
    for index, line in enumerate(lines):
        planes.trace(
            axes,
            mode="markers",
            name=line.label,
            x=[_day(time.moment) for time in line.times],
            y=line.relative,
            marker={
                "size": 7,
                "color": COLOURS[index % len(COLOURS)],
                "symbol": SYMBOLS[index % len(SYMBOLS)],
            },
            hovertext=[
                f"<b>{html.escape(line.label)}</b><br>{text.milliseconds(time.latency_ms)}, "
                f"{_percent(value)}<br>{text.moment(time.moment)}"
                for time, value in zip(line.times, line.relative, strict=True)
            ],
            hoverinfo="text",
        )
    return planes.figure()


def _rules(planes: Planes, axes: Axes, changes: Sequence[datetime], span: float) -> None:
    """A dashed rule at each moment."""
    if changes:
        planes.trace(
            axes,
            mode="lines",
            name="environment",
            x=[at for moment in changes for at in (_day(moment), _day(moment), None)],
            y=[end for _ in changes for end in (1 - span, 1 + span, None)],
            line={"color": theme.NEUTRAL, "dash": "dash", "width": 1},
            meta=theme.RULE,
            hoverinfo="skip",
        )


def _changes(lines: Sequence[DriftLine]) -> list[datetime]:
    """Moments from which another environment measured."""
    seen = sorted((time.moment, time.environment_id) for line in lines for time in line.times)
    return [after[0] for before, after in pairwise(seen) if before[1] != after[1]]


def _day(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M:%S")
