"""Time over the baseline of the same process, release by release: one line a kernel and params."""

from collections.abc import Iterator, Sequence
from typing import Any

from ..contract.result import Result
from ..contract.words import Outcome
from . import text, theme
from .latency import speed
from .panels import Axes, Gap, Panel, Selection, select
from .planes import UP_STANDOFF, Planes, axis, label_place
from .versions import NO_VERSION, version_order

BAND = 0.15
"""Opacity of the band between the intervals' ends, and of older results of a version."""


def history(results: Sequence[Result], gaps: Sequence[Gap] = ()) -> dict[str, Any]:
    """One panel a case and pass; bands are 95 % intervals, faint marks older results.

    Versions are in the order of their numbers, commits and folders behind them by age.
    """
    selection = select(results, gaps)
    notes = (
        "band: 95 % of the newest result of a version · faint: older ones",
        *selection.notes,
    )
    planes = Planes(f"Time over the baseline by version on {selection.device}", notes)
    older = _older(results, selection)
    for panel in selection.panels:
        _panel(planes, panel, older.get((panel.case, panel.pass_), []))
    return planes.figure()


def _older(results: Sequence[Result], selection: Selection) -> dict[Any, list[Result]]:
    """What the selection left out as older, by case and pass; at most 1,000 a panel."""
    newest = {result.id for result in selection.results}
    devices = {(result.device_type, result.device_name) for result in selection.results}
    found: dict[Any, list[Result]] = {}
    for result in results:
        known = found.setdefault((result.case, result.pass_), [])
        here = (result.device_type, result.device_name) in devices
        if here and result.id not in newest and _ratio(result) is not None and len(known) < 1000:
            known.append(result)
    return found


def _ratio(result: Result) -> float | None:
    if result.outcome is not Outcome.OK or speed(result) is None:
        return None
    return 1.0 if result.contender == result.baseline else result.ratio_to_baseline


def _panel(planes: Planes, panel: Panel, older: Sequence[Result]) -> None:
    lines = list(_lines(panel))
    versions = version_order((r.version, r.ended_at) for _, members in lines for r in members)
    highest = max(
        (max(result.ratio_high or 0.0, _ratio(result) or 0.0) for _, m in lines for result in m),
        default=1.0,
    )
    place = {version: index for index, version in enumerate(versions)}
    x_axis = {
        "title": {"text": "version", "standoff": 4},
        "tickmode": "array",
        "tickvals": list(place.values()),
        "ticktext": versions,
        "range": [-0.5, max(0.5, len(versions) - 0.5)],
    }
    axes = planes.add(
        panel.heading, x_axis, axis("time / baseline (lower is better)", highest, UP_STANDOFF)
    )
    for index, (label, members) in enumerate(lines):
        ordered = sorted(members, key=lambda r: place[r.version or NO_VERSION])
        _line(planes, axes, (label, label_place(index)), ordered, place)
    drawn = [result for result in older if (result.version or NO_VERSION) in place]
    if drawn:
        planes.trace(
            axes,
            mode="markers",
            name="older results",
            x=[place[result.version or NO_VERSION] for result in drawn],
            y=[_ratio(result) for result in drawn],
            marker={"color": [theme.colour(r.kernel) for r in drawn], "opacity": 2 * BAND},
            hoverinfo="skip",
        )
    words = [f"{row.gap}: {row.label}" for row in panel.rows(_ratio) if row.gap]
    planes.words(axes, max(0.5, len(versions) - 0.5), words)


def _lines(panel: Panel) -> Iterator[tuple[str, list[Result]]]:
    """Results with a ratio by kernel and params."""
    found: dict[str, list[Result]] = {}
    for result in panel.results:
        if _ratio(result) is not None:
            name = f"{result.kernel}[{result.params}]" if result.params else result.kernel
            found.setdefault(name, []).append(result)
    yield from sorted(found.items())


def _line(
    planes: Planes,
    axes: Axes,
    named: tuple[str, str],
    members: Sequence[Result],
    place: dict[str, int],
) -> None:
    """The line of one kernel and params; `named`: its label, and where that stands."""
    label, label_at = named
    colour = theme.colour(members[0].kernel)
    xs = [place[result.version or NO_VERSION] for result in members]
    ys = [_ratio(result) or 0.0 for result in members]
    bounded = [
        (x, result.ratio_low, result.ratio_high)
        for x, result in zip(xs, members, strict=True)
        if result.ratio_low is not None and result.ratio_high is not None
    ]
    if len(bounded) > 1:
        planes.trace(
            axes,
            mode="none",
            name=f"95 % of {label}",
            x=[x for x, _, _ in bounded] + [x for x, _, _ in reversed(bounded)],
            y=[low for _, low, _ in bounded] + [high for _, _, high in reversed(bounded)],
            fill="toself",
            fillcolor=f"{colour}{round(255 * BAND):02x}",
            hoverinfo="skip",
        )
    planes.trace(
        axes,
        mode="lines+markers+text",
        name=label,
        x=xs,
        y=ys,
        text=[label if index == len(xs) - 1 else "" for index in range(len(xs))],
        textposition=label_at,
        textfont={"size": theme.SMALL_FONT_SIZE},
        line={"color": colour, "width": 1.5},
        marker={"symbol": [theme.symbol(result.grade) for result in members], "size": 7},
        hovertext=[_hover(result) for result in members],
        hoverinfo="text",
        cliponaxis=False,
    )


def _hover(result: Result) -> str:
    bounds = text.interval(result.ratio_low, result.ratio_high)
    return "<br>".join(
        [
            f"<b>{result.label}</b>",
            f"{text.ratio(_ratio(result))} of {result.baseline}, 95 % {bounds}",
            text.milliseconds(result.latency_ms),
            text.moment(result.started_at),
        ]
    )
