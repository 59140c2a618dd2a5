"""Device minutes that a token's jobs were planned with lately."""

from datetime import datetime, timedelta
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy.orm import Session

from ..contract.contender import Contender
from ..contract.words import LotState
from .events import now
from .models import JobRow, LotRow

WINDOW = timedelta(hours=24)


class Spent(NamedTuple):
    """Estimated seconds of the lots of one job."""

    at: datetime
    seconds: float


def spent_by(session: Session, token_id: str) -> list[Spent]:
    """What the jobs of a token from the last 24 hours were planned with, the oldest first.

    Lots that were cancelled before a worker took them cost nothing.
    """
    untouched = sa.and_(LotRow.state == LotState.CANCELLED.value, LotRow.claimed_at.is_(None))
    query = (
        sa.select(JobRow.created_at, sa.func.sum(LotRow.estimated_s))
        .join(LotRow, LotRow.job_id == JobRow.id)
        .where(JobRow.token_id == token_id, JobRow.created_at > now() - WINDOW, sa.not_(untouched))
        .group_by(JobRow.id, JobRow.created_at)
        .order_by(JobRow.created_at)
    )
    return [Spent(at, float(seconds or 0.0)) for at, seconds in session.execute(query)]


def seconds_until_free(spent: list[Spent], needed_s: float, allowed_s: float) -> float | None:
    """Seconds until enough of the oldest jobs leave the window; None where that never suffices."""
    total = sum(each.seconds for each in spent)
    if needed_s > allowed_s:
        return None
    for each in spent:
        total -= each.seconds
        if total + needed_s <= allowed_s:
            return max(1.0, (each.at + WINDOW - now()).total_seconds())
    return 1.0


def contenders_of_open_lots(session: Session) -> list[str]:
    """Texts of all contenders that a queued or running lot measures, each once."""
    open_lots = (LotState.QUEUED.value, LotState.RUNNING.value)
    query = sa.select(LotRow.cases).where(LotRow.state.in_(open_lots))
    found: dict[str, None] = {}
    for cases in session.scalars(query):
        for case in cases:
            for contender in case["contenders"]:
                found[Contender.model_validate(contender).text] = None
    return list(found)
