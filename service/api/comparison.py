"""Comparing two contenders: head to head where they were measured so, else by a shared baseline.

A verdict comes only from the newest comparison of the two on the same hardware (`head_to_head.py`).
Each result's ratio to its baseline was taken in one process, so drift of the machine cancels in it.
Where base and candidate share that baseline, their ratio is the quotient, in log space, and its
interval adds both half-widths in quadrature; that is no verdict.
"""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy.orm import Session

from ..contract.catalogue import Catalogue
from ..contract.contender import Contender
from ..contract.errors import Fault, InvalidRequestError
from ..contract.plan import refuse, resolve_contender
from ..contract.result import OutputErrorView
from ..contract.words import Grade, Outcome
from ..store.comparisons import HeadToHead
from ..store.result_pages import BriefRun, SideError, SideRow, newest_kept, side_rows
from ..store.results import ResultFilter
from .head_to_head import Meetings, judged, meeting_of, meetings_of, over_all
from .mean_ratio import Pair, Ratio, mean_of_pairs
from .paging import encode_cursor
from .records import CandidateCell, CandidateSummary, CompareRow, Comparison, Contestant, Side

MOST_CASES = 50_000
CURSOR = "compare"
_INEXACT = (Grade.COARSE, Grade.POOR)

Key = tuple[str, int, int, int, str, str]
"""Order of the rows: device, hidden, vocab, tokens, case, pass."""
KEY_TYPES: tuple[type, ...] = (str, int, int, int, str, str)
Runs = Mapping[Key, BriefRun]


_ONE = Ratio(1.0, 1.0, 1.0)


@dataclass(frozen=True)
class Entrant:
    """A contender of a comparison: as asked, as resolved, and its newest results by case."""

    asked: str
    used: Contender
    runs: Runs
    wanted: ResultFilter
    meetings: Meetings = field(default_factory=dict)
    """Its comparisons with the base."""


def load_entrant(
    session: Session, catalogue: Catalogue, text: str, where: str, wanted: ResultFilter
) -> Entrant:
    """A contender with its results. Raises InvalidRequestError for one that nobody knows."""
    try:
        asked = Contender.parse(text)
    except ValueError as error:
        message = f"{text[:200]!r} is not a contender such as flce or liger@0.8.5"
        raise InvalidRequestError([Fault(where, "bad_contender", message)]) from error
    used, faults = resolve_contender(asked, catalogue, where)
    rows = newest_kept(session, used, wanted, MOST_CASES + 1)
    if len(rows) > MOST_CASES:
        message = f"{used} has results on more than {MOST_CASES} cases; narrow with filters"
        raise InvalidRequestError([Fault(where, "too_many_cases", message)])
    if not rows:
        refuse(faults)
    return Entrant(text, used, {_key(row): row for row in rows}, wanted)


def _key(run: BriefRun) -> Key:
    return (run.device_name, run.hidden, run.vocab, run.tokens, run.case, run.pass_)


def compare(
    session: Session,
    base: Entrant,
    candidates: Sequence[Entrant],
    after: Key | None,
    limit: int,
    only: Collection[tuple[str, str]] | None = None,
) -> Comparison:
    """One page of the comparison, behind the row `after`, and its header over all rows.

    `only`: the cases and passes of which rows are made.
    """
    candidates = [
        replace(each, meetings=meetings_of(session, base.used.text, each.used.text, each.wanted))
        for each in candidates
    ]
    keys = sorted({key for entrant in (base, *candidates) for key in entrant.runs})
    left = [key for key in keys if after is None or key > after]
    if only is not None:
        left = [key for key in left if key[4:] in only]
    shown = left[:limit]
    ids = [e.runs[key].id for e in (base, *candidates) for key in shown if key in e.runs]
    sides = _sides(session, ids)
    return Comparison(
        base=_contestant(base, _base_note(base, candidates)),
        candidates=tuple(_summary(base, candidate) for candidate in candidates),
        items=tuple(_row(key, base, candidates, sides) for key in shown),
        next_cursor=encode_cursor(CURSOR, *shown[-1]) if len(left) > limit else None,
    )


def _base_note(base: Entrant, candidates: Sequence[Entrant]) -> str | None:
    if base.runs:
        return None
    note = f"no baseline: {base.used} has no result here, and nothing stands in for it"
    timed_against = {run.baseline for c in candidates for run in c.runs.values()}
    if base.used.text in timed_against:
        note += "; the candidates' own ratio_to_baseline divides by it"
    return note


def _contestant(entrant: Entrant, note: str | None) -> Contestant:
    return Contestant(
        asked=entrant.asked,
        used=entrant.used.text,
        cases=len(entrant.runs),
        outcomes=_outcomes(entrant.runs),
        note=note,
    )


def _outcomes(runs: Runs) -> dict[Outcome, int]:
    return {Outcome(word): n for word, n in Counter(run.outcome for run in runs.values()).items()}


def _summary(base: Entrant, candidate: Entrant) -> CandidateSummary:
    # one look at each key: a page of thousands spends its time in their hashes
    common = [
        (under, over, meeting_of(candidate.meetings, under, over))
        for key, over in candidate.runs.items()
        if (under := base.runs.get(key)) is not None
    ]
    pairs = [pair for pair in common if pair[0].outcome == pair[1].outcome == Outcome.OK.value]
    counted, mean = mean_of_pairs(pairs)
    verdict, verdict_note = over_all([meeting for _, _, meeting in common])
    return CandidateSummary(
        **_contestant(candidate, _candidate_note(candidate, pairs)).model_dump(),
        common_cases=counted,
        geometric_mean_ratio=mean.value if mean else None,
        geometric_mean_low=mean.low if mean else None,
        geometric_mean_high=mean.high if mean else None,
        inexact_cases=sum(over.grade in _INEXACT for _, over, _ in pairs),
        verdict=verdict,
        verdict_note=verdict_note,
    )


def _candidate_note(candidate: Entrant, pairs: Sequence[Pair]) -> str | None:
    if not candidate.runs:
        return f"{candidate.used} has no result here"
    apart = sum(under.protocol_version != over.protocol_version for under, over, _ in pairs)
    if not apart:
        return None
    return f"no ratio on {apart} common case(s): measured by two versions of the protocol"


def _related(
    base: BriefRun, candidate: BriefRun, meeting: HeadToHead | None
) -> tuple[Ratio | None, str | None]:
    """Ratio of the newest comparison head to head; without one, that of their baselines."""
    if meeting is None:
        return ratio_of(base, candidate)
    if meeting.ratio is None:
        return None, None
    source = f"measured head to head in {meeting.processes} processes"
    return Ratio(meeting.ratio, meeting.ratio_low, meeting.ratio_high), source


def ratio_of(base: BriefRun, candidate: BriefRun) -> tuple[Ratio | None, str | None]:
    """(candidate / base, where it comes from); (None, None) without a shared baseline.

    Times of two versions of the measuring protocol are not of one kind, and have no ratio.
    """
    if base.outcome != Outcome.OK or candidate.outcome != Outcome.OK:
        return None, None
    if base.baseline != candidate.baseline or base.protocol_version != candidate.protocol_version:
        return None, None
    if base.contender == base.baseline:
        return _interval(candidate), "timed in the same process"
    if candidate.contender == base.baseline:
        inverse = _interval(base)
        return _quotient(_ONE, inverse) if inverse else None, "timed in the same process"
    over, under = _interval(candidate), _interval(base)
    if over is None or under is None:
        return None, None
    return _quotient(over, under), f"ratio of ratios to {base.baseline}"


def _interval(run: BriefRun) -> Ratio | None:
    if run.ratio is None or run.ratio <= 0:
        return None
    bounded = run.ratio_low is not None and run.ratio_low > 0 and run.ratio_high is not None
    low, high = (run.ratio_low, run.ratio_high) if bounded else (None, None)
    return Ratio(value=run.ratio, low=low, high=high)


def _half_width(interval: Ratio) -> float | None:
    """Half of the interval's width in log space; None without bounds."""
    if interval.low is None or interval.high is None:
        return None
    return (math.log(interval.high) - math.log(interval.low)) / 2


def _around(log_value: float, half_width: float | None) -> Ratio:
    if half_width is None:
        return Ratio(value=math.exp(log_value))
    return Ratio(
        value=math.exp(log_value),
        low=math.exp(log_value - half_width),
        high=math.exp(log_value + half_width),
    )


def _quotient(over: Ratio, under: Ratio) -> Ratio:
    widths = (_half_width(over), _half_width(under))
    width = None if widths[0] is None or widths[1] is None else math.hypot(widths[0], widths[1])
    return _around(math.log(over.value) - math.log(under.value), width)


def _row(
    key: Key, base: Entrant, candidates: Sequence[Entrant], sides: Mapping[str, Side]
) -> CompareRow:
    def side(entrant: Entrant) -> Side | None:
        run = entrant.runs.get(key)
        return sides.get(run.id) if run is not None else None

    base_side = side(base)
    cells = tuple(
        _cell(
            base.runs.get(key),
            candidate.runs.get(key),
            (base_side, side(candidate)),
            candidate.meetings,
        )
        for candidate in candidates
    )
    row: dict[str, Any] = {"case": key[4], "pass": key[5], "device_name": key[0]}
    return CompareRow(base=base_side, candidates=cells, **row)


def _cell(
    base: BriefRun | None,
    candidate: BriefRun | None,
    sides: tuple[Side | None, Side | None],
    meetings: Meetings,
) -> CandidateCell:
    meeting = meeting_of(meetings, base, candidate) if base and candidate else None
    ratio, source = _related(base, candidate, meeting) if base and candidate else (None, None)
    under, over = (side.workspace_bytes if side else None for side in sides)
    return CandidateCell(
        side=sides[1],
        ratio=ratio.value if ratio else None,
        ratio_low=ratio.low if ratio else None,
        ratio_high=ratio.high if ratio else None,
        ratio_source=source if ratio else None,
        workspace_ratio=over / under if over is not None and under else None,
        environments_differ=(
            base.environment_id != candidate.environment_id if base and candidate else None
        ),
        **({} if meeting is None else judged(meeting)),
    )


def _sides(session: Session, run_ids: Sequence[str]) -> dict[str, Side]:
    rows, errors = side_rows(session, run_ids)
    return {run_id: _side(row, errors.get(run_id, [])) for run_id, row in rows.items()}


def _side(row: SideRow, errors: Sequence[SideError]) -> Side:
    # label and worst output as of a `Result`, which costs too much for thousands of rows
    known = [peak for peak in (row.peak_forward_bytes, row.peak_backward_bytes) if peak is not None]
    rated = [(error.ratio, error.output) for error in errors if error.ratio is not None]
    worst = max(rated, key=lambda pair: pair[0], default=None)
    version, params = f"@{row.version}" * bool(row.version), f"[{row.params}]" * bool(row.params)
    same = row._asdict()
    for name in ("id", "kernel", "version", "params", "peak_forward_bytes", "peak_backward_bytes"):
        del same[name]
    return Side(
        **same,
        result_id=row.id,
        label=f"{row.kernel}{version}{params}",
        peak_bytes=max(known, default=None),
        worst_output=worst[1] if worst and row.grade is not None else None,
        worst_error_ratio=worst[0] if worst else None,
        errors=tuple(OutputErrorView(**error._asdict()) for error in errors),
    )
