"""Two contenders in turns until a verdict: the looks, the log ratios, and what is concluded.

A process index is the unit: both sides are visited in it in turns, in one child where they can live
together, else in two that take turns. Its log ratio is the mean over pairs of neighbouring visits
of log(median candidate / median base), never a difference of two ratios to the baseline.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from lossbench.service.contract.comparison import ComparisonRecord
from lossbench.service.contract.contender import Contender
from lossbench.service.contract.job import JobRequest
from lossbench.service.contract.words import Outcome, Pass, Verdict
from lossbench.service.statistics.summary import visit_log_ratio
from lossbench.service.statistics.verdict import LOOKS, Decision, decide

from .assemble import Occasion, assemble, outcome_of
from .order import CaseOrder, CellFindings, CellOrder, CellResult, Ending, Versus

Findings = Mapping[int, CellFindings]
Endings = Mapping[int, Ending]


class Pair(NamedTuple):
    """The two cells of one comparison."""

    pass_: Pass
    base: CellOrder
    candidate: CellOrder


class Measured(NamedTuple):
    """What a measured case comes to."""

    results: Sequence[CellResult]
    comparisons: Sequence[ComparisonRecord]


def versus(request: JobRequest, contenders: Sequence[Contender]) -> Versus:
    """The sides of a comparison: the job's two contenders, the base first."""
    base, candidate = contenders
    return Versus(base, candidate, request.max_processes)


def looks(least: int, most: int) -> tuple[int, ...]:
    """Numbers of processes at which a comparison is judged, from `least` to `most`.

    Those of LOOKS that lie between; `most` in place of the next one, so never more looks than LOOKS
    has.
    """
    between = [look for look in LOOKS if least <= look <= most]
    return (*between, most) if most not in between else tuple(between)


def looks_of(order: CaseOrder) -> tuple[int, ...]:
    """The looks of a comparison; of anything else its processes."""
    if order.versus is None:
        return (order.processes,)
    return looks(order.processes, order.versus.max_processes)


def pairs_of(order: CaseOrder) -> list[Pair]:
    """The comparisons of a case: one for each pass that both sides are measured in."""
    if order.versus is None:
        return []
    cells = {(cell.contender.text, cell.pass_): cell for cell in order.cells}
    base, candidate = order.versus.base.text, order.versus.candidate.text
    return [
        Pair(pass_, cells[base, pass_], cells[candidate, pass_])
        for pass_ in dict.fromkeys(cell.pass_ for cell in order.cells)
        if (base, pass_) in cells and (candidate, pass_) in cells
    ]


def log_ratios(base: CellFindings, candidate: CellFindings) -> list[float]:
    """log(candidate / base) of each process index that timed both, in the order of the indices."""
    return [
        log
        for process in sorted(base.visits.keys() & candidate.visits.keys())
        if (log := visit_log_ratio(candidate.visits[process], base.visits[process])) is not None
    ]


def judge_pair(order: CaseOrder, pair: Pair, findings: Findings, endings: Endings) -> Decision:
    """The verdict so far. Where a side is not `ok` or has no time there is none, and no ratio."""
    base, candidate = findings[pair.base.number], findings[pair.candidate.number]
    decision = decide(log_ratios(base, candidate))
    for cell in (pair.base, pair.candidate):
        found = findings[cell.number]
        outcome, reason = outcome_of(order, found, endings.get(cell.number))
        if outcome is Outcome.OK and not found.interpreted:
            continue
        words = str(outcome).replace("_", " ")
        why = f"{words}: {reason}" if reason else "interpreted, which has no speed"
        return Decision(
            verdict=Verdict.INCONCLUSIVE,
            ratio=None,
            low=None,
            high=None,
            minimum_detectable_effect=None,
            processes=decision.processes,
            look=decision.look,
            reason=f"no verdict on times: {cell.contender} is {why}",
        )
    return decision


def is_settled(decision: Decision, order: CaseOrder) -> bool:
    """Whether more processes would change nothing: a verdict, or a side without times."""
    most = order.versus.max_processes if order.versus else 0
    return (
        decision.verdict is not Verdict.INCONCLUSIVE
        or decision.ratio is None
        or order.processes >= most
    )


def look_line(order: CaseOrder, pair: Pair, decision: Decision) -> str:
    """What one look says, for the log of the job."""
    line = f"{pair.candidate.contender} against {pair.base.contender} ({pair.pass_})"
    if decision.ratio is None:
        return f"{line}: {decision.reason}"
    line += f", {decision.processes} processes: {decision.ratio:.4f} of its time"
    if decision.low is not None and decision.high is not None:
        line += f" (95 % {decision.low:.4f} to {decision.high:.4f})"
    line += f", {str(decision.verdict).replace('_', ' ')}"
    following = next((look for look in looks_of(order) if look > order.processes), None)
    going_on = not is_settled(decision, order) and following is not None
    return f"{line}; going on to {following} processes" if going_on else line


def conclude(
    order: CaseOrder, findings: Findings, endings: Endings, occasion: Occasion
) -> Measured:
    """Every cell's result, and for a comparison its verdicts."""
    results = [
        assemble(
            _as_measured(order, findings[cell.number]),
            cell,
            findings[cell.number],
            endings.get(cell.number),
            occasion,
        )
        for cell in order.cells
    ]
    pairs = pairs_of(order)
    return Measured(results, [_record(order, p, findings, endings, occasion) for p in pairs])


def _as_measured(order: CaseOrder, found: CellFindings) -> CaseOrder:
    """The order with the number of processes that a comparison came to."""
    if order.versus is None or not found.visits:
        return order
    return replace(order, processes=len(found.visits))


def _record(
    order: CaseOrder, pair: Pair, findings: Findings, endings: Endings, occasion: Occasion
) -> ComparisonRecord:
    base, candidate = findings[pair.base.number], findings[pair.candidate.number]
    decision = judge_pair(order, pair, findings, endings)
    logs = log_ratios(base, candidate)
    began = max(len(base.visits), len(candidate.visits), 1)
    return ComparisonRecord(
        base=pair.base.contender,
        candidate=pair.candidate.contender,
        case=order.case,
        pass_=pair.pass_,
        verdict=decision.verdict,
        reason=decision.reason,
        ratio=decision.ratio,
        ratio_low=decision.low,
        ratio_high=decision.high,
        minimum_detectable_effect=decision.minimum_detectable_effect,
        processes=len(logs) or began,
        looks=sum(look <= began for look in looks_of(order)),
        log_ratios=tuple(logs),
        environment=occasion.environment,
        measured_at=occasion.ended_at,
    )
