"""Fronts of memory against time from what `GET /pareto` answers: the figure, words and Markdown."""

import html
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ..contract.words import Flag, Grade, Outcome, Pass
from . import text, theme
from .panels import PASS_WORDS
from .pareto import FAST, LEGEND, Mark, draw_front, inexact_words, tempting
from .planes import Planes


class Point(Protocol):
    """A contender on one case."""

    @property
    def contender(self) -> str:
        """Name with version and params."""

    @property
    def kernel(self) -> str:
        """Kernel alone."""

    @property
    def params(self) -> str:
        """Settings alone."""

    @property
    def outcome(self) -> Outcome:
        """How it ended."""

    @property
    def latency_ms(self) -> float | None:
        """Time per call, ms."""

    @property
    def workspace_bytes(self) -> int | None:
        """Peak extra memory."""

    @property
    def grade(self) -> Grade | None:
        """Error grade."""

    @property
    def worst_output(self) -> str | None:
        """Output with the largest error."""

    @property
    def flags(self) -> Sequence[Flag]:
        """What a reader must know."""

    @property
    def may_win(self) -> bool:
        """Whether its time counts."""

    @property
    def on_front(self) -> bool:
        """Whether nothing that counts beats it in both."""


class CaseFront(Protocol):
    """All contenders of one case, pass and device."""

    @property
    def case(self) -> str:
        """Case in its text form."""

    @property
    def pass_(self) -> Pass:
        """Which pass."""

    @property
    def device_name(self) -> str:
        """Device."""

    @property
    def points(self) -> Sequence[Point]:
        """Its contenders."""


def fronts_figure(fronts: Sequence[CaseFront]) -> dict[str, Any]:
    """One panel a front, two side by side on a wide page."""
    devices = sorted({front.device_name for front in fronts})
    title = f"Workspace against time on {html.escape(', '.join(devices) or 'no device')}"
    planes = Planes(title, LEGEND, columns=2)
    for front in fronts:
        heading = f"{front.case}, {PASS_WORDS[front.pass_]}"
        if len(devices) > 1:
            heading += f", {html.escape(front.device_name)}"
        words = [
            f"{_gap(point)}: {point.contender}" for point in front.points if _mark(point) is None
        ]
        draw_front(planes, heading, marks_of(front), words)
    return planes.figure()


def _mark(point: Point) -> Mark | None:
    if point.latency_ms is None or point.workspace_bytes is None:
        return None
    head = point.contender.partition("[")[0]
    return Mark(
        point.contender,
        point.kernel,
        head.partition("@")[2],
        point.params,
        point.latency_ms,
        point.workspace_bytes,
        point.grade,
        point.may_win,
        Flag.SUSPECT in point.flags,
    )


def marks_of(front: CaseFront) -> list[Mark]:
    """The points of a front that have both a time and a workspace."""
    return [mark for point in front.points if (mark := _mark(point)) is not None]


def _gap(point: Point) -> str:
    if point.outcome is not Outcome.OK:
        return theme.OUTCOME_WORDS[point.outcome]
    return theme.INTERPRETED if Flag.INTERPRETED in point.flags else theme.NOT_MEASURED


def inexact_on(front: CaseFront) -> dict[str, str]:
    """Contenders that only their error keeps off the front, with the words for each."""
    marks = marks_of(front)
    return {mark.label: inexact_words(mark, marks) for mark in tempting(marks)}


def front_sentence(front: CaseFront) -> str:
    """What a front says: its fastest, its smallest, and what its error keeps off it."""
    on = [point for point in front.points if point.on_front]
    if not on:
        return "No contender has a time, a workspace and an error that counts."
    first = min(on, key=lambda point: point.latency_ms or 0.0)
    last = min(on, key=lambda point: point.workspace_bytes or 0)
    parts = [f"Fastest: {_numbers(first)}.", f"Least workspace: {_numbers(last)}."]
    if last is first:
        parts = [f"Fastest, and with the least workspace: {_numbers(first)}."]
    named: dict[str, list[str]] = {}
    for label, words in inexact_on(front).items():
        named.setdefault(words, []).append(label)
    parts += [f"{words.capitalize()}: {', '.join(labels)}." for words, labels in named.items()]
    return " ".join(parts)


def inexact_sentence(fronts: Sequence[CaseFront]) -> str:
    """Over several fronts: which contenders are fast, or small, but inexact, and where."""
    named: dict[str, dict[str, int]] = {}
    for front in fronts:
        for label, words in inexact_on(front).items():
            counts = named.setdefault(words, {})
            counts[label] = counts.get(label, 0) + 1
    said = [
        f"{words.capitalize()}: "
        + ", ".join(f"{label} in {count} of {len(fronts)}" for label, count in found.items())
        + "."
        for words, found in sorted(named.items())
    ]
    if FAST not in named:
        said.insert(0, "No contender is fast but inexact here.")
    return " ".join(said)


def _numbers(point: Point) -> str:
    size = text.in_bytes(point.workspace_bytes)
    return f"{point.contender} ({text.milliseconds(point.latency_ms)}, {size})"


HEADINGS = (
    "contender", "outcome", "time, ms", "workspace", "error", "on the front", "flags",
)  # fmt: skip


def fronts_markdown(fronts: Sequence[CaseFront]) -> str:
    """The tables for a pull request."""
    blocks = []
    for front in fronts:
        lines = [f"**`{front.case}`, {PASS_WORDS[front.pass_]} on {front.device_name}**", ""]
        lines += [_line(HEADINGS), _line(["---"] * len(HEADINGS))]
        inexact = inexact_on(front)
        lines += [_line(_cells(point, inexact)) for point in front.points]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + "\n"


def _cells(point: Point, inexact: Mapping[str, str]) -> list[str]:
    place = "yes" if point.on_front else inexact.get(point.contender, "no")
    return [
        f"`{point.contender}`",
        theme.OUTCOME_WORDS[point.outcome],
        text.digits(point.latency_ms),
        text.in_bytes(point.workspace_bytes),
        str(point.grade or text.NONE),
        place,
        ", ".join(flag.value for flag in point.flags),
    ]


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
