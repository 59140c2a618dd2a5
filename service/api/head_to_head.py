"""What comparisons head to head say in a table of two contenders: the verdict of each case."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy.orm import Session

from ..contract.words import Outcome, Verdict
from ..store.comparisons import HeadToHead, head_to_head
from ..store.result_pages import BriefRun
from ..store.results import ResultFilter
from .records import NOT_HEAD_TO_HEAD

Meetings = Mapping[tuple[str, str, str], HeadToHead]
"""Newest comparison of two contenders by case, pass and hardware fingerprint."""


def meetings_of(session: Session, base: str, candidate: str, wanted: ResultFilter) -> Meetings:
    """Every case on which the two were measured head to head."""
    return head_to_head(session, base, candidate, wanted)


def meeting_of(meetings: Meetings, base: BriefRun, candidate: BriefRun) -> HeadToHead | None:
    """The comparison of two results, if it was on the hardware of both; else None."""
    if not meetings:  # the usual case, asked of thousands of pairs
        return None
    # an environment's id is its hardware fingerprint, a dash, its software fingerprint
    hardware = base.environment_id.rpartition("-")[0]
    meeting = meetings.get((base.case, base.pass_, hardware))
    if meeting is None or candidate.environment_id.rpartition("-")[0] != hardware:
        return None
    bad = next((each for each in (base, candidate) if each.outcome != Outcome.OK), None)
    if bad is None or meeting.verdict == Verdict.INCONCLUSIVE:
        return meeting
    # a newer result says that its times do not count
    why = f"the newest result of {bad.contender} is {bad.outcome.replace('_', ' ')}"
    return meeting._replace(
        verdict=Verdict.INCONCLUSIVE.value,
        reason=why,
        ratio=None,
        ratio_low=None,
        ratio_high=None,
        detectable_effect=None,
    )


def judged(meeting: HeadToHead) -> dict[str, Any]:
    """Fields of a candidate's cell that come from its comparison with the base."""
    return {
        "verdict": meeting.verdict,
        "verdict_note": meeting.reason,
        "minimum_detectable_effect": meeting.detectable_effect,
        "comparison_id": meeting.id,
    }


def over_all(meetings: Sequence[HeadToHead | None]) -> tuple[str | None, str | None]:
    """(verdict, note) over all common cases: a verdict only where every case has this one."""
    met = [meeting for meeting in meetings if meeting is not None]
    if not met:
        return None, NOT_HEAD_TO_HEAD
    counts = Counter(meeting.verdict for meeting in met)
    words = ", ".join(f"{n} {verdict.replace('_', ' ')}" for verdict, n in counts.most_common())
    note = f"{words}; {len(met)} of {len(meetings)} common cases measured head to head"
    same = len(counts) == 1 and len(met) == len(meetings)
    return (met[0].verdict if same else None), note
