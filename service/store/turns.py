"""Fair share: in which order lots of different tokens and jobs leave a queue.

A job's priority comes first. Among equals a lot has a turn, and the lowest turn is next. A newcomer
starts where the queue is now, so nobody who waits is overtaken for ever. The lots of a token's
only job follow each other by one turn; with m other open jobs of the same token by m + 1, so that
a token with a hundred jobs gets little more than a token with one.
"""

import sqlalchemy as sa
from sqlalchemy.orm import Session

from ..contract.words import LotState
from .models import JobRow, LotRow
from .queue import PRIORITY_STEP

_OPEN = (LotState.QUEUED.value, LotState.RUNNING.value)


def next_turns(session: Session, job: JobRow, queue: str, lots: int) -> list[int]:
    """Turns for so many lots of a job that now enters the queue."""
    peers = (
        sa.select(LotRow)
        .join(JobRow, JobRow.id == LotRow.job_id)
        .where(LotRow.queue == queue, JobRow.priority == job.priority, JobRow.id != job.id)
    )
    waiting = peers.where(LotRow.state == LotState.QUEUED.value)
    now_at = session.scalar(waiting.with_only_columns(sa.func.min(LotRow.turn))) or 0
    same = JobRow.token_id == job.token_id if job.token_id else JobRow.token_id.is_(None)
    own = peers.where(LotRow.state.in_(_OPEN), same)
    others = session.scalar(own.with_only_columns(sa.func.count(LotRow.job_id.distinct()))) or 0
    return [now_at + others + number * (others + 1) for number in range(lots)]


def place_of(job: JobRow, lot: LotRow) -> tuple[str, int]:
    """(queue, priority) of a lot for the queue, where 1 is first."""
    return lot.queue, job.priority * PRIORITY_STEP + min(lot.turn, PRIORITY_STEP - 1)
