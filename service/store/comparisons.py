"""Comparisons: stored with the runs they rest on, listed, and found for two contenders."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa
from pydantic import BaseModel, ConfigDict
from sqlalchemy.orm import Session, aliased

from ..contract.comparison import ComparisonRecord, ComparisonView
from ..contract.errors import NotFoundError
from ..contract.ids import new_id
from .models import ComparisonRow, EnvironmentRow, RunRow
from .results import ResultFilter, finite, finite_json, insert_environment

Side = tuple[str, str]
"""Contender and pass of a run."""


def insert_comparison(
    session: Session, record: ComparisonRecord, job_id: str | None, runs: Mapping[Side, str]
) -> str:
    """Store a comparison with the ids of its two runs, where these were stored; returns its id."""
    environment_id = insert_environment(session, record.environment)
    row = _row(new_id("cmp"), record, environment_id)
    row.job_id = job_id
    row.base_run_id = runs.get((row.base, row.pass_))
    row.candidate_run_id = runs.get((row.candidate, row.pass_))
    session.add(row)
    session.flush()
    return row.id


def _row(comparison_id: str, record: ComparisonRecord, environment_id: str) -> ComparisonRow:
    return ComparisonRow(
        id=comparison_id,
        base=record.base.text,
        candidate=record.candidate.text,
        case_text=record.case.text,
        pass_=record.pass_.value,
        verdict=record.verdict.value,
        reason=record.reason,
        ratio=finite(record.ratio),
        ratio_low=finite(record.ratio_low),
        ratio_high=finite(record.ratio_high),
        detectable_effect=finite(record.minimum_detectable_effect),
        processes=record.processes,
        looks=record.looks,
        log_ratios=finite_json(list(record.log_ratios)),
        environment_id=environment_id,
        protocol_version=record.protocol_version,
        measured_at=record.measured_at,
    )


def unstored_comparison(record: ComparisonRecord) -> ComparisonView:
    """A comparison made without a server, as it would be served; it has no runs."""
    environment = record.environment
    fingerprints = (environment.hardware_fingerprint, environment.software_fingerprint)
    row = _row("local", record, "-".join(fingerprints))
    return comparison_view(row, environment.device_name, environment.device_type)


def comparison_view(row: ComparisonRow, device_name: str, device_type: str) -> ComparisonView:
    """A comparison with the device it was made on."""
    return ComparisonView.model_validate(
        {
            "id": row.id,
            "job_id": row.job_id,
            "base": row.base,
            "candidate": row.candidate,
            "case": row.case_text,
            "pass": row.pass_,
            "verdict": row.verdict,
            "reason": row.reason,
            "ratio": row.ratio,
            "ratio_low": row.ratio_low,
            "ratio_high": row.ratio_high,
            "minimum_detectable_effect": row.detectable_effect,
            "processes": row.processes,
            "looks": row.looks,
            "log_ratios": row.log_ratios,
            "base_result_id": row.base_run_id,
            "candidate_result_id": row.candidate_run_id,
            "device_name": device_name,
            "device_type": device_type,
            "environment_id": row.environment_id,
            "protocol_version": row.protocol_version,
            "measured_at": row.measured_at,
        }
    )


class ComparisonFilter(BaseModel):
    """Which comparisons; lists are alternatives, all fields together narrow."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    job: list[str] = []
    base: list[str] = []
    candidate: list[str] = []
    case: list[str] = []
    pass_: list[str] = []
    verdict: list[str] = []


_COLUMNS = {
    "job": ComparisonRow.job_id,
    "base": ComparisonRow.base,
    "candidate": ComparisonRow.candidate,
    "case": ComparisonRow.case_text,
    "pass_": ComparisonRow.pass_,
    "verdict": ComparisonRow.verdict,
}


def _with_device() -> sa.Select[ComparisonRow, str, str]:
    return sa.select(ComparisonRow, EnvironmentRow.device_name, EnvironmentRow.device_type).join(
        EnvironmentRow, EnvironmentRow.id == ComparisonRow.environment_id
    )


def comparisons_page(
    session: Session, wanted: ComparisonFilter, before: str | None = None, limit: int = 100
) -> list[ComparisonView]:
    """Comparisons that match, newest first; `before` is the last id seen."""
    query = _with_device().order_by(ComparisonRow.id.desc()).limit(limit)
    for name, column in _COLUMNS.items():
        if values := getattr(wanted, name):
            query = query.where(column.in_(values))
    if before is not None:
        query = query.where(ComparisonRow.id < before)
    return [comparison_view(*row) for row in session.execute(query)]


def get_comparison(session: Session, comparison_id: str) -> ComparisonView:
    """One comparison. Raises NotFoundError."""
    row = session.execute(_with_device().where(ComparisonRow.id == comparison_id)).one_or_none()
    if row is None:
        raise NotFoundError(f"there is no comparison {comparison_id!r}")
    return comparison_view(*row)


def comparisons_of_job(session: Session, job_id: str) -> list[ComparisonView]:
    """The newest comparison of each case and pass of a job: a retry makes new ones."""
    query = _with_device().where(ComparisonRow.job_id == job_id).order_by(ComparisonRow.id)
    found = [comparison_view(*row) for row in session.execute(query)]
    return list({(each.case, each.pass_): each for each in found}.values())


class HeadToHead(NamedTuple):
    """The newest comparison of two contenders on a case, as base and candidate were asked for."""

    id: str
    case: str
    pass_: str
    hardware: str
    verdict: str
    reason: str | None
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    detectable_effect: float | None
    processes: int


# in the order of its fields; the values of each process are not read
_MET = (
    ComparisonRow.id,
    ComparisonRow.case_text,
    ComparisonRow.pass_,
    EnvironmentRow.hardware_fingerprint,
    ComparisonRow.verdict,
    ComparisonRow.reason,
    ComparisonRow.ratio,
    ComparisonRow.ratio_low,
    ComparisonRow.ratio_high,
    ComparisonRow.detectable_effect,
    ComparisonRow.processes,
)
_SWAPPED = {"slower": "faster", "faster": "slower"}


def head_to_head(
    session: Session, base: str, candidate: str, wanted: ResultFilter
) -> dict[tuple[str, str, str], HeadToHead]:
    """The newest comparison by case, pass and hardware fingerprint, in either direction.

    Of `wanted` the job and the times count, and whether comparisons on invalidated runs do.
    """
    run = (aliased(RunRow), aliased(RunRow))
    query = (
        sa.select(ComparisonRow.base, *_MET)
        .join(EnvironmentRow, EnvironmentRow.id == ComparisonRow.environment_id)
        .outerjoin(run[0], run[0].id == ComparisonRow.base_run_id)
        .outerjoin(run[1], run[1].id == ComparisonRow.candidate_run_id)
        .where(_either_way(base, candidate))
        .order_by(ComparisonRow.id)
    )
    if not wanted.include_invalid:
        query = query.where(run[0].invalidated_at.is_(None), run[1].invalidated_at.is_(None))
    if wanted.job:
        query = query.where(ComparisonRow.job_id.in_(wanted.job))
    if wanted.since is not None:
        query = query.where(ComparisonRow.measured_at >= wanted.since)
    if wanted.until is not None:
        query = query.where(ComparisonRow.measured_at < wanted.until)
    rows: Sequence[Any] = session.execute(query).all()
    found = [_as_asked(HeadToHead._make(row[1:]), row[0] != base) for row in rows]
    return {(each.case, each.pass_, each.hardware): each for each in found}


def _either_way(base: str, candidate: str) -> sa.ColumnElement[bool]:
    return sa.or_(
        sa.and_(ComparisonRow.base == base, ComparisonRow.candidate == candidate),
        sa.and_(ComparisonRow.base == candidate, ComparisonRow.candidate == base),
    )


def _as_asked(met: HeadToHead, turned: bool) -> HeadToHead:
    """The comparison, turned round where its base is the candidate that was asked for."""
    if not turned:
        return met
    value, low, high = (1.0 / x if x else None for x in (met.ratio, met.ratio_low, met.ratio_high))
    verdict = _SWAPPED.get(met.verdict, met.verdict)
    return met._replace(verdict=verdict, ratio=value, ratio_low=high, ratio_high=low)
