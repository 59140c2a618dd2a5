"""Before and after, case by case: an arrow from the base's number to the candidate's."""

import html
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from . import text, theme
from .case_labels import case_labels
from .log_scale import Scale, draw_rule, log_axis
from .panels import Axes, Stack
from .shape_map import FASTER, SLOWER

MOST_ARROWS = 40
"""Arrows of one figure, those that moved most; the table has the rest."""
STILL = 0.005
"""Numbers whose ratio is nearer to 1 than this have not moved."""


class Arrow(NamedTuple):
    """Two numbers of one case; less is better."""

    label: str
    before: float
    after: float

    @property
    def moved(self) -> float:
        """log2 of after over before."""
        return math.log2(self.after / self.before)


def arrows(
    pairs: Sequence[tuple[str, float | None, float | None]], scale: Scale, base: str, cand: str
) -> dict[str, Any] | None:
    """Arrows from base to candidate on a log axis, the best candidate first; None without any."""
    found = [
        Arrow(label, before, after)
        for label, before, after in pairs
        if before is not None and after is not None and before > 0 and after > 0
    ]
    if not found:
        return None
    most = sorted(found, key=lambda arrow: (-abs(arrow.moved), arrow.label))[:MOST_ARROWS]
    shown = sorted(most, key=lambda arrow: (arrow.after, arrow.label))
    notes = [
        f"○ {html.escape(base)} → ● {html.escape(cand)}",
        f"number: of {html.escape(cand)}",
        f"dashed: {scale.rule_words}",
    ]
    if len(shown) < len(found):
        notes.append(f"the {len(shown)} that moved most of {len(found)} cases")
    if len(found) < len(pairs):
        notes.append(f"{text.plural(len(pairs) - len(found), 'case')} without both not drawn")
    stack = Stack(scale.title, notes)
    ends = [end for arrow in shown for end in (arrow.before, arrow.after)] + [scale.rule]
    low, high = min(ends), max(ends)
    cases = case_labels([arrow.label for arrow in shown])
    heading = f"each arrow: one case, {cases.shared}".rstrip(", ")
    axes = stack.add(heading, cases.lines, log_axis(scale, low, high))
    draw_rule(stack, axes, scale, len(shown))
    _draw(stack, axes, shown)
    return stack.figure()


def _way(arrow: Arrow) -> str:
    if abs(arrow.after / arrow.before - 1) < STILL:
        return theme.NEUTRAL
    return FASTER if arrow.after < arrow.before else SLOWER


def _draw(stack: Stack, axes: Axes, shown: Sequence[Arrow]) -> None:
    for colour in (FASTER, SLOWER, theme.NEUTRAL):
        rows = [(place, arrow) for place, arrow in enumerate(shown) if _way(arrow) == colour]
        if not rows:
            continue
        stack.trace(
            axes,
            type="scatter",
            mode="lines+markers",
            name={FASTER: "less", SLOWER: "more"}.get(colour, "the same"),
            x=[end for _, arrow in rows for end in (arrow.before, arrow.after, None)],
            y=[end for place, _ in rows for end in (place, place, None)],
            line={"color": colour, "width": 2},
            marker={
                "size": 9,
                "symbol": [sign for _ in rows for sign in ("circle-open", "circle", "circle")],
            },
            hoverinfo="skip",
        )
    stack.trace(
        axes,
        type="scatter",
        mode="text",
        name="words",
        x=[max(arrow.before, arrow.after) for arrow in shown],
        y=list(range(len(shown))),
        # the candidate's number alone: both would not fit on a phone, and the table has them
        text=[f"   {text.ratio(arrow.after)}" for arrow in shown],
        textposition="middle right",
        textfont={"size": theme.SMALL_FONT_SIZE},
        hovertext=[html.escape(arrow.label) for arrow in shown],
        hoverinfo="text",
        cliponaxis=False,
    )
