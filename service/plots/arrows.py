"""Before and after, case by case: an arrow from the base's number to the candidate's."""

import html
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from . import text, theme
from .case_labels import case_labels
from .panels import Axes, Stack
from .shape_map import FASTER, SLOWER

MOST_ARROWS = 40
"""Arrows of one figure, those that moved most; the table has the rest."""
TICK_STEPS = (
    (1,), (2, 5), (1.5, 3, 7), (1.2, 4), tuple(n / 20 for n in range(20, 200)),
    tuple(n / 100 for n in range(100, 1000)),
)  # fmt: skip
"""Numbers on the axis, the roundest first."""
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


class Scale(NamedTuple):
    """What the arrows are of: the title of the figure, of the axis, and a rule with its words."""

    title: str
    axis: str
    rule: float
    rule_words: str


FLOOR = Scale(
    "Distance to the floor", "time / floor (lower is better)", 1.0, "the floor: the bare products"
)
ERROR = Scale(
    "Worst error over torch's own",
    "error / torch's own (lower is better)",
    1.0,
    "torch's own error in this dtype",
)


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
    axes = stack.add(heading, cases.lines, _axis(scale, low, high))
    _rule(stack, axes, scale, len(shown))
    _draw(stack, axes, shown)
    return stack.figure()


def _axis(scale: Scale, low: float, high: float) -> dict[str, Any]:
    # at least a fifth of an octave, so that equal numbers do not look far apart
    span = max(math.log10(high / low), 0.06)
    left, right = math.log10(low) - 0.06 * span, math.log10(high) + 0.4 * span
    ticks = _ticks(10**left, 10**right)
    return {
        "title": {"text": scale.axis, "standoff": 4},
        "type": "log",
        "range": [left, right],
        "tickmode": "array",
        "tickangle": 0,
        "tickvals": ticks,
        "ticktext": [f"{tick:g}" for tick in ticks],
    }


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers, at most five, far enough apart for a phone."""
    least = 0.22 * math.log10(high / low)
    kept: list[float] = []
    for steps in TICK_STEPS:
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        for tick in (step * 10.0**power for power in powers for step in steps):
            apart = all(abs(math.log10(tick / other)) >= least for other in kept)
            if low <= tick <= high and apart:
                kept.append(tick)
        if len(kept) > 2:
            break
    return sorted(kept)


def _rule(stack: Stack, axes: Axes, scale: Scale, rows: int) -> None:
    stack.trace(
        axes,
        type="scatter",
        mode="lines",
        name="rule",
        x=[scale.rule, scale.rule],
        y=[-0.5, rows - 0.5],
        line={"color": theme.NEUTRAL, "dash": "dash", "width": 1.5},
        meta=theme.RULE,
        hoverinfo="skip",
    )


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
