"""What a confirmation says: comparisons head to head against the cases of an alert."""

from collections.abc import Mapping, Sequence

import sqlalchemy as sa
from sqlalchemy.orm import Session, selectinload

from ..contract.alert import AlertDirection, AlertMetric, AlertState
from ..contract.comparison import ComparisonView
from ..contract.words import JobState, Verdict
from ..statistics.multiple_tests import FALSE_SHARE, adjusted_p_values
from ..statistics.release_steps import p_value_of
from .alert_models import AlertCaseRow, AlertRow
from .alerts import sum_up, with_note
from .comparisons import comparisons_of_job
from .models import JobRow

_ENDED = (JobState.DONE.value, JobState.CANCELLED.value)
_EXPECTED = {
    AlertDirection.WORSE.value: Verdict.SLOWER,
    AlertDirection.BETTER.value: Verdict.FASTER,
}
Place = tuple[str, str, str, str]
"""Params, case, pass and device."""


def settle_alerts(session: Session) -> list[AlertRow]:
    """Decide every candidate whose jobs have all ended; returns those that were decided."""
    query = (
        sa.select(AlertRow)
        .where(AlertRow.state == AlertState.CANDIDATE.value)
        .options(selectinload(AlertRow.cases))
    )
    waiting = [alert for alert in session.scalars(query) if alert.job_ids]
    ended = [alert for alert in waiting if have_ended(session, alert.job_ids)]
    return [alert for alert in ended if _settle(session, alert)]


def have_ended(session: Session, job_ids: Sequence[str]) -> bool:
    """Whether none of these jobs is queued or runs."""
    states = session.scalars(sa.select(JobRow.state).where(JobRow.id.in_(job_ids)))
    return all(state in _ENDED for state in states)


def _settle(session: Session, alert: AlertRow) -> bool:
    """Whether something new was said: a case without a new comparison stays as it is."""
    views: dict[Place, ComparisonView] = {}
    for job_id in alert.job_ids:
        for view in comparisons_of_job(session, job_id):
            params = view.candidate.partition("[")[2].removesuffix("]")
            views[params, view.case, view.pass_.value, view.device_name] = view
    times = [case for case in alert.cases if case.metric == AlertMetric.TIME.value]
    measured = [case for case in times if _place(case) in views]
    if all(case.comparison_id == views[_place(case)].id for case in measured):
        return False
    _judge(measured, views)
    sum_up(alert)
    if not alert.cases_total:
        alert.state = AlertState.DISMISSED.value
        with_note(alert, "measured again head to head: no case was seen again")
    elif any(case.confirmed for case in alert.cases):
        alert.state = AlertState.CONFIRMED.value
    return True


def _place(case: AlertCaseRow) -> Place:
    return case.params, case.case_text, case.pass_, case.device_name


def _judge(cases: Sequence[AlertCaseRow], views: Mapping[Place, ComparisonView]) -> None:
    """A case is confirmed by the verdict, and by its p-value among all of the batch."""
    p_values = [p_value_of(views[_place(case)].log_ratios) for case in cases]
    for case, adjusted in zip(cases, adjusted_p_values(p_values), strict=True):
        view = views[_place(case)]
        case.comparison_id = view.id
        if view.verdict is Verdict.INCONCLUSIVE:
            continue
        case.confirmed = view.verdict is _EXPECTED[case.direction] and adjusted <= FALSE_SHARE
        if case.confirmed:
            case.ratio = view.ratio
            case.ratio_low, case.ratio_high = view.ratio_low, view.ratio_high
