"""Where a lineage changed from one version to the next, in words: slower, faster, repaired."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from . import text
from .lineages import Lineage, LineagePoint

MOST_GAP = 8
"""Versions named that nobody measured; more are counted."""


class Step(NamedTuple):
    """Two versions next to each other whose times differ: their 95 % intervals do not meet."""

    before: LineagePoint
    after: LineagePoint
    way: str
    """`slower` or `faster`."""
    repaired: LineagePoint | None = None
    """Of a slowdown: the first later version that is not above the time before it."""


def steps_of(lineage: Lineage) -> list[Step]:
    """The steps of a lineage in the order of its versions; only over the same baseline."""
    timed = [point for point in lineage.newest if point.ratio is not None]
    found = []
    for place, (before, after) in enumerate(pairwise(timed)):
        if before.baseline != after.baseline:
            continue
        if _below(before, after):
            later = (p for p in timed[place + 2 :] if p.baseline == before.baseline)
            repaired = next((point for point in later if not _below(before, point)), None)
            found.append(Step(before, after, "slower", repaired))
        elif _below(after, before):
            found.append(Step(before, after, "faster"))
    return found


def _below(one: LineagePoint, other: LineagePoint) -> bool:
    """Whether the whole interval of one lies below that of the other."""
    return one.ratio_high is not None and (
        other.ratio_low is not None and one.ratio_high < other.ratio_low
    )


def between(before: str, after: str, known: Sequence[str]) -> Sequence[str]:
    """Known versions that lie between two of them; none where one is unknown."""
    if before not in known or after not in known:
        return ()
    return known[known.index(before) + 1 : known.index(after)]


def step_sentences(lineage: Lineage, known: Sequence[str] = ()) -> list[str]:
    """One sentence for each slowdown with its repair, one for each other speed-up.

    `known`: versions that can be measured, in order; those skipped by a step are named.
    """
    found = steps_of(lineage)
    repairs = {step.repaired.name for step in found if step.repaired}
    sentences = []
    for step in found:
        if step.way == "faster" and step.after.name in repairs:
            continue
        sentences.append(f"{_moved(lineage, step)}{_repair(step)}.{_gap(lineage, step, known)}")
    return sentences


def _moved(lineage: Lineage, step: Step) -> str:
    return (
        f"{lineage.label} got {step.way} from {step.before.name} to {step.after.name}: "
        f"{text.ratio(step.before.ratio)} → {text.ratio(step.after.ratio)} the time of "
        f"{step.after.baseline or 'its baseline'}"
    )


def _repair(step: Step) -> str:
    if step.way != "slower":
        return ""
    if step.repaired is None:
        return ", and no later version measured here repaired it"
    return f", repaired by {step.repaired.name} ({text.ratio(step.repaired.ratio)})"


def _gap(lineage: Lineage, step: Step, known: Sequence[str]) -> str:
    """Names the versions that a step, or its repair, skipped: one of them may be the first."""
    skipped = list(between(step.before.name, step.after.name, known))
    if step.repaired is not None:
        skipped += between(step.after.name, step.repaired.name, known)
    measured = {point.name for point in lineage.points}
    open_ = [name for name in skipped if name not in measured]
    if not open_:
        return ""
    named = ", ".join(open_[:MOST_GAP])
    more = f" and {len(open_) - MOST_GAP} more" if len(open_) > MOST_GAP else ""
    return f" Not measured in between: {named}{more}."
