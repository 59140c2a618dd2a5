"""The map of winners and one map of each contender, from the fields that the table shows too."""

import html
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from . import text, theme
from .panels import Axes, Stack
from .spots import MISSING, Shape, Spot, spot, winner_of

MOST_MAPS = 12
SIDE_BY_SIDE = 6
"""Most columns of a map that still leave room for a second map beside it."""
SIGNS = {
    "out_of_memory": "■", "wrong": "✗", "unsupported": "–", "timed_out": "◷", "failed": "!",
    "cancelled": "○", "not_measured": "·",
}  # fmt: skip
WAYS = {"faster": "▼", "slower": "▲", "even": "="}
INEXACT = "*"
LEGEND = (
    "time over the baseline of the same process",
    "▼ less, ▲ more, = interval holds 1, * does not count",
    "■ out of memory · ✗ wrong · – unsupported",
    "◷ timed out · ! failed · ○ cancelled · · not measured",
)
COOL, EVEN, WARM = "#74a9da", "#e4e7ea", "#eda35a"
"""Less, the same, and more time: light enough for `INK` on all of them, on either page."""
INK = "#1b2027"


class Grid(NamedTuple):
    """Rows (tokens), columns (hidden, vocab) and the shapes between them."""

    rows: Sequence[int]
    columns: Sequence[tuple[int, int]]
    shapes: Mapping[tuple[int, tuple[int, int]], Shape]


def grid(shapes: Sequence[Shape]) -> Grid:
    """Shapes by tokens and by hidden and vocab, each in rising order."""
    return Grid(
        rows=sorted({shape.tokens for shape in shapes}),
        columns=sorted({(shape.hidden, shape.vocab) for shape in shapes}),
        shapes={(shape.tokens, (shape.hidden, shape.vocab)): shape for shape in shapes},
    )


def contender_maps(
    shapes: Sequence[Shape], contenders: Sequence[str], device: str
) -> dict[str, Any]:
    """One heat map of the winners, then one of each contender, at most `MOST_MAPS` of them."""
    notes = [*LEGEND]
    if len(contenders) > MOST_MAPS:
        notes.append(f"the first {MOST_MAPS} of {len(contenders)} contenders; filter to see others")
    places = grid(shapes)
    columns = 2 if len(places.columns) <= SIDE_BY_SIDE else 1
    stack = Stack(f"Time by shape on {html.escape(device)}", notes, columns)
    if not shapes:
        return stack.figure()
    winners = {place: winner_of(shape) for place, shape in places.shapes.items()}
    _draw(stack, "fastest that counts", places, winners)
    for contender in contenders[:MOST_MAPS]:
        _draw(stack, contender, places, fields_of(contender, places))
    return stack.figure()


def fields_of(contender: str, places: Grid) -> dict[tuple[int, tuple[int, int]], Spot]:
    """The fields of one contender by place; a shape it was not measured on has none."""
    found = {}
    for place, shape in places.shapes.items():
        entry = next((e for e in shape.entries if e.contender == contender), None)
        if entry is not None:
            found[place] = spot(entry)
    return found


def _draw(
    stack: Stack,
    heading: str,
    places: Grid,
    fields: Mapping[tuple[int, tuple[int, int]], Spot],
) -> None:
    rows, columns = places.rows, places.columns
    x_axis = {
        "title": {"text": "hidden size and vocabulary", "standoff": 4},
        "tickmode": "array",
        "tickvals": list(range(len(columns))),
        "ticktext": [f"H{hidden}<br>V{vocab}" for hidden, vocab in columns],
        "range": [-0.5, len(columns) - 0.5],
        "showgrid": False,
    }
    axes = stack.add(html.escape(heading), [f"N{tokens}" for tokens in rows], x_axis)
    table = [[fields.get((tokens, column), MISSING) for column in columns] for tokens in rows]
    stack.trace(
        axes,
        type="heatmap",
        name=heading,
        x=list(range(len(columns))),
        y=list(range(len(rows))),
        z=[[field.level for field in line] for line in table],
        text=[["" if field.level is None else _words(field) for field in line] for line in table],
        texttemplate="%{text}",
        textfont={"size": theme.SMALL_FONT_SIZE, "color": INK},
        hovertext=[[_hover(field, heading) for field in line] for line in table],
        zmin=-1,
        zmax=1,
        colorscale=[[0, COOL], [0.5, EVEN], [1, WARM]],
        showscale=False,
        xgap=2,
        ygap=2,
        hoverinfo="text",
        hoverongaps=False,
    )
    _gaps(stack, axes, table, heading)


def _gaps(stack: Stack, axes: Axes, table: Sequence[Sequence[Spot]], heading: str) -> None:
    """The sign of every field without a number, in the page's own text colour."""
    gaps = [
        (x, y, field)
        for y, line in enumerate(table)
        for x, field in enumerate(line)
        if field.level is None
    ]
    if gaps:
        stack.trace(
            axes,
            type="scatter",
            mode="text",
            name="gaps",
            x=[x for x, _, _ in gaps],
            y=[y for _, y, _ in gaps],
            text=[SIGNS.get(field.status, "·") for _, _, field in gaps],
            hovertext=[_hover(field, heading) for _, _, field in gaps],
            hoverinfo="text",
        )


def _words(field: Spot) -> str:
    mark = INEXACT if field.warning else WAYS.get(field.way, "")
    return f"{mark}{field.words.rstrip('×')}"


def _hover(field: Spot, heading: str) -> str:
    lines = [f"<b>{html.escape(field.contender or heading)}</b>", field.words]
    if field.interval:
        lines.append(f"95 % {field.interval}")
    if field.level is not None:
        lines.append(f"error {field.grade or 'not graded'}")
    lines += [field.warning] * bool(field.warning)
    lines += [flag.replace("_", " ") for flag in field.flags]
    return "<br>".join(lines)


def map_markdown(shapes: Sequence[Shape], device: str, settings: str) -> str:
    """The map of winners as a table for a pull request."""
    places = grid(shapes)
    head = ["tokens", *(f"H{hidden} V{vocab}" for hidden, vocab in places.columns)]
    lines = [f"**Fastest contender by shape on {device}, {settings}**", "", _line(head)]
    lines.append(_line(["---:"] + ["---"] * len(places.columns)))
    for tokens in places.rows:
        shown = [places.shapes.get((tokens, column)) for column in places.columns]
        lines.append(_line([str(tokens), *(_cell(shape) for shape in shown)]))
    note = "Times the baseline's of the same process; below 1 is faster. ≈: not told apart from "
    return "\n".join([*lines, "", note + "the next."]) + "\n"


def _cell(shape: Shape | None) -> str:
    if shape is None:
        return theme.NOT_MEASURED
    field = winner_of(shape)
    if field.level is None:
        return field.words
    near = " ≈" if shape.told_apart is False else ""
    bounds = f" ({field.interval})" if field.interval else ""
    return f"`{field.contender}` {field.words}{bounds}, {field.grade or text.NONE}{near}"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
