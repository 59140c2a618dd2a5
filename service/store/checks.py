"""Checks: store the whole grid of a contender, list checks, find the newest of each contender."""

import sqlalchemy as sa
from sqlalchemy.orm import Session, undefer

from ..contract.check import CheckRecord
from ..contract.errors import NotFoundError
from ..contract.ids import new_id
from .models import CheckRow
from .results import finite_json, insert_environment


def insert_check(session: Session, record: CheckRecord, check_id: str | None = None) -> str:
    """Store a check; returns its id, a new one unless given."""
    insert_environment(session, record.environment)
    environment, contender = record.environment, record.contender
    row = CheckRow(
        id=check_id or new_id("chk"),
        kernel=contender.kernel,
        version=record.version,
        contender=contender.text,
        params_text=contender.params_text,
        device_type=environment.device_type,
        device_name=environment.device_name,
        hardware_fingerprint=environment.hardware_fingerprint,
        software_fingerprint=environment.software_fingerprint,
        interpreted=record.interpreted,
        started_at=record.started_at,
        ended_at=record.ended_at,
        counts=record.counts,
        record=finite_json(record.model_dump(mode="json")),
    )
    session.add(row)
    session.flush()
    return row.id


def checks_page(
    session: Session,
    kernel: str | None = None,
    version: str | None = None,
    before: str | None = None,
    limit: int = 100,
) -> list[CheckRow]:
    """Checks, newest first, without their cases."""
    query = sa.select(CheckRow).order_by(CheckRow.id.desc()).limit(limit)
    if kernel is not None:
        query = query.where(CheckRow.kernel == kernel)
    if version is not None:
        query = query.where(CheckRow.version == version)
    if before is not None:
        query = query.where(CheckRow.id < before)
    return list(session.scalars(query))


def get_check(session: Session, check_id: str) -> CheckRecord:
    """A whole check. Raises NotFoundError."""
    query = sa.select(CheckRow).where(CheckRow.id == check_id).options(undefer(CheckRow.record))
    row = session.scalar(query)
    if row is None:
        raise NotFoundError(f"there is no check {check_id!r}")
    return record_of(row)


def newest_checks(
    session: Session, kernel: str | None = None, version: str | None = None
) -> list[CheckRow]:
    """The newest check of every contender on every device, with its whole record."""
    newest = sa.select(sa.func.max(CheckRow.id)).group_by(CheckRow.contender, CheckRow.device_name)
    if kernel is not None:
        newest = newest.where(CheckRow.kernel == kernel)
    if version is not None:
        newest = newest.where(CheckRow.version == version)
    query = (
        sa.select(CheckRow)
        .where(CheckRow.id.in_(newest))
        .order_by(CheckRow.contender, CheckRow.device_type, CheckRow.id)
        .options(undefer(CheckRow.record))
    )
    return list(session.scalars(query))


def record_of(row: CheckRow) -> CheckRecord:
    """The record of a row that was read whole."""
    return CheckRecord.model_validate(row.record)
