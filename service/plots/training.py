"""A training: its loss curves, how far they go from the reference's, speed and memory."""

import html
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from . import text, theme
from .history import BAND
from .markdown import markdown_table
from .panels import Axes
from .planes import UP_STANDOFF, Planes, axis

MOST_LINES = 24
"""Curves of the first panel; the table has every run."""
CURVE_POINTS = 400
"""Points that are asked for of each curve."""


class Curve(Protocol):
    """One run's loss by step."""

    @property
    def contender(self) -> str:
        """Who was trained."""

    @property
    def seed(self) -> int:
        """Which seed."""

    @property
    def steps(self) -> Sequence[int]:
        """Steps from 1."""

    @property
    def values(self) -> Sequence[float | None]:
        """Loss; None where it is not finite."""


def training_figure(
    contenders: Sequence[Any], curves: Sequence[Curve], where: str
) -> dict[str, Any]:
    """Four panels. `contenders` are those of `GET /training/{id}`, the reference first."""
    compared = [each for each in contenders if each.curve is not None]
    notes = [html.escape(where), "loss: one line a run", "difference: mean over seeds"]
    notes += [f"{shade} band: {name}" for shade, name, _, _ in _bands(compared)]
    if len(curves) > MOST_LINES:
        notes.append(f"the first {MOST_LINES} of {len(curves)} runs are drawn")
    planes = Planes("Loss, difference, speed and memory", notes, columns=2)
    _losses(planes, curves[:MOST_LINES])
    _differences(planes, compared)
    named = [each for each in contenders if each.role != "control"]
    _speeds(planes, named)
    _memory(planes, named)
    return planes.figure()


def _kernel(contender: str) -> str:
    return contender.partition("@")[0].partition("[")[0]


def _steps_axis(last: int) -> dict[str, Any]:
    return {
        "title": {"text": "step", "standoff": 4},
        "range": [0, max(1, last) * 1.02],
        "nticks": 5,
    }


def _losses(planes: Planes, curves: Sequence[Curve]) -> None:
    known = [value for curve in curves for value in curve.values if value is not None]
    last = max((curve.steps[-1] for curve in curves if curve.steps), default=1)
    low, high = min(known, default=0.0), max(known, default=1.0)
    room = 0.06 * (high - low or 1.0)
    up = axis("training loss (lower is better)", high, UP_STANDOFF)
    axes = planes.add("loss", _steps_axis(last), up | {"range": [low - room, high + room]})
    seeds = sorted({curve.seed for curve in curves})
    for curve in curves:
        planes.trace(
            axes,
            mode="lines",
            name=f"{curve.contender}, seed {curve.seed}",
            x=list(curve.steps),
            y=list(curve.values),
            line={"color": theme.colour(_kernel(curve.contender)), "width": 1.2},
            opacity=1.0 if curve.seed == seeds[0] else 0.35,
            hoverinfo="name+x+y",
        )


def _differences(planes: Planes, contenders: Sequence[Any]) -> None:
    ends = [
        abs(value)
        for each in contenders
        for value in (*each.curve.difference, *each.curve.rounding, *each.curve.seeds)
        if value is not None
    ]
    most = max(ends, default=0.0) * 1.1 or 1.0
    last = max((each.curve.steps[-1] for each in contenders), default=1)
    up = axis("loss less the reference's (0: the same)", most, UP_STANDOFF)
    axes = planes.add(
        "difference to the reference", _steps_axis(last), up | {"range": [-most, most]}
    )
    for shade, name, steps, halves in _bands(contenders):
        _band(planes, axes, name, steps, halves, 2 * BAND if shade == "dark" else BAND)
    for each in contenders:
        known = [
            (step, value)
            for step, value in zip(each.curve.steps, each.curve.difference, strict=True)
            if value is not None
        ]
        planes.trace(
            axes,
            mode="lines+markers",
            name=each.contender,
            x=[step for step, _ in known],
            y=[value for _, value in known],
            line={
                "color": theme.colour(_kernel(each.contender)),
                "width": 1.5,
                "dash": "dot" if each.role == "control" else "solid",
            },
            marker={"size": 5},
            hoverinfo="name+x+y",
        )


def _bands(
    contenders: Sequence[Any],
) -> list[tuple[str, str, Sequence[int], Sequence[float | None]]]:
    """Shade, name, steps and half widths of the bands that are known.

    They are those of the first contender: the control is not judged by itself and has no band of
    rounding.
    """
    judged = [each for each in contenders if each.role == "contender"] or list(contenders)
    found = [
        (shade, name, each.curve.steps, halves)
        for each in judged[:1]
        for shade, name, halves in (
            ("light", "other seeds alone", each.curve.seeds),
            ("dark", "rounding alone", each.curve.rounding),
        )
    ]
    return [band for band in found if sum(half is not None for half in band[3]) > 1]


def _band(
    planes: Planes,
    axes: Axes,
    name: str,
    steps: Sequence[int],
    halves: Sequence[float | None],
    opacity: float,
) -> None:
    known = [(s, half) for s, half in zip(steps, halves, strict=True) if half is not None]
    planes.trace(
        axes,
        mode="none",
        name=name,
        x=[step for step, _ in (*known, *reversed(known))],
        y=[half for _, half in known] + [-half for _, half in reversed(known)],
        fill="toself",
        fillcolor=f"{theme.NEUTRAL}{round(255 * opacity):02x}",
        hoverinfo="skip",
    )


def _named_axis(contenders: Sequence[Any]) -> dict[str, Any]:
    return {
        "title": {"text": "contender", "standoff": 4},
        "tickmode": "array",
        "tickvals": list(range(len(contenders))),
        "ticktext": [html.escape(_kernel(each.contender)) for each in contenders],
        "range": [-0.5, max(0.5, len(contenders) - 0.5)],
    }


def _speeds(planes: Planes, contenders: Sequence[Any]) -> None:
    most = max((each.tokens_per_s or 0.0 for each in contenders), default=1.0)
    up = axis("tokens per second (higher is better)", most, UP_STANDOFF)
    axes = planes.add("tokens per second", _named_axis(contenders), up)
    _dots(planes, axes, contenders, ("circle", lambda each: each.tokens_per_s, text.digits))


def _memory(planes: Planes, contenders: Sequence[Any]) -> None:
    most = max((each.peak_bytes or 0 for each in contenders), default=1)
    unit, size = text.byte_unit(most)
    up = axis(f"{unit} (lower is better)", most / size, UP_STANDOFF)
    heading = "memory: ● peak of the step, ■ workspace of the loss"
    axes = planes.add(heading, _named_axis(contenders), up)
    for symbol, name in (("circle", "peak_bytes"), ("square", "workspace_bytes")):

        def value(each: Any, name: str = name) -> float | None:
            found = getattr(each, name)
            return None if found is None else float(found) / size

        _dots(planes, axes, contenders, (symbol, value, lambda v: f"{text.digits(v)} {unit}"))


def _dots(
    planes: Planes,
    axes: Axes,
    contenders: Sequence[Any],
    drawn: tuple[str, Callable[[Any], float | None], Callable[[float], str]],
) -> None:
    symbol, value, words = drawn
    found = [(at, each, v) for at, each in enumerate(contenders) if (v := value(each)) is not None]
    if found:
        planes.trace(
            axes,
            mode="markers",
            name="medians over seeds",
            x=[at for at, _, _ in found],
            y=[v for _, _, v in found],
            marker={
                "symbol": symbol,
                "size": 10,
                "color": [theme.colour(_kernel(each.contender)) for _, each, _ in found],
            },
            hovertext=[
                f"<b>{html.escape(each.contender)}</b><br>{words(v)}" for _, each, v in found
            ],
            hoverinfo="text",
            cliponaxis=False,
        )


HEADINGS = (
    "contender",
    "verdict",
    "perplexity / reference (95 %)",
    "tokens/s",
    "peak",
    "workspace",
)


def training_markdown(title: str, contenders: Sequence[Any]) -> str:
    """The contenders of a training as a table for a pull request."""
    rows = [
        [
            f"`{each.contender}`",
            each.verdict or each.role,
            text.NONE if each.ratio is None else f"{each.ratio:.4f} ({bounds_of(each)})",
            text.digits(each.tokens_per_s),
            text.in_bytes(each.peak_bytes),
            text.in_bytes(each.workspace_bytes),
        ]
        for each in contenders
    ]
    return f"**{title}**\n\n{markdown_table(list(HEADINGS), rows)}"


def bounds_of(contender: Any) -> str:
    """`0.9987 – 1.0012`: the interval of its perplexity over the reference's."""
    if contender.low is None or contender.high is None:
        return text.NONE
    return f"{contender.low:.4f} – {contender.high:.4f}"


def verdict_sentence(contender: Any, reference: str) -> str:
    """What paired seeds say of one contender."""
    pairs = text.plural(contender.pairs, "pair") + " of seeds"
    if contender.verdict is None:
        return f"{contender.contender}: no pair of seeds has ended yet."
    if contender.ratio is None:
        return f"{contender.contender} is {contender.verdict}: {contender.reason} ({pairs})."
    interval = "" if contender.low is None else f", 95 % {bounds_of(contender)}"
    head = (
        f"{contender.contender} {_AS[str(contender.verdict)]} {reference}: perplexity "
        f"{contender.ratio:.4f} × its own{interval} ({pairs})."
    )
    needed = contender.seeds_needed
    return head if needed is None else f"{head} About {needed} seeds would decide."


_AS = {
    "same": "trains as well as",
    "worse": "trains worse than",
    "better": "trains better than",
    "inconclusive": "is undecided against",
}
