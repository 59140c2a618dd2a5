"""How figures look: one colour per kernel lineage, patterns, marker shapes, words of a gap.

Colours are picked to differ in lightness as well as hue and to keep 3:1 against a white and a
near-black page; blue and orange carry the meaning, red against green never does.
"""

import textwrap
import zlib
from collections.abc import Sequence
from typing import Any

from ..contract.result import Result
from ..contract.words import Flag, Grade, Outcome

LINEAGE_COLOURS = {
    "flce": "#d97514",
    "liger": "#2f7fc1",
    "cce": "#b3679b",
    "quack": "#1f9a78",
    "fla": "#a88d14",
    "geiping": "#c9502b",
    "torch-naive": "#7d8590",
    "torch-upcast": "#8d95a0",
    "torch-compile": "#5277a8",
    "torch-compile-chunked": "#3696cd",
    "torch-native": "#5f8f93",
}
_OTHERS = ("#8f6fc2", "#6d8f3c", "#a5705a", "#4f8fae")

PATTERNS = ("", "/", ".", "x", "\\", "-", "|", "+")
"""Tell versions and params of one kernel apart, in the order they appear."""

GRADE_SYMBOLS = {
    Grade.EXACT: "circle",
    Grade.FAIR: "square",
    Grade.COARSE: "triangle-up",
    Grade.POOR: "x",
}
UNGRADED_SYMBOL = "diamond-open"

OUTCOME_WORDS = {
    Outcome.OK: "ok",
    Outcome.OUT_OF_MEMORY: "out of memory",
    Outcome.WRONG: "wrong",
    Outcome.UNSUPPORTED: "unsupported",
    Outcome.TIMED_OUT: "timed out",
    Outcome.FAILED: "failed",
    Outcome.CANCELLED: "cancelled",
}
NOT_MEASURED = "not measured"
INTERPRETED = "no speed: Triton interpreter"

NEUTRAL = "#858d98"
"""Whiskers, floor and yardstick lines: readable on dark and on light."""
RULE = "rule"
"""`meta` of floor and yardstick lines: a page draws them in its own text colour."""
BOTTOM = 8
"""Margin below the last panel, in pixels."""
FONT_SIZE = 12
SMALL_FONT_SIZE = 11


def colour(kernel: str) -> str:
    """The colour of a kernel lineage; the same on every page and every day."""
    if kernel in LINEAGE_COLOURS:
        return LINEAGE_COLOURS[kernel]
    return _OTHERS[zlib.crc32(kernel.encode()) % len(_OTHERS)]


def patterns(results: Sequence[Result]) -> dict[str, str]:
    """Pattern of every label: the first version of a kernel is plain, the next ones are hatched."""
    seen: dict[str, list[str]] = {}
    for label, kernel in sorted({(result.label, result.kernel) for result in results}):
        seen.setdefault(kernel, []).append(label)
    return {
        label: PATTERNS[place % len(PATTERNS)]
        for labels in seen.values()
        for place, label in enumerate(labels)
    }


def symbol(grade: Grade | None) -> str:
    """Marker shape of an error grade."""
    return UNGRADED_SYMBOL if grade is None else GRADE_SYMBOLS[grade]


def gap_words(result: Result | None, value: float | None) -> str | None:
    """Why this result has no number here, or None where it has one."""
    if result is None:
        return NOT_MEASURED
    if result.outcome is not Outcome.OK:
        return OUTCOME_WORDS[result.outcome]
    if value is not None:
        return None
    return INTERPRETED if Flag.INTERPRETED in result.flags else NOT_MEASURED


NOTE_CHARACTERS = 60
"""Of one line under a title: as many as a phone shows."""


def _lines(note: str) -> list[str]:
    """A note in lines; a word, such as a contender's name, stays whole."""
    return textwrap.wrap(note, NOTE_CHARACTERS, break_long_words=False, break_on_hyphens=False)


def base_layout(title: str, notes: Sequence[str], height: int) -> dict[str, Any]:
    """Layout that all figures share. Colours of text and grid come from the page's script.

    `height` is that of the panels; the title's lines come on top of it.
    """
    lines = [line for note in notes for line in _lines(note)]
    below = "".join(f"<br><span style='font-size:{SMALL_FONT_SIZE}px'>{n}</span>" for n in lines)
    top = 34 + 17 * len(lines)
    return {
        "title": {
            "text": f"<b>{title}</b>{below}",
            "x": 0,
            "xref": "container",
            "xanchor": "left",
            # plotly measures a title of several lines from the baseline of its first
            "y": 1 - 20 / (height + top + BOTTOM),
            "yref": "container",
            "yanchor": "bottom",
            "font": {"size": 14},
            "pad": {"l": 4},
        },
        "font": {"size": FONT_SIZE, "family": "system-ui, sans-serif"},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "height": height + top + BOTTOM,
        "margin": {"l": 12, "r": 12, "t": top, "b": BOTTOM, "pad": 4},
        "showlegend": False,
        "bargap": 0.3,
        "hovermode": "closest",
    }
