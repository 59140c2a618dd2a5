"""Lots that wait where no live worker takes them."""

from datetime import datetime
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy.orm import Session

from ..contract.words import LotState
from .models import JobRow, LotRow
from .workers import live_machines


class StuckQueue(NamedTuple):
    """A queue, how many lots wait in it, and since when the oldest does."""

    queue: str
    lots: int
    since: datetime


def stuck_queues(session: Session, before: datetime) -> list[StuckQueue]:
    """Queues with lots of jobs from before a moment that no live worker serves."""
    served = {queue for machine in live_machines(session) for queue in machine.queues}
    query = (
        sa.select(LotRow.queue, sa.func.count(), sa.func.min(JobRow.created_at))
        .join(JobRow, JobRow.id == LotRow.job_id)
        .where(LotRow.state == LotState.QUEUED.value, JobRow.created_at < before)
        .group_by(LotRow.queue)
        .order_by(LotRow.queue)
    )
    rows = [StuckQueue(*row) for row in session.execute(query)]
    return [row for row in rows if row.queue not in served]
