"""What stored results say of a claim: its rule, cells and comparisons in, a verdict out.

Every part of a rule is decided within one environment, the newest that has all of its cells and
decides: one device, one software, one version of the protocol. A ratio of times is that of a
comparison head to head, else that of `release_steps`; its 95 % interval must lie inside the limits
to hold and outside to fail, else the part is untested and says so.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..contract.claim import Claim, ClaimVerdict
from ..contract.claim_evidence import Decided, Evidence, Finding, MeasuredCell, MetPair
from ..contract.claim_rule import (
    AllOf,
    AnyOf,
    BytesDifference,
    BytesRatio,
    CellName,
    ErrorRatio,
    FloorRatio,
    LeafRule,
    OutcomeIs,
    Recompiles,
    SameBits,
    SameErrors,
    SameTraining,
    TimeGain,
    TimeRatio,
)
from ..contract.words import Outcome
from .claim_numbers import (
    BITS_UNFIT,
    MEMORY_UNFIT,
    TIME_UNFIT,
    Side,
    bytes_of,
    bytes_words,
    error_of,
    floor_ratio,
    time_gain,
    time_ratio,
)

HOLDS, FAILS, UNTESTED = ClaimVerdict.HOLDS, ClaimVerdict.FAILS, ClaimVerdict.UNTESTED
NOT_MEASURED = "not measured: "
MOST_NAMED = 3
NO_TRAINING = "this version stores no training results to compare"


@dataclass(frozen=True)
class Found:
    """The stored results that claims may rest on: newest first within each cell."""

    cells: Mapping[str, Sequence[MeasuredCell]]
    """By key of the cell, one for each environment."""
    met: Mapping[tuple[str, str, str, str, str], MetPair]
    """By base, candidate, case, pass and environment."""


def decide_claim(claim: Claim, found: Found) -> Decided:
    """The verdict on a claim from what is stored."""
    findings = [decide(leaf, found) for leaf in claim.leaves]
    verdict, reason = _joined(claim.rule, iter(findings))
    if verdict is UNTESTED and claim.cannot_run:
        reason = f"cannot run here: {claim.cannot_run}"
    moments = [each.measured_at for finding in findings for each in finding.evidence]
    return Decided(
        verdict=verdict,
        reason=reason,
        findings=tuple(findings),
        measured_at=max(moments, default=None),
    )


def _joined(rule: Any, findings: Any) -> tuple[ClaimVerdict, str]:
    """Verdict and reason of a rule; takes the findings of its leaves from the iterator."""
    if not isinstance(rule, AllOf | AnyOf):
        finding = next(findings)
        return finding.verdict, finding.reason
    parts = [_joined(each, findings) for each in rule.rules]
    # the verdict that one part alone decides, and the one that takes every part
    one, every = (FAILS, HOLDS) if isinstance(rule, AllOf) else (HOLDS, FAILS)
    for wanted in (one, UNTESTED):
        reasons = [reason for verdict, reason in parts if verdict is wanted]
        if reasons:
            return wanted, _said_together(reasons)
    return every, _said_together([reason for _, reason in parts])


def _said_together(reasons: Sequence[str]) -> str:
    """Reasons each once; cells that are not measured are named after one another."""
    absent = [reason.removeprefix(NOT_MEASURED) for reason in reasons if NOT_MEASURED in reason]
    cells = list(dict.fromkeys(cell for each in absent for cell in each.split("; ")))
    others = list(dict.fromkeys(reason for reason in reasons if NOT_MEASURED not in reason))
    if not cells:
        return "; ".join(others)
    more = f"; and {len(cells) - MOST_NAMED} more cells" if len(cells) > MOST_NAMED else ""
    return "; ".join([*others, f"{NOT_MEASURED}{'; '.join(cells[:MOST_NAMED])}{more}"])


def decide(rule: LeafRule, found: Found) -> Finding:
    """What one part of a rule comes to: the newest environment that decides it."""
    if isinstance(rule, SameTraining):
        return Finding(rule=rule.words, verdict=UNTESTED, reason=NO_TRAINING)
    shared = _environments(rule.cells, found)
    if not shared:
        return Finding(rule=rule.words, verdict=UNTESTED, reason=_missing(rule.cells, found))
    tried = [_DECIDERS[type(rule)](rule, sides, found) for sides in shared]
    decided = next((each for each in tried if each.verdict is not UNTESTED), tried[0])
    others = {each.verdict for each in tried} - {decided.verdict, UNTESTED}
    if decided.verdict is not UNTESTED and others:
        reason = f"{decided.reason}; an older device or software says otherwise"
        return decided.model_copy(update={"reason": reason})
    return decided


def _environments(names: Sequence[CellName], found: Found) -> list[list[MeasuredCell]]:
    """The cells of each environment that has them all, the newest measured first."""
    by_place = [{c.environment_id: c for c in found.cells.get(name.key, ())} for name in names]
    shared = set(by_place[0]).intersection(*by_place[1:])
    rows = [[cells[place] for cells in by_place] for place in shared]
    return sorted(rows, key=lambda row: max(c.measured_at for c in row), reverse=True)


def _missing(names: Sequence[CellName], found: Found) -> str:
    absent = [name.words for name in names if not found.cells.get(name.key)]
    if not absent:
        return (
            "no device has measured all of its cells with the same software: run the claim's job "
            "on one"
        )
    return f"{NOT_MEASURED}{'; '.join(dict.fromkeys(absent))}"


def _evidence(cell: MeasuredCell, value: float | str | None, unit: str) -> Evidence:
    fields: dict[str, Any] = {"pass": cell.pass_}
    return Evidence(
        result_id=cell.result_id or None,
        job_id=cell.job_id,
        contender=cell.contender,
        case=cell.case,
        device_name=cell.device_name,
        environment_id=cell.environment_id,
        outcome=cell.outcome,
        value=value,
        unit=unit,
        grade=cell.grade,
        flags=tuple(sorted(cell.flags)),
        measured_at=cell.measured_at,
        **fields,
    )


def _hindered(cells: Sequence[MeasuredCell], unfit: frozenset[Any]) -> str | None:
    """Why these cells decide nothing: an outcome, a flag, two protocols. None where they may."""
    for cell in cells:
        if cell.outcome is not Outcome.OK:
            return f"{cell.contender} ended {cell.outcome.replace('_', ' ')}: {cell.reason}"
        if bad := sorted(cell.flags & unfit):
            names = ", ".join(flag.replace("_", " ") for flag in bad)
            return f"the result of {cell.contender} is flagged {names}: measure it again"
    if unfit is TIME_UNFIT and len({cell.protocol_version for cell in cells}) > 1:
        return "its cells were timed by two versions of the protocol: measure the older again"
    return None


@dataclass(frozen=True)
class _Case:
    """One part of a rule on its cells: the words and evidence that every finding of it has."""

    rule: LeafRule
    evidence: tuple[Evidence, ...]

    def untested(self, reason: str, **numbers: Any) -> Finding:
        """A finding that decides nothing."""
        return self._finding(UNTESTED, reason, numbers)

    def decided(self, holds: bool, reason: str, **numbers: Any) -> Finding:
        """A finding that decides."""
        return self._finding(HOLDS if holds else FAILS, reason, numbers)

    def _finding(self, verdict: ClaimVerdict, reason: str, numbers: dict[str, Any]) -> Finding:
        words, evidence = self.rule.words, self.evidence
        return Finding(rule=words, verdict=verdict, reason=reason, evidence=evidence, **numbers)


def _by_interval(
    case: _Case, rule: TimeRatio | TimeGain | FloorRatio, side: Side, what: str
) -> Finding:
    """Holds where the whole interval lies inside the limits, fails where it lies outside."""
    if side.value is None:
        return case.untested(side.note)
    if side.low is None or side.high is None:
        words = f"undecided: {what} is {side.value:.4g} without an interval; {side.note}"
        return case.untested(words, value=side.value, comparison_id=side.comparison_id)
    numbers: dict[str, Any] = {
        "value": side.value,
        "low": side.low,
        "high": side.high,
        "comparison_id": side.comparison_id,
    }
    said = f"{what} is {side.value:.4g} ({side.low:.4g} to {side.high:.4g}, {side.note})"
    limit = rule.limit_words
    if rule.lowest <= side.low and side.high <= rule.highest:
        return case.decided(True, f"{said}, {limit} as claimed", **numbers)
    if side.high < rule.lowest or side.low > rule.highest:
        return case.decided(False, f"{said}, not {limit}", **numbers)
    take = "more processes, best head to head in a compare job, make the interval narrower"
    return case.untested(f"undecided: {said} reaches over the limit, {limit}; {take}", **numbers)


def _decide_time(rule: TimeRatio, cells: Sequence[MeasuredCell], found: Found) -> Finding:
    case = _Case(rule, tuple(_evidence(cell, cell.latency_ms, "ms") for cell in cells))
    if why := _hindered(cells, TIME_UNFIT):
        return case.untested(why)
    of, over = cells
    return _by_interval(case, rule, time_ratio(of, over, found.met), "time ratio")


def _decide_gain(rule: TimeGain, cells: Sequence[MeasuredCell], found: Found) -> Finding:
    case = _Case(rule, tuple(_evidence(cell, cell.latency_ms, "ms") for cell in cells))
    if why := _hindered(cells, TIME_UNFIT):
        return case.untested(why)
    of, over, than_of, than_over = cells
    first, second = time_ratio(of, over, found.met), time_ratio(than_of, than_over, found.met)
    return _by_interval(case, rule, time_gain(first, second, cells), "ratio of the time ratios")


def _decide_floor(rule: FloorRatio, cells: Sequence[MeasuredCell], found: Found) -> Finding:
    case = _Case(rule, tuple(_evidence(cell, cell.floor_ms, "ms of floor") for cell in cells))
    if why := _hindered(cells, TIME_UNFIT):
        return case.untested(why)
    return _by_interval(case, rule, floor_ratio(*cells), "ratio of the floors")


def _decide_bytes_ratio(rule: BytesRatio, cells: Sequence[MeasuredCell], found: Found) -> Finding:
    sizes = [bytes_of(cell, rule.measure) for cell in cells]
    case = _Case(
        rule, tuple(_evidence(c, size, "bytes") for c, size in zip(cells, sizes, strict=True))
    )
    if why := _hindered(cells, MEMORY_UNFIT):
        return case.untested(why)
    of, over = sizes
    if of is None or not over:
        return case.untested(f"no {rule.measure} was measured to divide by")
    ratio = of / over
    holds = rule.lowest <= ratio <= rule.highest
    said = f"{bytes_words(of)} over {bytes_words(over)} is {ratio:.4g}"
    words = f"{said}, {rule.limit_words} as claimed" if holds else f"{said}, not {rule.limit_words}"
    return case.decided(holds, words, value=ratio, low=ratio, high=ratio)


def _decide_difference(
    rule: BytesDifference, cells: Sequence[MeasuredCell], found: Found
) -> Finding:
    sizes = [bytes_of(cell, rule.measure) for cell in cells]
    case = _Case(
        rule, tuple(_evidence(c, size, "bytes") for c, size in zip(cells, sizes, strict=True))
    )
    if why := _hindered(cells, MEMORY_UNFIT):
        return case.untested(why)
    of, over = sizes
    if of is None or over is None:
        return case.untested(f"no {rule.measure} was measured")
    low, high = rule.bounds
    difference = of - over
    holds = low <= difference <= high
    expected = bytes_words(rule.expected_bytes)
    wanted = f"at most {expected}" if rule.within is None else f"{expected} +- {rule.within:.0%}"
    ending = "as claimed" if holds else f"claimed is {wanted}"
    words = f"{bytes_words(of)} less {bytes_words(over)} is {bytes_words(difference)}, {ending}"
    return case.decided(holds, words, value=difference, low=difference, high=difference, unit="B")


def _decide_error(rule: ErrorRatio, cells: Sequence[MeasuredCell], found: Found) -> Finding:
    values = [_largest_error(cell, rule.outputs) for cell in cells]
    shown = zip(cells, values, strict=True)
    case = _Case(rule, tuple(_evidence(cell, v, "relative L2") for cell, v in shown))
    if why := _hindered(cells, BITS_UNFIT):
        return case.untested(why)
    ratios: list[float] = []
    for output in rule.outputs:
        ratio = error_of(cells[0], output).ratio
        if len(cells) > 1:
            of, over = (error_of(cell, output).relative_l2 for cell in cells)
            ratio = of / over if of is not None and over else None
        if ratio is None:
            return case.untested(f"the error of {output} was not measured on both sides")
        ratios.append(ratio)
    worst = max(ratios)
    holds = rule.lowest <= worst <= rule.highest
    limit = rule.limit_words
    words = f"the error ratio is {worst:.4g}, {f'{limit} as claimed' if holds else f'not {limit}'}"
    return case.decided(holds, words, value=worst, low=worst, high=worst)


def _largest_error(cell: MeasuredCell, outputs: Sequence[str]) -> float | None:
    known = [error_of(cell, output).relative_l2 for output in outputs]
    return max((each for each in known if each is not None), default=None)


def _decide_same_errors(rule: SameErrors, cells: Sequence[MeasuredCell], found: Found) -> Finding:
    def read(cell: MeasuredCell, output: str) -> float | None:
        value: float | None = getattr(error_of(cell, output), rule.statistic)
        return value

    unit = rule.statistic.replace("_", " ")
    first = rule.outputs[0]
    case = _Case(rule, tuple(_evidence(c, read(c, first), f"{unit} of {first}") for c in cells))
    if why := _hindered(cells, BITS_UNFIT):
        return case.untested(why)
    apart, told = 0.0, []
    for output in rule.outputs:
        of, over = (read(cell, output) for cell in cells)
        if of is None or over is None:
            return case.untested(f"the error of {output} was not measured on both sides")
        larger = max(abs(of), abs(over))
        apart = max(apart, abs(of - over) / larger if larger else 0.0)
        told.append(f"{output} {of:.4g} and {over:.4g}")
    holds = apart <= rule.within
    share = "equal" if apart == 0 else f"{apart:.2%} apart"
    words = f"{unit} errors are {share}: {', '.join(told)}"
    return case.decided(holds, words, value=apart, low=apart, high=apart)


def _decide_bits(rule: SameBits, cells: Sequence[MeasuredCell], found: Found) -> Finding:
    case = _Case(rule, tuple(_evidence(c, c.checksum, "digest of the bits") for c in cells))
    if why := _hindered(cells, BITS_UNFIT):
        return case.untested(why)
    if any(cell.checksum is None for cell in cells):
        return case.untested("the bits of a side were not recorded")
    if cells[0].checksum == cells[1].checksum:
        return case.decided(True, "the digests of loss and gradients are equal")
    for cell in cells:
        if cell.repeats_bits is False:
            words = f"undecided: {cell.contender} does not repeat its own bits"
            return case.untested(f"{words}, so a difference tells nothing")
    return case.decided(False, "the digests differ, though each side repeats its own bits")


def _decide_outcome(rule: OutcomeIs, cells: Sequence[MeasuredCell], found: Found) -> Finding:
    (cell,) = cells
    case = _Case(rule, (_evidence(cell, cell.outcome.value, "outcome"),))
    named = rule.reason_has is None or rule.reason_has in (cell.reason or "")
    ended = cell.outcome.replace("_", " ")
    words = f"it ended {ended}" + (f": {cell.reason}" if cell.reason else "")
    return case.decided(cell.outcome in rule.outcomes and named, words)


def _decide_recompiles(rule: Recompiles, cells: Sequence[MeasuredCell], found: Found) -> Finding:
    (cell,) = cells
    case = _Case(rule, (_evidence(cell, cell.recompiles, "recompilations"),))
    if why := _hindered(cells, frozenset()):
        return case.untested(why)
    if cell.recompiles is None:
        return case.untested("recompilations were not counted")
    count = float(cell.recompiles)
    holds = rule.lowest <= count <= rule.highest
    limit = f"{rule.limit_words} as claimed" if holds else f"not {rule.limit_words}"
    words = f"{cell.recompiles} recompilations, {limit}"
    return case.decided(holds, words, value=count, low=count, high=count)


_DECIDERS: Mapping[type, Callable[[Any, Sequence[MeasuredCell], Found], Finding]] = {
    TimeRatio: _decide_time,
    TimeGain: _decide_gain,
    FloorRatio: _decide_floor,
    BytesRatio: _decide_bytes_ratio,
    BytesDifference: _decide_difference,
    ErrorRatio: _decide_error,
    SameErrors: _decide_same_errors,
    SameBits: _decide_bits,
    OutcomeIs: _decide_outcome,
    Recompiles: _decide_recompiles,
}
