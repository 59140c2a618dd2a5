"""Alerts: stored from what a scan found, merged by kernel and version, and kept up to date."""

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from packaging.version import InvalidVersion, Version
from pydantic import BaseModel, ConfigDict
from sqlalchemy.orm import Session, contains_eager, selectinload, undefer

from ..contract.alert import AlertDirection, AlertKind, AlertMetric, AlertPatch, AlertState
from ..contract.errors import NotFoundError
from ..contract.ids import new_id
from ..contract.words import JobState
from .alert_findings import Found, FoundCase, FoundNote, Told, title_of
from .alert_models import AlertCaseRow, AlertRow, AlertScanRow
from .events import now
from .models import CellRow, JobRow
from .results import finite, finite_json

UNDOES = 0.5
"""A later change undoes one when it takes back at least this share of it, in log ratio."""
LOOKS_BACK = timedelta(days=30)
"""Jobs that ended longer ago are not looked through any more."""
_OPEN = (AlertState.CANDIDATE.value, AlertState.CONFIRMED.value)
_COLUMNS = (
    "metric", "direction", "params", "device_name", "before_version", "after_version", "before",
    "after", "p_value", "adjusted_p_value", "before_result_id", "after_result_id",
    "environments_differ",
)  # fmt: skip


def unscanned_jobs(session: Session, limit: int = 20) -> list[str]:
    """Jobs that have ended and were not looked through, the oldest first."""
    ended = (JobState.DONE.value, JobState.CANCELLED.value)
    query = (
        sa.select(JobRow.id)
        .outerjoin(AlertScanRow, AlertScanRow.job_id == JobRow.id)
        .where(
            JobRow.state.in_(ended),
            JobRow.created_at > now() - LOOKS_BACK,
            AlertScanRow.job_id.is_(None),
        )
        .order_by(JobRow.created_at)
        .limit(limit)
    )
    return list(session.scalars(query))


def mark_scanned(session: Session, job_id: str) -> None:
    """Note that a job was looked through."""
    session.merge(AlertScanRow(job_id=job_id, scanned_at=now()))


def record(session: Session, found: Found) -> list[AlertRow]:
    """Store what was found; returns the alerts that are new or have new cases."""
    groups: dict[tuple[str, str, str], list[FoundCase]] = {}
    for case in found.cases:
        groups.setdefault((case.kernel, case.before_version, case.after_version), []).append(case)
    changed = []
    for (kernel, before, after), cases in groups.items():
        alert = _change(session, kernel, before, after)
        if _add_cases(alert, cases, found.tests):
            changed.append(alert)
    session.flush()
    for alert in changed:
        _mark_fixed(session, alert)
    return [*changed, *record_notes(session, found.notes)]


def record_notes(session: Session, notes: Iterable[FoundNote]) -> list[AlertRow]:
    """Store notes that are not there yet; returns those."""
    return [row for note in notes if (row := _new_note(session, note)) is not None]


def _by_key(session: Session, key: str) -> AlertRow | None:
    return session.scalar(sa.select(AlertRow).where(AlertRow.key == key))


def _change(session: Session, kernel: str, before: str, after: str) -> AlertRow:
    key = f"change:{kernel}:{before}:{after}"
    known = _by_key(session, key)
    if known is not None:
        return known
    row = _row(AlertKind.CHANGE, key, "")
    row.kernel, row.before_version, row.after_version = kernel, before, after
    session.add(row)
    return row


def _row(kind: AlertKind, key: str, title: str) -> AlertRow:
    return AlertRow(
        id=new_id("alt"),
        key=key,
        kind=kind.value,
        state=AlertState.CANDIDATE.value,
        title=title,
        worse=[],
        better=[],
        cases_total=0,
        job_ids=[],
        created_at=now(),
        updated_at=now(),
        explain={},
    )


def _new_note(session: Session, note: FoundNote) -> AlertRow | None:
    if _by_key(session, note.key) is not None:
        return None
    row = _row(note.kind, note.key, note.title)
    row.explain = finite_json(dict(note.facts))
    session.add(row)
    session.flush()
    return row


def _add_cases(alert: AlertRow, cases: Sequence[FoundCase], tests: Sequence[float]) -> bool:
    """Add those that the alert does not have; one that was set aside or fixed stays as it is.

    One that was only left without cases, since its results were invalidated, is opened again.
    """
    if alert.state == AlertState.DISMISSED.value and not alert.cases:
        alert.state = AlertState.CANDIDATE.value
    if alert.state not in _OPEN:
        return False
    known = {_place(row) for row in alert.cases}
    fresh = [case for case in cases if case.place not in known]
    if not fresh:
        return False
    alert.cases.extend(_case_row(case) for case in fresh)
    kept = [each for each in alert.explain.get("cases", []) if tuple(each["place"]) in known]
    batches = [*alert.explain.get("batches", []), list(tests)]
    inputs = [*kept, *(_inputs(case, len(batches) - 1) for case in fresh)]
    alert.explain = finite_json({"batches": batches, "cases": inputs})
    sum_up(alert)
    return True


def _place(row: AlertCaseRow) -> tuple[str, str, str, str, str]:
    return row.metric, row.params, row.case_text, row.pass_, row.device_name


def _case_row(case: FoundCase) -> AlertCaseRow:
    values = {name: value for name, value in asdict(case).items() if name in _COLUMNS}
    return AlertCaseRow(
        **values,
        case_text=case.case,
        pass_=case.pass_,
        ratio=finite(case.ratio),
        ratio_low=finite(case.ratio_low),
        ratio_high=finite(case.ratio_high),
        confirmed=True if case.is_exact else None,
    )


def _inputs(case: FoundCase, batch: int) -> dict[str, Any]:
    """What it takes to decide again; `batch` is the place of its p-values among the batches."""
    return {"place": list(case.place), "batch": batch, **case.inputs}


def sum_up(alert: AlertRow) -> None:
    """Title, metrics and state from the cases. Those that were not seen again do not count."""
    counted = [case for case in alert.cases if case.confirmed is not False]
    told = [Told(AlertMetric(c.metric), AlertDirection(c.direction), c.ratio) for c in counted]
    alert.title = title_of(
        alert.kernel or "", alert.before_version or "", alert.after_version or "", told
    )
    seen = {(case.metric, case.direction) for case in told}
    alert.worse = [m.value for m in AlertMetric if (m, AlertDirection.WORSE) in seen]
    alert.better = [m.value for m in AlertMetric if (m, AlertDirection.BETTER) in seen]
    alert.cases_total = len(counted)
    sure = bool(counted) and all(case.confirmed for case in counted)
    if sure and alert.state == AlertState.CANDIDATE.value:
        alert.state = AlertState.CONFIRMED.value
    alert.updated_at = now()


def _mark_fixed(session: Session, later: AlertRow) -> None:
    """Mark confirmed alerts of the kernel as fixed whose losses a later version takes back."""
    gains = [case for case in later.cases if case.direction == AlertDirection.BETTER.value]
    if not gains:
        return
    query = sa.select(AlertRow).where(
        AlertRow.kernel == later.kernel,
        AlertRow.kind == AlertKind.CHANGE.value,
        AlertRow.state == AlertState.CONFIRMED.value,
        AlertRow.id != later.id,
    )
    for alert in session.scalars(query.options(selectinload(AlertRow.cases))):
        losses = [
            case
            for case in alert.cases
            if case.direction == AlertDirection.WORSE.value and case.confirmed is not False
        ]
        if losses and all(any(_undoes(gain, loss) for gain in gains) for loss in losses):
            alert.state = AlertState.FIXED.value
            with_note(alert, f"undone by {later.after_version}")
            alert.updated_at = now()


def _undoes(gain: AlertCaseRow, loss: AlertCaseRow) -> bool:
    if _place(gain) != _place(loss) or not _follows(gain.after_version, loss.after_version):
        return False
    if gain.ratio is None or loss.ratio is None:
        return gain.after == loss.before
    return -math.log(gain.ratio) >= UNDOES * math.log(loss.ratio)


def _follows(version: str, earlier: str) -> bool:
    """Whether a release is newer; of commits and folders, whether it is another one.

    Results of older releases may come in later: what they gained undoes nothing.
    """
    try:
        return Version(version) > Version(earlier)
    except InvalidVersion:
        return version != earlier


def with_note(alert: AlertRow, more: str) -> None:
    """Add a sentence to an alert's note."""
    alert.note = f"{alert.note}; {more}" if alert.note else more


class AlertFilter(BaseModel):
    """Which alerts; lists are alternatives, all fields together narrow."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    state: list[str] = []
    kind: list[str] = []
    kernel: list[str] = []
    since: datetime | None = None


def alerts_page(
    session: Session, wanted: AlertFilter, before: str | None = None, limit: int = 100
) -> list[AlertRow]:
    """Alerts that match, newest first; `before` is the last id seen."""
    query = sa.select(AlertRow).order_by(AlertRow.id.desc()).limit(limit)
    for name in ("state", "kind", "kernel"):
        if values := getattr(wanted, name):
            query = query.where(getattr(AlertRow, name).in_(values))
    if wanted.since is not None:
        query = query.where(AlertRow.updated_at >= wanted.since)
    if before is not None:
        query = query.where(AlertRow.id < before)
    return list(session.scalars(query))


MOST_CASES_AT = 200


def alert_cases_at(
    session: Session, kernels: Sequence[str], place: tuple[str, str, str]
) -> list[AlertCaseRow]:
    """Cases of alerts about these kernels on one (device, case, pass), the newest alert first."""
    device, case, pass_ = place
    query = (
        sa.select(AlertCaseRow)
        .join(AlertRow, AlertRow.id == AlertCaseRow.alert_id)
        .where(
            AlertRow.kind == AlertKind.CHANGE.value,
            AlertRow.kernel.in_(kernels),
            AlertCaseRow.device_name == device,
            AlertCaseRow.case_text == case,
            AlertCaseRow.pass_ == pass_,
        )
        .order_by(AlertRow.id.desc(), AlertCaseRow.id)
        .limit(MOST_CASES_AT)
        .options(contains_eager(AlertCaseRow.alert))
    )
    return list(session.scalars(query))


def get_alert(session: Session, alert_id: str) -> AlertRow:
    """One alert with its cases. Raises NotFoundError."""
    row = session.get(
        AlertRow, alert_id, options=[selectinload(AlertRow.cases), undefer(AlertRow.explain)]
    )
    if row is None:
        raise NotFoundError(f"there is no alert {alert_id!r}")
    return row


def patch_alert(session: Session, alert_id: str, patch: AlertPatch) -> AlertRow:
    """Change what a person may change. Raises NotFoundError."""
    row = get_alert(session, alert_id)
    for name in patch.model_fields_set:
        value = getattr(patch, name)
        if name != "state":
            setattr(row, name, value or None)
        elif value is not None:
            row.state = AlertState(value).value
    row.updated_at = now()
    return row


def add_jobs(session: Session, alert_id: str, job_ids: Collection[str]) -> AlertRow:
    """Note the jobs that measure an alert again. Raises NotFoundError."""
    row = get_alert(session, alert_id)
    row.job_ids = [*row.job_ids, *job_ids]
    row.updated_at = now()
    return row


def drop_result(session: Session, result_id: str) -> list[AlertRow]:
    """Take the cases of an invalidated result away; returns the alerts that had some.

    The jobs of both sides are looked through again: an older result may stand in.
    """
    query = sa.select(AlertCaseRow).where(
        sa.or_(
            AlertCaseRow.before_result_id == result_id, AlertCaseRow.after_result_id == result_id
        )
    )
    alerts: dict[str, AlertRow] = {}
    sides: set[str | None] = set()
    for case in session.scalars(query).all():
        alert = alerts.setdefault(case.alert_id, case.alert)
        sides |= {case.before_result_id, case.after_result_id}
        alert.cases.remove(case)
        if alert.state in _OPEN:
            sum_up(alert)
    for alert in alerts.values():
        if not alert.cases and alert.state in _OPEN:
            alert.state = AlertState.DISMISSED.value
            with_note(alert, "its results were invalidated")
    if sides:
        jobs = sa.select(CellRow.job_id).where(CellRow.run_id.in_(sides - {None}))
        session.execute(sa.delete(AlertScanRow).where(AlertScanRow.job_id.in_(jobs)))
    return list(alerts.values())
