"""What detectors of changes find, against what they tell of series in which nothing changed."""

import html
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from . import theme
from .planes import UP_STANDOFF, Planes, axis

NONE_AT = 0.5
"""Where no false alarm at all is drawn: a logarithmic axis has no zero."""
TICKS = {NONE_AT: "0", 1.0: "1", 10.0: "10", 100.0: "100", 1000.0: "1,000"}
COLOURS = {"lossbench": theme.colour("flce"), "asv": theme.NEUTRAL, "Otava": theme.colour("liger")}
SYMBOLS = (("circle", "●"), ("square", "■"), ("diamond", "◆"), ("triangle-up", "▲"))
DRAWN = ("1 %", "2 %")
"""Steps in the figure; larger ones are found by all of them."""


class Score(NamedTuple):
    """One detector on one kind of noise: false alarms in 1,000 clean series, percent of hits."""

    noise: str
    detector: str
    false_alarms: float
    hits: Mapping[str, float]
    """By step, such as `2 %`."""
    elsewhere: float
    """Changes told elsewhere in 100 series with a step."""


def scores_of(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[Score]:
    """Scores from the table that `tests/benchmarks/detection.py` prints."""
    steps = {
        place: name.removesuffix(" hit") for place, name in enumerate(columns) if " hit" in name
    }
    return [
        Score(
            row[0],
            row[1],
            float(row[2]),
            {step: float(row[place].removesuffix(" %")) for place, step in steps.items()},
            float(row[-1]),
        )
        for row in rows
    ]


def detectors_of(scores: Sequence[Score]) -> list[str]:
    """All detectors, in the order of the table."""
    return list(dict.fromkeys(score.detector for score in scores))


def detector_figure(scores: Sequence[Score]) -> dict[str, Any]:
    """Hits against false alarms: one mark a kind of noise, one kind of mark a detector."""
    signs = _signs(detectors_of(scores))
    notes = [f"{sign} {html.escape(name)}" for name, (_, sign, _) in signs.items()]
    notes += ["each mark: one kind of noise", "better: up and to the left"]
    planes = Planes("Steps found, and false alarms", notes, columns=2)
    for step in DRAWN:
        up = axis("steps found, % (higher is better)", 100.0, UP_STANDOFF) | {"range": [0, 106]}
        axes = planes.add(f"steps of {step}", _across(), up)
        for name, (symbol, _, colour) in signs.items():
            shown = [score for score in scores if score.detector == name]
            planes.trace(
                axes,
                mode="markers",
                name=name,
                x=[max(NONE_AT, score.false_alarms) for score in shown],
                y=[score.hits[step] for score in shown],
                marker={"symbol": symbol, "color": colour, "size": 9},
                hovertext=[
                    f"<b>{html.escape(name)}</b><br>{html.escape(score.noise)}<br>"
                    f"{score.hits[step]:g} % found, {score.false_alarms:g} false in 1,000"
                    for score in shown
                ],
                hoverinfo="text",
                cliponaxis=False,
            )
    return planes.figure()


def _across() -> dict[str, Any]:
    return {
        "title": {"text": "false alarms in 1,000 clean series (lower is better)", "standoff": 4},
        "type": "log",
        "range": [-0.45, 3.05],
        "tickmode": "array",
        "tickvals": list(TICKS),
        "ticktext": list(TICKS.values()),
    }


def _signs(detectors: Sequence[str]) -> dict[str, tuple[str, str, str]]:
    """plotly's symbol, its sign and the colour of each detector; one tool has one colour."""
    seen: dict[str, int] = {}
    found = {}
    for name in detectors:
        tool = name.split()[0].rstrip(",")
        place = seen[tool] = seen.get(tool, -1) + 1
        symbol, sign = SYMBOLS[place % len(SYMBOLS)]
        found[name] = (symbol, sign, COLOURS.get(tool, theme.NEUTRAL))
    return found
