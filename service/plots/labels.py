"""Where the labels of marks stand, so that they neither meet each other nor cover a mark."""

from collections.abc import Sequence
from typing import NamedTuple

CHARACTER_PX, LINE_PX, GAP_PX, MARK_PX = 6.2, 13.0, 8.0, 6.0
PLACES = (
    "middle right", "middle left", "top center", "bottom center", "top right", "bottom right",
    "top left", "bottom left",
)  # fmt: skip
"""plotly's words, in the order they are tried."""

Box = tuple[float, float, float, float]
"""Left, top, right, bottom."""


class Label(NamedTuple):
    """A mark at (x, y) in pixels from the upper left corner, and its text."""

    x: float
    y: float
    text: str
    first: bool
    """Whether its label is placed before those of the others."""


def placed(labels: Sequence[Label], width: float, height: float) -> list[str]:
    """A place for each label, empty where none is free: the label is then left out."""
    marks = [(each.x - 5, each.y - 5, each.x + 5, each.y + 5) for each in labels]
    taken: list[Box] = []
    found = [""] * len(labels)
    order = sorted(range(len(labels)), key=lambda i: (not labels[i].first, labels[i].x, i))
    for index in order:
        label = labels[index]
        others = [box for place, box in enumerate(marks) if place != index]
        for place in PLACES:
            box = _box(label, place)
            inside = box[0] >= 0 and box[2] <= width and box[1] >= 0 and box[3] <= height
            if inside and not any(_meet(box, other) for other in (*taken, *others)):
                taken.append(box)
                found[index] = place
                break
    return found


def _box(label: Label, place: str) -> Box:
    """The rectangle of a label at a place, as plotly sets it."""
    wide = CHARACTER_PX * len(label.text)
    vertical, side = place.split()
    if side == "center":
        left = label.x - wide / 2
    else:
        left = label.x + GAP_PX if side == "right" else label.x - GAP_PX - wide
    middle = {"middle": 0.0, "top": -LINE_PX, "bottom": LINE_PX}[vertical]
    top = label.y + middle - LINE_PX / 2
    return left, top, left + wide, top + LINE_PX


def _meet(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
