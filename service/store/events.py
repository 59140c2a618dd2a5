"""Events of a job, in order: what the live page and `watch` follow."""

from datetime import UTC, datetime
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy.orm import Session

from .models import EventRow

EventKind = Literal["state", "cell", "log", "done"]


def now() -> datetime:
    """The present moment, tz-aware UTC."""
    return datetime.now(UTC)


def add_event(session: Session, job_id: str, kind: EventKind, data: dict[str, Any]) -> None:
    """Append an event to a job."""
    session.add(EventRow(job_id=job_id, kind=kind, data=data, created_at=now()))


def events_after(
    session: Session, last_id: int, job_id: str | None = None, limit: int = 1000
) -> list[EventRow]:
    """Events behind `last_id`, of one job or of all, oldest first."""
    query = sa.select(EventRow).where(EventRow.id > last_id).order_by(EventRow.id).limit(limit)
    if job_id is not None:
        query = query.where(EventRow.job_id == job_id)
    return list(session.scalars(query))


def last_log_lines(session: Session, job_id: str, limit: int) -> list[str]:
    """The last lines of a job's log, oldest first."""
    rows = session.scalars(
        sa.select(EventRow.data)
        .where(EventRow.job_id == job_id, EventRow.kind == "log")
        .order_by(EventRow.id.desc())
        .limit(limit)
    )
    return [str(data.get("line", "")) for data in reversed(list(rows))]


def newest_event_id(session: Session) -> int:
    """Id of the newest event of any job; 0 where there is none."""
    return session.scalar(sa.select(sa.func.coalesce(sa.func.max(EventRow.id), 0))) or 0


def prune_events(session: Session, older_than: datetime) -> int:
    """Delete events from before a moment, the newest of all excepted; returns how many.

    Without its last row SQLite would give numbers anew, and streams wait for higher ones.
    """
    newest = newest_event_id(session)
    result = session.execute(
        sa.delete(EventRow).where(EventRow.created_at < older_than, EventRow.id < newest)
    )
    return int(getattr(result, "rowcount", 0))
