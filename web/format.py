"""Jinja filters: how numbers, times and words of the project are written on a page."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

from markupsafe import Markup, escape

from lossbench.service.plots import text, theme, verdicts
from lossbench.service.plots.error import OUTPUT_WORDS
from lossbench.service.plots.panels import PASS_WORDS

GLYPHS: Mapping[str, str] = {
    "ok": "✓",
    "out_of_memory": "■",
    "wrong": "✗",
    "unsupported": "–",
    "timed_out": "◷",
    "failed": "!",
    "cancelled": "○",
    "queued": "·",
    "running": "◐",
    "done": "✓",
    "not_measured": "",
}
"""One sign for each outcome and state, so that none is told by colour alone."""

STATUS_WORDS: Mapping[str, str] = {
    **{outcome.value: words for outcome, words in theme.OUTCOME_WORDS.items()},
    "queued": "queued",
    "running": "running",
    "done": "done",
    "not_measured": theme.NOT_MEASURED,
}

GRADE_GLYPHS: Mapping[str, str] = {"exact": "●", "fair": "■", "coarse": "▲", "poor": "✕"}
VERDICT_GLYPHS: Mapping[str, str] = {
    "faster": "▼",
    "slower": "▲",
    "no_difference": "=",
    "inconclusive": "?",
    "not_measured": "",
}
TREND_GLYPHS: Mapping[str, str] = {"faster": "▼", "slower": "▲"}
"""Down is less time."""
WAY_GLYPHS: Mapping[str, str] = {**TREND_GLYPHS, "even": "="}


def ago(value: datetime | None) -> str:
    """`just now`, `4 min 10 s ago`, or the date when it is longer than a day ago."""
    if value is None:
        return text.NONE
    seconds = (datetime.now(UTC) - value).total_seconds()
    if seconds < 2:
        return "just now"
    return f"{text.duration(seconds)} ago" if seconds < 86_400 else text.moment(value)


def iso(value: datetime) -> str:
    """For the `datetime` attribute of `<time>`."""
    return value.isoformat(timespec="seconds")


def breakable(label: str) -> Markup:
    """A contender's name that breaks before its version or params rather than inside a word."""
    safe = str(escape(label))
    return Markup(safe.replace("@", "<wbr>@").replace("[", "<wbr>[").replace("=", "=<wbr>"))


def heat(tint: int) -> str:
    """Background of a field of a map: blue for less time, orange for more, -40 .. 40 per cent."""
    side = "better" if tint < 0 else "worse"
    return f"background:color-mix(in srgb, var(--{side}) {abs(tint)}%, var(--card))"


ENVIRONMENT_FACTS: Sequence[tuple[str, str, str]] = (
    ("driver", "driver", ""),
    ("cuda", "CUDA", ""),
    ("torch", "torch", ""),
    ("triton", "Triton", ""),
    ("python", "Python", ""),
    ("power_limit_w", "power limit", " W"),
)
"""Facts shown as chips: their name in the record, on the page, and the unit."""


class Known(Protocol):
    """An environment: its device and what was recorded of it."""

    @property
    def device_name(self) -> str:
        """Name of the device."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """Driver, torch and so on, by name."""


def facts_in_common(environments: Sequence[Known]) -> list[tuple[str, str, bool]]:
    """Facts of some environments: name, value, and whether they differ; values are then joined."""
    found = []
    for fact_name, name, unit in (("", "", ""), *ENVIRONMENT_FACTS):
        values = [
            str(each.facts.get(fact_name, text.NONE)) if fact_name else each.device_name
            for each in environments
        ]
        different = list(dict.fromkeys(values))
        if different and different != [text.NONE]:
            found.append((name, " / ".join(f"{v}{unit}" for v in different), len(different) > 1))
    return found


_UNITS: Mapping[str, str] = {
    "w": "W", "mhz": "MHz", "c": "°C", "ms": "ms", "us": "µs", "s": "s", "tflops": "TFLOP/s",
    "gbps": "GB/s", "gb_per_s": "GB/s",
}  # fmt: skip


def fact(name: str, value: Any) -> tuple[str, str]:
    """Name and text of a recorded fact; the unit moves from its name to its value."""
    unit = next((u for u in sorted(_UNITS, key=len, reverse=True) if name.endswith(f"_{u}")), "")
    if name.endswith("_bytes") and isinstance(value, int):
        return _plain(name.removesuffix("_bytes")), text.in_bytes(value)
    if unit and isinstance(value, int | float) and not isinstance(value, bool):
        return _plain(name.removesuffix(f"_{unit}")), f"{_number(value)} {_UNITS[unit]}"
    if isinstance(value, bool):
        return _plain(name), "yes" if value else "no"
    if isinstance(value, Mapping):
        return _plain(name), ", ".join(f"{key}: {part}" for key, part in value.items())
    if isinstance(value, list | tuple):
        return _plain(name), ", ".join(map(str, value))
    return _plain(name), text.NONE if value is None else _number(value)


def _plain(name: str) -> str:
    return name.replace("_", " ")


def _number(value: object) -> str:
    """A float at 4 significant digits; anything else as it is."""
    if isinstance(value, float):
        return text.digits(value, 4) if value != int(value) else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def facts(named: Mapping[str, Any]) -> list[tuple[str, str]]:
    """All recorded facts as names and texts."""
    return [fact(name, value) for name, value in named.items()]


FILTERS: Mapping[str, Callable[..., Any]] = {
    "digits": text.digits,
    "ms": text.milliseconds,
    "ratio": text.ratio,
    "in_bytes": text.in_bytes,
    "duration": text.duration,
    "moment": text.moment,
    "plural": text.plural,
    "ago": ago,
    "iso": iso,
    "glyph": lambda word: GLYPHS.get(str(word), "?"),
    "words": lambda word: STATUS_WORDS.get(str(word), str(word)),
    "grade_glyph": lambda word: GRADE_GLYPHS.get(str(word), ""),
    "trend_glyph": lambda word: TREND_GLYPHS.get(str(word), ""),
    "way_glyph": lambda word: WAY_GLYPHS.get(str(word), ""),
    "heat": heat,
    "pair": lambda word: (str(word), str(word)),
    "pass_pair": lambda word: (str(word), PASS_WORDS[word]),
    "verdict_glyph": lambda word: VERDICT_GLYPHS.get(str(word), ""),
    "verdict_words": lambda word: verdicts.VERDICT_WORDS.get(word, str(word)),
    "percent": verdicts.percent,
    "fine_ratio": verdicts.fine_ratio,
    "pass_words": lambda word: PASS_WORDS[word],
    "colour": theme.colour,
    "breakable": breakable,
    "facts": facts,
    "facts_in_common": facts_in_common,
    "output_words": lambda word: OUTPUT_WORDS.get(str(word), str(word)),
    "flag": lambda word: str(word).replace("_", " "),
}
