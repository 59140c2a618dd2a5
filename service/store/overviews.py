"""Overviews of tables: what was measured of a kernel, machines by page, counts for metrics."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

import sqlalchemy as sa
from sqlalchemy.orm import Session, selectinload

from .events import now
from .models import EventRow, IdempotencyRow, JobRow, RunTallyRow, TokenRow, WorkerRow


@dataclass
class MeasuredVersion:
    """Results of one version of a kernel."""

    version: str | None
    first_seen_at: datetime
    last_seen_at: datetime
    outcomes: dict[str, int] = field(default_factory=dict)


def measured_versions(session: Session, kernel: str) -> list[MeasuredVersion]:
    """What was measured of a kernel, by version, the newest measured first."""
    moment = RunTallyRow.first_at.type
    rows = session.execute(
        sa.select(
            RunTallyRow.version,
            RunTallyRow.outcome,
            sa.func.sum(RunTallyRow.results),
            sa.func.min(RunTallyRow.first_at, type_=moment),
            sa.func.max(RunTallyRow.last_at, type_=moment),
        )
        .where(
            RunTallyRow.kernel == kernel,
            RunTallyRow.invalid.is_(False),
            RunTallyRow.imported.is_(False),
        )
        .group_by(RunTallyRow.version, RunTallyRow.outcome)
    )
    found: dict[str | None, MeasuredVersion] = {}
    for said, outcome, number, first, last in rows:
        version = said or None
        entry = found.setdefault(version, MeasuredVersion(version, first, last))
        entry.first_seen_at = min(entry.first_seen_at, first)
        entry.last_seen_at = max(entry.last_seen_at, last)
        entry.outcomes[outcome] = int(number)
    return sorted(found.values(), key=lambda entry: entry.last_seen_at, reverse=True)


def workers_page(session: Session, before: str | None, limit: int) -> list[WorkerRow]:
    """Workers, newest first, with their environment; `before` is the last id seen."""
    query = sa.select(WorkerRow).order_by(WorkerRow.id.desc()).limit(limit)
    if before is not None:
        query = query.where(WorkerRow.id < before)
    return list(session.scalars(query.options(selectinload(WorkerRow.environment))))


def tokens_page(session: Session, before: str | None, limit: int) -> list[TokenRow]:
    """Tokens, newest first; `before` is the last id seen."""
    query = sa.select(TokenRow).order_by(TokenRow.id.desc()).limit(limit)
    return list(session.scalars(query.where(TokenRow.id < before) if before else query))


def jobs_by_state(session: Session) -> dict[str, int]:
    """How many jobs there are in each state."""
    query = sa.select(JobRow.state, sa.func.count()).group_by(JobRow.state)
    return {state: number for state, number in session.execute(query)}


def workers_by_state(session: Session) -> dict[str, int]:
    """How many workers there are in each state."""
    query = sa.select(WorkerRow.state, sa.func.count()).group_by(WorkerRow.state)
    return {state: number for state, number in session.execute(query)}


def newest_done_id(session: Session, job_id: str) -> int:
    """Id of the newest `done` event of a job; 0 where it has none."""
    query = sa.select(sa.func.max(EventRow.id)).where(
        EventRow.job_id == job_id, EventRow.kind == "done"
    )
    return session.scalar(query) or 0


def valid_token(session: Session, token_id: str) -> TokenRow | None:
    """The token with this id; None when unknown, revoked or expired."""
    row = session.get(TokenRow, token_id)
    if row is None or row.revoked_at is not None:
        return None
    return None if row.expires_at is not None and row.expires_at <= now() else row


def touch_token(session: Session, token_id: str) -> None:
    """Note that a token was used just now."""
    used = sa.update(TokenRow).where(TokenRow.id == token_id).values(last_used_at=now())
    session.execute(used)


def prune_idempotency(session: Session, older_than: timedelta) -> int:
    """Delete stored answers that are older than this; returns how many."""
    old = sa.delete(IdempotencyRow).where(IdempotencyRow.created_at < now() - older_than)
    return int(getattr(session.execute(old), "rowcount", 0))
