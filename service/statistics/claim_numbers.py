"""Numbers that the rules of claims compare: ratios of times and floors, bytes, errors."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..contract.claim_evidence import CellError, MeasuredCell, MetPair
from ..contract.words import Flag
from .release_steps import MeasuredRatio, step_between
from .summary import ratio_interval

TIME_UNFIT = frozenset(
    {
        Flag.INTERPRETED,
        Flag.SUSPECT,
        Flag.NOISY,
        Flag.DRIFT,
        Flag.NOT_STEADY,
        Flag.LOW_N,
        Flag.THROTTLED,
        Flag.COMPILE_IN_TIMING,
        Flag.FOREIGN_PROCESS,
        Flag.MULTI_MODAL,
        Flag.ALLOC_RETRY,
    }
)
"""Flags of a result whose times decide no claim. A power cap is no fault: both sides have it."""
MEMORY_UNFIT = frozenset({Flag.INTERPRETED, Flag.MEMORY_NONDETERMINISTIC, Flag.ALLOC_RETRY})
BITS_UNFIT = frozenset({Flag.INTERPRETED})
Met = Mapping[tuple[str, str, str, str, str], MetPair]


class Side(NamedTuple):
    """A ratio with its 95 % interval, and where it comes from or why there is none."""

    value: float | None
    low: float | None = None
    high: float | None = None
    note: str = ""
    comparison_id: str | None = None


def time_ratio(of: MeasuredCell, over: MeasuredCell, met: Met) -> Side:
    """Time of one cell over another's: head to head, in one process, or by a shared baseline."""
    if of.case == over.case and of.pass_ == over.pass_:
        if direct := _head_to_head(of, over, met):
            return direct
    elif of.contender == of.baseline:
        return Side(None, note=f"{of.contender} is its own baseline: two cases have no ratio")
    if of.baseline != over.baseline:
        return Side(None, note="its cells were timed beside two baselines")
    if over.contender == over.baseline and of.case == over.case:
        return Side(of.ratio, of.ratio_low, of.ratio_high, _processes(of, "timed in one process"))
    if of.contender == of.baseline and of.case == over.case:
        value, high, low = (1.0 / x if x else None for x in _triple(over))
        return Side(value, low, high, _processes(over, "timed in one process"))
    return _by_baseline(of, over)


def _head_to_head(of: MeasuredCell, over: MeasuredCell, met: Met) -> Side | None:
    """The comparison of the two that was measured last, as (of over over); None without one."""
    where = (of.case, of.pass_.value, of.environment_id)
    ways = ((over.contender, of.contender, False), (of.contender, over.contender, True))
    found = [(met.get((base, cand, *where)), turned) for base, cand, turned in ways]
    pairs = [(pair, turned) for pair, turned in found if pair is not None and pair.ratio]
    if not pairs:
        return None
    pair, turned = max(pairs, key=lambda each: each[0].measured_at)
    value, low, high = pair.ratio, pair.ratio_low, pair.ratio_high
    if turned:
        value, high, low = (1.0 / x if x else None for x in (value, low, high))
    note = f"head to head in {pair.processes} processes"
    return Side(value, low, high, note, pair.comparison_id)


def _triple(cell: MeasuredCell) -> tuple[float | None, float | None, float | None]:
    return cell.ratio, cell.ratio_low, cell.ratio_high


def _processes(cell: MeasuredCell, how: str) -> str:
    if cell.ratio_low is None:
        return "an interval takes two processes or more"
    return f"{how}, {cell.processes} processes"


def _by_baseline(of: MeasuredCell, over: MeasuredCell) -> Side:
    measured = []
    for cell in (of, over):
        if cell.ratio is None:
            return Side(None, note=f"{cell.contender} has no ratio to {cell.baseline}")
        measured.append((cell.ratio, cell.ratio_low, cell.ratio_high, cell.processes))
    note = f"by their ratios to {of.baseline}"
    plain = [
        MeasuredRatio(value, low, high, processes)
        for value, low, high, processes in measured
        if low is not None and high is not None
    ]
    try:
        step = step_between(plain[1], plain[0])
    except (IndexError, ValueError):
        value = measured[0][0] / measured[1][0]
        return Side(value, note="an interval takes two processes or more on both sides")
    return Side(step.ratio, math.exp(step.low), math.exp(step.high), note)


def time_gain(first: Side, second: Side, cells: Sequence[MeasuredCell]) -> Side:
    """One ratio of times over another; degrees of freedom are those of the fewest processes."""
    if first.value is None or second.value is None:
        return Side(None, note=first.note if first.value is None else second.note)
    processes = min(cell.processes for cell in cells)
    note = "an interval takes two processes or more of every cell"
    bounded = [
        MeasuredRatio(side.value, side.low, side.high, processes)
        for side in (first, second)
        if side.value is not None and side.low is not None and side.high is not None
    ]
    try:
        step = step_between(bounded[1], bounded[0])
    except (IndexError, ValueError):
        return Side(first.value / second.value, note=note)
    return Side(step.ratio, math.exp(step.low), math.exp(step.high), f"{first.note}; {second.note}")


def floor_ratio(of: MeasuredCell, over: MeasuredCell) -> Side:
    """Floor of one cell over another's, from one median for each process of both."""
    measured = [_floor(cell.floors_ms) for cell in (of, over)]
    if any(each is None for each in measured):
        if not of.floor_ms or not over.floor_ms:
            return Side(None, note="a floor was not measured")
        value = of.floor_ms / over.floor_ms
        return Side(value, note="an interval takes two processes or more on both sides")
    after, before = (each for each in measured if each is not None)
    step = step_between(before, after)
    note = f"{of.processes} and {over.processes} processes"
    return Side(step.ratio, math.exp(step.low), math.exp(step.high), note)


def _floor(medians_ms: Sequence[float]) -> MeasuredRatio | None:
    """Milliseconds with their interval, over 1 ms; None for fewer than two processes."""
    interval = ratio_interval([math.log(value) for value in medians_ms])
    if interval is None or interval.low is None or interval.high is None:
        return None
    return MeasuredRatio(interval.value, interval.low, interval.high, interval.processes)


def bytes_of(cell: MeasuredCell, measure: str) -> int | None:
    """Workspace, or peak over the base, in bytes."""
    return cell.workspace_bytes if measure == "workspace" else cell.peak_bytes


def bytes_words(size: float) -> str:
    """`1,024.0 MiB`."""
    return f"{size / 2**20:,.1f} MiB"


def error_of(cell: MeasuredCell, output: str) -> CellError:
    """Errors of one output; of an output without any, all None."""
    return cell.errors.get(output, CellError())
