"""Who is fastest where: a winner map and a map of every contender, tokens by hidden and vocab."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ..contract.result import Result
from ..contract.words import Flag, Outcome
from . import text, theme
from .latency import speed
from .panels import Axes, Gap, Selection, Stack, select
from .report import COUNTED

MOST_MAPS = 40
FASTER, EVEN, SLOWER = "#2f7fc1", "#c9cdd2", "#d97514"
"""Blue: less time than the baseline. Never told by colour alone: each field has words."""
SPAN = 2.0
"""log2 of the ratio at which the colour is full: a fourth of the baseline's time, or four times."""

Field = tuple[float | None, str]
Columns = Sequence[tuple[int, int]]


def shape_map(results: Sequence[Result], gaps: Sequence[Gap] = ()) -> dict[str, Any]:
    """The map of winners, then one of each contender, over the pass and settings drawn most."""
    selection = select(results, gaps)
    shown, notes = _one_slice(selection)
    rows = sorted({result.tokens for result in shown})
    columns = sorted({(result.hidden, result.vocab) for result in shown})
    labels = sorted({result.label for result in shown})
    if len(labels) > MOST_MAPS:
        notes.append(f"the first {MOST_MAPS} of {len(labels)} contenders; the table has all")
    stack = Stack(f"Fastest contender by shape on {selection.device}", notes)
    if not shown:
        return stack.figure()
    by_place = {(r.label, r.tokens, (r.hidden, r.vocab)): r for r in shown}
    _map(stack, "fastest", (rows, columns), _winners(shown))
    for label in labels[:MOST_MAPS]:
        fields = {
            (tokens, column): _field(by_place.get((label, tokens, column)))
            for tokens in rows
            for column in columns
        }
        _map(stack, label, (rows, columns), fields)
    return stack.figure()


def _one_slice(selection: Selection) -> tuple[list[Result], list[str]]:
    counts = Counter(_slice(result) for result in selection.results)
    notes = ["time over the baseline of the same process; below 1 is faster", *selection.notes]
    if not counts:
        return [], notes
    chosen = max(counts, key=lambda key: (counts[key], key))
    if left := len(selection.results) - counts[chosen]:
        notes.append(f"left out: {text.plural(left, 'result')} of other passes and settings")
    notes.append(f"{chosen[0].replace('_', ' + ')}, {chosen[1]}")
    return [result for result in selection.results if _slice(result) == chosen], notes


def _slice(result: Result) -> tuple[str, str]:
    return result.pass_.value, result.case.split("-", 3)[-1]


def _ratio(result: Result) -> float | None:
    if result.outcome is not Outcome.OK or speed(result) is None:
        return None
    ratio = 1.0 if result.contender == result.baseline else result.ratio_to_baseline
    return ratio if ratio is not None and ratio > 0 else None


def _field(result: Result | None) -> Field:
    ratio = _ratio(result) if result is not None else None
    words = theme.gap_words(result, ratio)
    if words is not None or ratio is None or result is None:
        return None, words or theme.NOT_MEASURED
    grade = "" if result.grade in COUNTED else f" {result.grade or 'not graded'}"
    return math.log2(ratio), f"{text.ratio(ratio)}{grade}"


def _winners(shown: Sequence[Result]) -> dict[tuple[int, tuple[int, int]], Field]:
    """The fastest of each shape over the baseline that most share there; never an inexact one."""
    places: dict[tuple[int, tuple[int, int]], list[Result]] = {}
    for result in shown:
        places.setdefault((result.tokens, (result.hidden, result.vocab)), []).append(result)
    found: dict[tuple[int, tuple[int, int]], Field] = {}
    for place, members in places.items():
        timed = [result for result in members if _ratio(result) is not None]
        baselines = Counter(result.baseline for result in timed)
        shared = max(baselines, key=lambda name: (baselines[name], name), default="")
        able = [
            result
            for result in timed
            if result.baseline == shared
            and result.grade in COUNTED
            and Flag.SUSPECT not in result.flags
        ]
        if able:
            first = min(able, key=lambda result: (_ratio(result) or 0.0, result.label))
            ratio = _ratio(first) or 1.0
            found[place] = math.log2(ratio), f"{first.label} {text.ratio(ratio)}"
        else:
            found[place] = None, "none exact enough" if timed else "none ran"
    return found


def _map(
    stack: Stack,
    heading: str,
    places: tuple[Sequence[int], Columns],
    fields: Mapping[tuple[int, tuple[int, int]], Field],
) -> None:
    rows, columns = places
    x_axis = {
        "title": {"text": "hidden, vocab", "standoff": 4},
        "tickmode": "array",
        "tickvals": list(range(len(columns))),
        "ticktext": [f"H{hidden} V{vocab}" for hidden, vocab in columns],
        "range": [-0.5, len(columns) - 0.5],
    }
    axes = stack.add(heading, [f"N{tokens}" for tokens in rows], x_axis)
    none: Field = (None, theme.NOT_MEASURED)
    table = [[fields.get((tokens, column), none) for column in columns] for tokens in rows]
    stack.trace(
        axes,
        type="heatmap",
        name=heading,
        x=list(range(len(columns))),
        y=list(range(len(rows))),
        z=[[field[0] for field in line] for line in table],
        text=[["" if field[0] is None else field[1] for field in line] for line in table],
        texttemplate="%{text}",
        textfont={"size": theme.SMALL_FONT_SIZE},
        zmin=-SPAN,
        zmax=SPAN,
        colorscale=[[0, FASTER], [0.5, EVEN], [1, SLOWER]],
        showscale=False,
        xgap=2,
        ygap=2,
        hoverinfo="text",
    )
    _gaps(stack, axes, table)


def _gaps(stack: Stack, axes: Axes, table: Sequence[Sequence[Field]]) -> None:
    """Words of the fields without a number: in the page's own text colour, as nothing is filled."""
    gaps = [
        (x, y, field[1])
        for y, line in enumerate(table)
        for x, field in enumerate(line)
        if field[0] is None
    ]
    if gaps:
        stack.trace(
            axes,
            type="scatter",
            mode="text",
            name="gaps",
            x=[x for x, _, _ in gaps],
            y=[y for _, y, _ in gaps],
            text=[words for _, _, words in gaps],
            textfont={"style": "italic", "size": theme.SMALL_FONT_SIZE},
            hoverinfo="skip",
        )
