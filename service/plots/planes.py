"""Panels with two numeric axes, stacked under each other: memory against time, history."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from . import theme
from .panels import AXIS_PX, EMPTY_PX, HEADING_PX, Axes

PANEL_PX = 250
LEFT_PX = 82
GUTTER = 0.2
"""Share of a column that is left free for the axis of the next one."""
UP_STANDOFF = 6
"""Pixels between the numbers of a vertical axis and its title."""
WORDS_PX = 14
"""Height of a line of words."""
MOST_WORDS = 6
MOST_STRIP = 0.5
"""Largest share of a panel that words take from its points."""
HEADROOM = 1.12
"""Length of an axis over its largest value, so that marks and words stay inside."""


LABEL_PLACES = ("top center", "bottom center", "middle right", "middle left")
"""Labels of neighbours take turns, so that fewer of them meet."""


def label_place(index: int) -> str:
    """Where the label of a point stands."""
    return LABEL_PLACES[index % len(LABEL_PLACES)]


class _Plane(NamedTuple):
    heading: str
    x_axis: dict[str, Any]
    y_axis: dict[str, Any]


class Planes:
    """A figure of numeric panels. Colours of text and grid come from the page's script.

    With `columns` above 1, `layout.meta.wide` holds what a wide page changes in the layout to set
    that many panels side by side.
    """

    def __init__(self, title: str, notes: Sequence[str], columns: int = 1) -> None:
        self._title, self._notes, self._columns = title, tuple(notes), columns
        self._data: list[dict[str, Any]] = []
        self._panels: list[_Plane] = []

    def add(self, heading: str, x_axis: dict[str, Any], y_axis: dict[str, Any]) -> Axes:
        """A new panel at the bottom."""
        self._panels.append(_Plane(heading, x_axis, y_axis))
        suffix = "" if len(self._panels) == 1 else str(len(self._panels))
        return Axes(f"x{suffix}", f"y{suffix}")

    def trace(self, axes: Axes, **properties: Any) -> None:
        """A scatter trace on one panel."""
        self._data.append({"type": "scatter", **properties, "xaxis": axes.x, "yaxis": axes.y})

    def words(self, axes: Axes, right: float, lines: Sequence[str]) -> None:
        """Lines of what has no number here, in a strip that the axis gets above its points.

        `right`: where the horizontal axis ends. At most `MOST_WORDS`; the others are counted.
        """
        if not lines:
            return
        shown = list(lines[:MOST_WORDS])
        if len(lines) > MOST_WORDS:
            shown.append(f"and {len(lines) - MOST_WORDS} more")
        height = sum(line.count("<br>") + 1 for line in shown) * WORDS_PX
        scale = self._panels[int(axes.y[1:] or 1) - 1].y_axis
        low, high = scale["range"]
        high = low + (high - low) / (1 - min(MOST_STRIP, height / PANEL_PX))
        scale["range"] = [low, high]
        self.trace(
            axes,
            mode="text",
            name="gaps",
            x=[right],
            y=[10**high if scale.get("type") == "log" else high],
            text=["<br>".join(shown)],
            textposition="bottom left",
            textfont={"style": "italic", "size": theme.SMALL_FONT_SIZE},
            hoverinfo="skip",
            cliponaxis=False,
        )

    def figure(self) -> dict[str, Any]:
        """The figure as JSON-able data."""
        layout = self._layout(1)
        columns = min(self._columns, len(self._panels))
        if columns > 1:
            wide = self._layout(columns)
            changed = {name: value for name, value in wide.items() if value != layout.get(name)}
            layout["meta"] = {"wide": changed}
        return {"data": self._data, "layout": layout}

    def _layout(self, columns: int) -> dict[str, Any]:
        each = HEADING_PX + PANEL_PX + AXIS_PX
        total = each * -(-len(self._panels) // columns) or EMPTY_PX
        layout = theme.base_layout(self._title, self._notes, total)
        layout["margin"]["l"] = LEFT_PX
        layout["annotations"] = []
        if not self._panels:
            layout |= {"xaxis": {"visible": False}, "yaxis": {"visible": False, "domain": [0, 1]}}
        for index, panel in enumerate(self._panels):
            line, column = divmod(index, columns)
            upper = (total - line * each - HEADING_PX) / total
            across = [column / columns, (column + 1 - GUTTER * (column + 1 < columns)) / columns]
            up = [max(0.0, upper - PANEL_PX / total), min(1.0, upper)]
            _place(layout, panel, index, (across, up))
        return layout


def _place(
    layout: dict[str, Any],
    panel: _Plane,
    index: int,
    domains: tuple[list[float], list[float]],
) -> None:
    suffix = "" if index == 0 else str(index + 1)
    shared = {"zeroline": False, "automargin": False}
    layout[f"xaxis{suffix}"] = {
        **shared, **panel.x_axis, "domain": domains[0], "anchor": f"y{suffix}",
    }  # fmt: skip
    layout[f"yaxis{suffix}"] = {
        **shared, **panel.y_axis, "domain": domains[1], "anchor": f"x{suffix}",
    }  # fmt: skip
    layout["annotations"].append(
        {
            "text": panel.heading, "xref": "paper", "yref": "paper",
            "x": domains[0][0], "y": domains[1][1], "xanchor": "left", "yanchor": "bottom",
            "xshift": 4 - LEFT_PX, "showarrow": False,
            "font": {"size": theme.SMALL_FONT_SIZE},
        }
    )  # fmt: skip


def axis(title: str, largest: float, standoff: int = 4) -> dict[str, Any]:
    """A linear axis from zero; a vertical one needs a `standoff` of `UP_STANDOFF`."""
    return {
        "title": {"text": title, "standoff": standoff},
        "range": [0, (largest or 1.0) * HEADROOM],
        "nticks": 6,
    }
