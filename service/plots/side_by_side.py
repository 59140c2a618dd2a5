"""Several candidates on the same cases: one line a case, one mark a candidate."""

import html
from collections.abc import Sequence
from typing import Any, NamedTuple

from . import text, theme
from .case_labels import case_labels
from .log_scale import Scale, draw_rule, log_axis
from .panels import Axes, Stack

MOST_LINES = 40
"""Cases of one figure, those that differ most; the table has the rest."""
BETWEEN = 0.5
"""Share of a line's height over which its marks are spread."""
SYMBOLS = (
    ("circle", "●"), ("square", "■"), ("diamond", "◆"), ("triangle-up", "▲"),
    ("cross", "✚"), ("triangle-down", "▼"), ("star", "★"),
)  # fmt: skip
"""plotly's marks with a sign for each; contenders beyond them begin anew."""


class Dot(NamedTuple):
    """One contender's number on one case, its 95 % interval, and whether its error counts."""

    value: float
    low: float | None = None
    high: float | None = None
    exact: bool = True


class Line(NamedTuple):
    """One case: a number for each contender, None where there is none."""

    label: str
    dots: Sequence[Dot | None]

    @property
    def spread(self) -> float:
        """The largest of its numbers over the smallest."""
        values = [dot.value for dot in self.dots if dot]
        return max(values) / min(values)


def side_by_side(
    lines: Sequence[Line], names: Sequence[str], scale: Scale
) -> dict[str, Any] | None:
    """Marks on a log axis, sorted by the first contender's number; None without any.

    `names`: the contenders, in the order of each line's dots. Whiskers are 95 % intervals.
    """
    found = [line for line in lines if any(dot is not None for dot in line.dots)]
    if not found:
        return None
    most = sorted(found, key=lambda line: (-line.spread, line.label))[:MOST_LINES]
    shown = sorted(most, key=_first)
    notes = [f"{_sign(place)[1]} {html.escape(name)}" for place, name in enumerate(names)]
    notes += [f"dashed: {scale.rule_words}", "hollow: its error does not count"]
    if len(shown) < len(found):
        notes.append(f"the {len(shown)} that differ most of {len(found)} cases")
    if len(found) < len(lines):
        without = text.plural(len(lines) - len(found), "case")
        notes.append(f"{without} without a number not drawn")
    stack = Stack(scale.title, notes)
    cases = case_labels([line.label for line in shown])
    ends = [end for line in shown for dot in line.dots if dot for end in _ends(dot)]
    heading = f"each line: one case, {cases.shared}".rstrip(", ")
    x_axis = log_axis(scale, min(*ends, scale.rule), max(*ends, scale.rule))
    axes = stack.add(heading, cases.lines, x_axis)
    draw_rule(stack, axes, scale, len(shown))
    for place, name in enumerate(names):
        _marks(stack, axes, (place, name), shown)
    return stack.figure()


def _first(line: Line) -> tuple[float, str]:
    """Sorts by the first contender that has a number."""
    return next(dot.value for dot in line.dots if dot), line.label


def _ends(dot: Dot) -> tuple[float, float, float]:
    return dot.value, dot.low or dot.value, dot.high or dot.value


def _apart(place: int, contenders: int) -> float:
    return (place - (contenders - 1) / 2) * BETWEEN / contenders


def _sign(place: int) -> tuple[str, str]:
    return SYMBOLS[place % len(SYMBOLS)]


def _marks(stack: Stack, axes: Axes, contender: tuple[int, str], shown: Sequence[Line]) -> None:
    place, name = contender
    rows = [(row, line, dot) for row, line in enumerate(shown) if (dot := line.dots[place])]
    symbol = _sign(place)[0]
    colour = theme.colour(name.partition("@")[0].partition("[")[0])
    stack.trace(
        axes,
        type="scatter",
        mode="markers",
        name=name,
        x=[dot.value for _, _, dot in rows],
        # a little apart, so that equal numbers do not hide each other
        y=[row + _apart(place, len(shown[0].dots)) for row, _, _ in rows],
        marker={
            "symbol": [symbol if dot.exact else f"{symbol}-open" for _, _, dot in rows],
            "color": colour,
            "size": 10,
        },
        error_x={
            "type": "data",
            "symmetric": False,
            "array": [_ends(dot)[2] - dot.value for _, _, dot in rows],
            "arrayminus": [dot.value - _ends(dot)[1] for _, _, dot in rows],
            "color": colour,
            "thickness": 1.5,
            "width": 3,
        },
        hovertext=[
            f"<b>{html.escape(name)}</b><br>{html.escape(line.label)}<br>{text.ratio(dot.value)}"
            + (f", 95 % {text.interval(dot.low, dot.high)}" if dot.low is not None else "")
            for _, line, dot in rows
        ],
        hoverinfo="text",
        cliponaxis=False,
    )
