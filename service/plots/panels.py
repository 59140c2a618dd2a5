"""What goes into a figure, and the stack of panels that all four families are drawn as.

One panel is one case and pass; its rows are contenders. Devices are never mixed: the device with
the most results is drawn and a note says what was left out.
"""

import html
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..contract.result import CellView, Result
from ..contract.words import CellState, Outcome, Pass
from . import text, theme

MAX_ROWS, MAX_PANELS = 240, 24
"""Rows and panels of one figure; further panels are left to the table."""
HEADING_PX, AXIS_PX, ROW_PX, TALL_ROW_PX, EMPTY_PX = 26, 50, 23, 31, 60
GUTTER = 0.08
"""Share of a column that is left free before the next one."""
WRAP_AT = 22
CHARACTER_PX = 6.8
"""Mean width of a character at the labels' font size."""

PASS_WORDS = {
    Pass.FORWARD: "forward",
    Pass.BACKWARD: "backward",
    Pass.FORWARD_BACKWARD: "forward + backward",
}


@dataclass(frozen=True)
class Gap:
    """A cell without a result, and the words that say why."""

    contender: str
    case: str
    pass_: Pass
    words: str


class Row(NamedTuple):
    """One contender in one panel; `gap` names why `value` is missing."""

    label: str
    result: Result | None
    value: float | None
    gap: str | None


@dataclass(frozen=True)
class Panel:
    """One case and pass with the results and gaps of all contenders drawn."""

    case: str
    pass_: Pass
    results: tuple[Result, ...]
    gaps: tuple[tuple[str, str], ...]

    @property
    def heading(self) -> str:
        """`N8192-H4096-V128256-bfloat16, forward + backward`."""
        return f"{self.case}, {PASS_WORDS[self.pass_]}"

    def rows(self, value: Callable[[Result], float | None]) -> list[Row]:
        """Rows sorted by value, smallest first; gaps last, by name."""
        found: list[Row] = []
        for result in self.results:
            number = value(result) if result.outcome is Outcome.OK else None
            words = theme.gap_words(result, number)
            found.append(Row(result.label, result, None if words else number, words))
        found += [Row(label, None, None, words) for label, words in self.gaps]
        return sorted(found, key=lambda row: (row.gap is not None, row.value or 0.0, row.label))


@dataclass(frozen=True)
class Selection:
    """What a figure shows: one device, the newest result of each cell, and notes on the rest."""

    device: str
    panels: tuple[Panel, ...]
    notes: tuple[str, ...]

    @property
    def results(self) -> list[Result]:
        """All results drawn."""
        return [result for panel in self.panels for result in panel.results]


def gaps_of(cells: Sequence[CellView]) -> list[Gap]:
    """The cells of a job that have no result: refused, open, or ended without one."""
    return [
        Gap(cell.contender, cell.case, cell.pass_, _cell_words(cell))
        for cell in cells
        if cell.result_id is None
    ]


def _cell_words(cell: CellView) -> str:
    if cell.outcome is not None:
        return theme.OUTCOME_WORDS[cell.outcome]
    return "running" if cell.state is CellState.RUNNING else "queued"


def select(results: Sequence[Result], gaps: Sequence[Gap] = ()) -> Selection:
    """Choose one device, keep the newest result of each cell, and group by case and pass."""
    devices = Counter((result.device_type, result.device_name) for result in results)
    if not devices:
        return Selection("no device", (), ("no results yet",))
    # on a tie the GPU wins, then the name: the choice must not depend on the order of rows
    chosen = max(devices, key=lambda key: (devices[key], key[0] == "cuda", key[1]))
    notes = [
        f"left out: {text.plural(number, 'result')} of {html.escape(name)} ({_kind(kind)})"
        for (kind, name), number in sorted(devices.items())
        if (kind, name) != chosen
    ]
    newest: dict[tuple[str, Pass, str], Result] = {}
    drawn = [result for result in results if (result.device_type, result.device_name) == chosen]
    for result in sorted(drawn, key=lambda result: result.ended_at):
        newest[result.case, result.pass_, result.label] = result
    if older := len(drawn) - len(newest):
        notes.append(f"{text.plural(older, 'older result')} of the same cells not drawn")
    panels = _panels(list(newest.values()), gaps)
    shown = _bounded(panels)
    if len(shown) < len(panels):
        notes.append(f"the first {len(shown)} of {len(panels)} cases; the table has all")
    return Selection(f"{html.escape(chosen[1])} ({_kind(chosen[0])})", shown, tuple(notes))


def _kind(device_type: str) -> str:
    return "GPU" if device_type == "cuda" else "CPU"


def _panels(results: Sequence[Result], gaps: Sequence[Gap]) -> tuple[Panel, ...]:
    labels = {result.contender: result.label for result in results}
    named = {(g.case, g.pass_, labels.get(g.contender, g.contender)): g.words for g in gaps}
    places: dict[tuple[str, Pass], list[Result]] = {}
    for result in results:
        places.setdefault((result.case, result.pass_), []).append(result)
    everyone = sorted({result.label for result in results} | {key[2] for key in named})
    panels: list[Panel] = []
    for case, pass_ in sorted(places, key=lambda place: (_size(place[0]), place[1])):
        here = places[case, pass_]
        present = {result.label for result in here}
        missing = [label for label in everyone if label not in present]
        words = tuple(
            (label, named.get((case, pass_, label), theme.NOT_MEASURED)) for label in missing
        )
        panels.append(Panel(case, pass_, tuple(here), words))
    return tuple(panels)


def _size(case: str) -> tuple[int, str]:
    return len(case), case


def _bounded(panels: Sequence[Panel]) -> tuple[Panel, ...]:
    shown: list[Panel] = []
    rows = 0
    for panel in panels:
        rows += len(panel.results) + len(panel.gaps)
        if shown and (rows > MAX_ROWS or len(shown) == MAX_PANELS):
            break
        shown.append(panel)
    return tuple(shown)


def wrapped(label: str) -> str:
    """A long label on two lines, broken before the params or the version."""
    if len(label) <= WRAP_AT:
        return label
    for mark in ("[", "@"):
        head, found, tail = label.partition(mark)
        if found:
            return f"{head}<br>{found}{tail}"
    return label


class Axes(NamedTuple):
    """Axis references of one panel."""

    x: str
    y: str


class _Drawn(NamedTuple):
    """One panel of a stack before it is placed."""

    heading: str
    short: str
    labels: list[str]
    x_axis: dict[str, Any]

    @property
    def height(self) -> int:
        tall = any("<br>" in label for label in self.labels)
        return max(1, len(self.labels)) * (TALL_ROW_PX if tall else ROW_PX)


class Stack:
    """Panels under each other, each with rows of equal height and an axis of its own.

    With `columns` above 1, `layout.meta.wide` holds what a wide page changes in the layout to set
    that many panels side by side; they must have the same rows.
    """

    def __init__(self, title: str, notes: Sequence[str] = (), columns: int = 1) -> None:
        self._title, self._notes, self._columns = title, tuple(notes), columns
        self._data: list[dict[str, Any]] = []
        self._panels: list[_Drawn] = []

    def add(
        self, heading: str, labels: Sequence[str], x_axis: dict[str, Any], short: str = ""
    ) -> Axes:
        """A new panel at the bottom; row i lies at y = i, downwards."""
        lines = [wrapped(label) for label in labels]
        self._panels.append(_Drawn(heading, short or heading, lines, x_axis))
        suffix = _suffix(len(self._panels) - 1)
        return Axes(f"x{suffix}", f"y{suffix}")

    def trace(self, axes: Axes, **properties: Any) -> None:
        """A trace in the panel behind `axes`."""
        self._data.append({**properties, "xaxis": axes.x, "yaxis": axes.y})

    def gaps(self, axes: Axes, rows: Sequence[Row], start: float = 0.0) -> None:
        """The words of every row without a number, at the left end of its row."""
        missing = [(place, row) for place, row in enumerate(rows) if row.gap]
        if missing:
            self.trace(
                axes,
                type="scatter",
                mode="text",
                name="gaps",
                x=[start] * len(missing),
                y=[place for place, _ in missing],
                text=[f"  {row.gap}" for _, row in missing],
                textposition="middle right",
                textfont={"style": "italic", "size": theme.SMALL_FONT_SIZE},
                hovertext=[_hover(row) for _, row in missing],
                hoverinfo="text",
                cliponaxis=False,
            )

    def figure(self) -> dict[str, Any]:
        """The figure as JSON-able data."""
        layout = self._layout(1)
        if self._columns > 1 and self._panels:
            wide = self._layout(self._columns)
            changed = {name: value for name, value in wide.items() if value != layout.get(name)}
            layout["meta"] = {"wide": changed}
        return {"data": self._data, "layout": layout}

    def _layout(self, columns: int) -> dict[str, Any]:
        lines = [self._panels[i : i + columns] for i in range(0, len(self._panels), columns)]
        heights = [max(panel.height for panel in line) for line in lines]
        total = sum(HEADING_PX + AXIS_PX + height for height in heights) or EMPTY_PX
        layout = theme.base_layout(self._title, self._notes, total)
        left = _left_margin([label for panel in self._panels for label in panel.labels])
        layout["margin"]["l"] = left
        layout["annotations"] = []
        if not self._panels:
            return layout | {"xaxis": {"visible": False}, "yaxis": {"visible": False}}
        top = total
        for number, (line, height) in enumerate(zip(lines, heights, strict=True)):
            upper = (top - HEADING_PX) / total
            domain = [max(0.0, upper - height / total), min(1.0, upper)]
            for column, panel in enumerate(line):
                index = number * columns + column
                x_domain = _x_domain(column, columns)
                _place(layout, panel, index, (x_domain, domain))
                heading = panel.heading if column == 0 else panel.short
                shift = 4 - left if column == 0 else 0
                layout["annotations"].append(_heading(heading, (x_domain[0], domain[1]), shift))
            top -= HEADING_PX + AXIS_PX + height
        return layout


def _hover(row: Row) -> str:
    reason = row.result.reason if row.result else None
    return html.escape(reason or row.gap or "")


def _suffix(index: int) -> str:
    return "" if index == 0 else str(index + 1)


def _x_domain(column: int, columns: int) -> list[float]:
    return [column / columns, (column + 1 - GUTTER * (column + 1 < columns)) / columns]


def _place(
    layout: dict[str, Any], panel: _Drawn, index: int, domains: tuple[list[float], list[float]]
) -> None:
    suffix = _suffix(index)
    layout[f"xaxis{suffix}"] = {
        **panel.x_axis,
        "domain": domains[0],
        "anchor": f"y{suffix}",
        "zeroline": False,
        "automargin": False,
    }
    layout[f"yaxis{suffix}"] = {
        "domain": domains[1],
        "anchor": f"x{suffix}",
        "range": [len(panel.labels) - 0.5, -0.5],
        "tickmode": "array",
        "tickvals": list(range(len(panel.labels))),
        "ticktext": panel.labels,
        "tickfont": {"size": theme.SMALL_FONT_SIZE},
        "showticklabels": domains[0][0] == 0,
        "fixedrange": True,
        "showgrid": False,
        "zeroline": False,
    }


def _left_margin(labels: Sequence[str]) -> int:
    # known beforehand, so that headings can start at the labels and not at the bars
    longest = max((len(line) for label in labels for line in label.split("<br>")), default=0)
    return round(16 + CHARACTER_PX * longest)


def _heading(heading: str, place: tuple[float, float], shift: int) -> dict[str, Any]:
    return {
        "text": heading,
        "xref": "paper",
        "yref": "paper",
        "x": place[0],
        "y": place[1],
        "xanchor": "left",
        "yanchor": "bottom",
        "xshift": shift,
        "showarrow": False,
        "font": {"size": theme.SMALL_FONT_SIZE},
    }
