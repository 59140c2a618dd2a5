"""Cases beside the rows of a figure: on two lines, and what all of them share is said once."""

import html
import re
from collections.abc import Sequence
from typing import NamedTuple

_SHAPE_PARTS = 3
"""Tokens, hidden, vocab lead a case's text."""


class CaseLabels(NamedTuple):
    """Labels in the order of the cases, and what they all have in common."""

    lines: list[str]
    shared: str


def case_labels(labels: Sequence[str]) -> CaseLabels:
    """`N8192-H4096-V128256`, and below it only what tells a case from the others."""
    split = [_parts(label) for label in labels]
    rests = [rest for _, rest in split]
    common = [part for part in rests[0] if all(part in rest for rest in rests)] if rests else []
    lines = []
    for shape, rest in split:
        own = " ".join(part for part in rest if part not in common)
        lines.append(html.escape(shape) + (f"<br>{html.escape(own)}" if own else ""))
    return CaseLabels(lines, html.escape(" ".join(common)))


def _parts(label: str) -> tuple[str, list[str]]:
    """The shape of a case, and dtype, options, pass one by one."""
    parts = label.split("-", _SHAPE_PARTS)
    if len(parts) <= _SHAPE_PARTS:
        return label, []
    return "-".join(parts[:_SHAPE_PARTS]), re.split(r"[- ]", parts[_SHAPE_PARTS])
