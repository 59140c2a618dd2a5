"""One contender on one shape, as maps and their tables show it: words, tint, sign."""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from ..contract.words import Flag, Grade, Outcome
from . import text, theme

FULL = 1.0
"""log2 of the ratio at which the colour is full: half of the baseline's time, or twice as much."""
MOST_TINT = 40
"""Per cent of the colour in the fullest field: text on it keeps a contrast of 4.5 to 1."""


class Entry(Hashable, Protocol):
    """What a map needs of a contender's newest result on a shape."""

    @property
    def contender(self) -> str:
        """Name with version and params."""

    @property
    def result_id(self) -> str:
        """Id of the result."""

    @property
    def outcome(self) -> Outcome:
        """How it ended."""

    @property
    def latency_ms(self) -> float | None:
        """Time per call, ms."""

    @property
    def ratio_to_baseline(self) -> float | None:
        """Time over the baseline's."""

    @property
    def ratio_low(self) -> float | None:
        """Lower end of its 95 % interval."""

    @property
    def ratio_high(self) -> float | None:
        """Upper end."""

    @property
    def grade(self) -> Grade | None:
        """Error grade."""

    @property
    def flags(self) -> Sequence[Flag]:
        """What a reader must know."""

    @property
    def may_win(self) -> bool:
        """Whether its time counts."""


class Shape(Protocol):
    """One shape of a map with its contenders, those that count first, the fastest before all."""

    @property
    def tokens(self) -> int:
        """N."""

    @property
    def hidden(self) -> int:
        """H."""

    @property
    def vocab(self) -> int:
        """V."""

    @property
    def winner(self) -> str | None:
        """Fastest contender that counts."""

    @property
    def told_apart(self) -> bool | None:
        """Whether its interval lies below that of the next."""

    @property
    def entries(self) -> Sequence[Entry]:
        """Its contenders."""


@dataclass(frozen=True)
class Spot:
    """A field of a map. `status`: an outcome, or `not_measured`; `way`: of the interval."""

    contender: str
    result_id: str
    status: str
    words: str
    interval: str = ""
    way: str = ""
    tint: int = 0
    """-40 .. 40: per cent of the colour for less (negative) and for more time."""
    level: float | None = None
    """-1 .. 1: the same for a colour scale; None without a number."""
    grade: str = ""
    flags: tuple[str, ...] = ()
    counts: bool = False

    @property
    def warning(self) -> str:
        """Why a time does not count as a win, in words; empty where it does."""
        if self.level is None or self.counts:
            return ""
        if Flag.SUSPECT.value in self.flags:
            return "suspect"
        return "fast but inexact" if self.level < 0 else "inexact"


MISSING = Spot("", "", "not_measured", theme.NOT_MEASURED)


def level(ratio: float) -> float:
    """-1 .. 1: the root of log2 of a ratio, so that a few per cent show and nothing outshines.

    Below 0 is less time than the baseline; full from half, and from twice its time on.
    """
    log = math.log2(ratio)
    return math.copysign(math.sqrt(min(1.0, abs(log) / FULL)), log) if log else 0.0


@lru_cache(maxsize=8192)
def spot(entry: Entry) -> Spot:
    """The field of one contender on one shape; a page asks for it in the table and in each map."""
    flags = tuple(flag.value for flag in entry.flags)
    grade = entry.grade.value if entry.grade else ""
    ratio = entry.ratio_to_baseline if entry.outcome is Outcome.OK else None
    if ratio is None or ratio <= 0:
        status, words = _gap(entry)
        return Spot(entry.contender, entry.result_id, status, words, grade=grade, flags=flags)
    height = level(ratio)
    bounded = entry.ratio_low is not None and entry.ratio_low != entry.ratio_high
    return Spot(
        contender=entry.contender,
        result_id=entry.result_id,
        status="ok",
        words=text.ratio(ratio),
        interval=text.interval(entry.ratio_low, entry.ratio_high) if bounded else "",
        way=_way(entry),
        tint=round(MOST_TINT * height),
        level=height,
        grade=grade,
        flags=flags,
        counts=entry.may_win,
    )


def _gap(entry: Entry) -> tuple[str, str]:
    if entry.outcome is not Outcome.OK:
        return entry.outcome.value, theme.OUTCOME_WORDS[entry.outcome]
    if Flag.INTERPRETED in entry.flags:
        return "not_measured", theme.INTERPRETED
    return "not_measured", "no ratio" if entry.latency_ms is not None else theme.NOT_MEASURED


def _way(entry: Entry) -> str:
    """`faster` or `slower` where the interval says so, `even` where it holds 1."""
    if entry.ratio_low is None or entry.ratio_high is None or entry.ratio_low == entry.ratio_high:
        return ""
    if entry.ratio_high < 1:
        return "faster" if entry.may_win else ""
    return "slower" if entry.ratio_low > 1 else "even"


def winner_of(shape: Shape) -> Spot:
    """The field of a shape on the map of winners: its winner, or why there is none."""
    found = next((e for e in shape.entries if e.contender == shape.winner), None)
    if found is not None:
        return spot(found)
    fields = [spot(entry) for entry in shape.entries]
    if any(field.level is not None for field in fields):
        return Spot("", "", "not_measured", "none exact enough")
    same = {field.status for field in fields}
    if len(same) == 1 and fields:
        return Spot("", "", fields[0].status, f"all {fields[0].words}")
    return Spot("", "", "not_measured", "none ran")
