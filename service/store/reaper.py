"""Keeps jobs moving: gives lots of dead workers to others, routes waiting lots, ends overdue jobs.

One per service process. Staleness is judged on this process's own monotonic clock: a worker is dead
when its beat counter has not moved for `stale_after_s`, whatever the wall clocks say.
"""

import time
from collections.abc import Callable

import sqlalchemy as sa
from sqlalchemy.orm import Session

from ..contract.words import CellState, JobState, LotState, Outcome
from .database import Database
from .events import add_event, now
from .jobs import UNROUTED, end_job_if_complete, get_job, settle_cells
from .models import CellRow, JobRow, LotRow, WorkerRow
from .queue import PRIORITY_STEP, LotQueue
from .workers import live_machines, route, set_worker_state

Clock = Callable[[], float]


class Reaper:
    """Call `tick` about once a second."""

    def __init__(
        self,
        database: Database,
        queue: LotQueue,
        stale_after_s: float,
        max_attempts: int,
        clock: Clock = time.monotonic,
    ) -> None:
        self._database, self._queue = database, queue
        self._stale_after_s, self._max_attempts = stale_after_s, max_attempts
        self._clock = clock
        self._seen: dict[str, tuple[int, float]] = {}
        self._strays: dict[tuple[str, int], float] = {}

    def tick(self) -> None:
        """One round of all duties."""
        dead = self._find_dead_workers()
        self._take_back_lots(dead)
        self._route_waiting()
        self._end_overdue()
        self._database.checkpoint()

    def _find_dead_workers(self) -> set[str]:
        """Ids of workers that are gone; marks those whose beat has stopped."""
        moment = self._clock()
        with self._database.reading() as session:
            rows = session.execute(sa.select(WorkerRow.id, WorkerRow.beat, WorkerRow.state)).all()
        silent = set()
        for worker_id, beat, state in rows:
            seen = self._seen.get(worker_id)
            if seen is None or seen[0] != beat:
                self._seen[worker_id] = (beat, moment)
            elif state != "gone" and moment - seen[1] > self._stale_after_s:
                silent.add(worker_id)
        if silent:
            with self._database.transaction() as session:
                for worker_id in silent:
                    note = f"no heartbeat for {self._stale_after_s:g} s"
                    set_worker_state(session, worker_id, "gone", note)
        return silent | {worker_id for worker_id, _, state in rows if state == "gone"}

    def _take_back_lots(self, dead: set[str]) -> None:
        """Requeue every lot held by a dead worker, by an unknown one, or by none that admits it."""
        moment = self._clock()
        strays: dict[tuple[str, int], float] = {}
        for lot_id, attempt, executor in self._queue.held():
            if executor in dead:
                self.give_back(lot_id, attempt, f"worker {executor} died")
            elif executor not in self._seen:
                since = self._strays.get((lot_id, attempt), moment)
                strays[(lot_id, attempt)] = since
                if moment - since > self._stale_after_s:
                    self.give_back(lot_id, attempt, f"worker {executor} is unknown")
        for lot_id, attempt, worker in self._disowned():
            since = self._strays.get((lot_id, attempt), moment)
            strays[(lot_id, attempt)] = since
            if worker in dead:
                # its workflow has ended, as when a worker stops in the middle of a case
                self.give_back(lot_id, attempt, f"worker {worker} stopped")
            elif moment - since > self._stale_after_s:
                self.give_back(lot_id, attempt, "its worker dropped it")
        self._strays = strays

    def _disowned(self) -> list[tuple[str, int, str]]:
        """Running lots that their worker does not name, with the worker: it does something else,
        or left since.
        """
        with self._database.reading() as session:
            rows = session.execute(
                sa.select(LotRow.id, LotRow.attempt, WorkerRow.id)
                .join(WorkerRow, WorkerRow.id == LotRow.worker_id)
                .where(
                    LotRow.state == LotState.RUNNING.value,
                    sa.func.coalesce(WorkerRow.lot_id, "") != LotRow.id,
                )
            ).all()
        return [(lot_id, attempt, worker) for lot_id, attempt, worker in rows]

    def give_back(self, lot_id: str, attempt: int, why: str) -> None:
        """Put a lot back for its next attempt; a case that killed too many workers fails."""
        with self._database.reading() as session:
            queue = session.scalar(sa.select(LotRow.queue).where(LotRow.id == lot_id))
        if queue is not None:
            self._queue.ensure(queue)
            with self._database.transaction() as session:
                self._requeue(session, lot_id, attempt, why)
        self._queue.withdraw([(lot_id, attempt)])

    def _requeue(self, session: Session, lot_id: str, attempt: int, why: str) -> None:
        job_id = session.scalar(sa.select(LotRow.job_id).where(LotRow.id == lot_id))
        job = get_job(session, job_id, lock=True) if job_id else None
        lot = session.scalar(sa.select(LotRow).where(LotRow.id == lot_id).with_for_update())
        open_states = (LotState.QUEUED, LotState.RUNNING)
        if job is None or lot is None or lot.attempt != attempt or lot.state not in open_states:
            return
        running = sa.and_(CellRow.lot_id == lot_id, CellRow.state == CellState.RUNNING.value)
        session.execute(sa.update(CellRow).where(running).values(deaths=CellRow.deaths + 1))
        reason = f"{why} while measuring this case, {self._max_attempts} times"
        poison = sa.and_(running, CellRow.deaths >= self._max_attempts)
        settle_cells(session, poison, Outcome.FAILED, reason)
        session.execute(sa.update(CellRow).where(running).values(state=CellState.QUEUED.value))
        lot.attempt += 1
        session.execute(
            sa.update(CellRow).where(CellRow.lot_id == lot_id).values(attempt=lot.attempt)
        )
        add_event(session, job.id, "log", {"line": f"lot {lot.position}: {why}; queued again"})
        if end_job_if_complete(session, job.id) or not self._has_open_cells(session, lot_id):
            lot.state = LotState.DONE.value
            return
        lot.state, lot.worker_id = LotState.QUEUED.value, None
        place = (lot.queue, job.priority * PRIORITY_STEP + lot.position)
        self._queue.enqueue(session, lot.id, lot.attempt, place)

    @staticmethod
    def _has_open_cells(session: Session, lot_id: str) -> bool:
        query = sa.select(CellRow.id).where(
            CellRow.lot_id == lot_id, CellRow.state != CellState.DONE.value
        )
        return session.scalar(query.limit(1)) is not None

    def _route_waiting(self) -> None:
        """Send lots that waited for any worker to the first live one's queue."""
        waiting = sa.select(LotRow).where(
            LotRow.queue == UNROUTED, LotRow.state == LotState.QUEUED.value
        )
        with self._database.reading() as session:
            if session.scalar(waiting.limit(1)) is None:
                return
            queue = route(live_machines(session), UNROUTED)
        if queue == UNROUTED:
            return
        self._queue.ensure(queue)
        with self._database.transaction() as session:
            for lot in session.scalars(waiting.order_by(LotRow.id)):
                job = session.get_one(JobRow, lot.job_id)
                lot.queue = queue
                place = (queue, job.priority * PRIORITY_STEP + lot.position)
                self._queue.enqueue(session, lot.id, lot.attempt, place)

    def _end_overdue(self) -> None:
        """End what is still queued of jobs past their deadline."""
        overdue = sa.select(JobRow.id).where(
            JobRow.deadline_at < now(),
            JobRow.state.in_([JobState.QUEUED.value, JobState.RUNNING.value]),
        )
        with self._database.reading() as session:
            job_ids = list(session.scalars(overdue))
        for job_id in job_ids:
            with self._database.transaction() as session:
                withdrawn = self._end_queued(session, job_id)
            self._queue.withdraw(withdrawn)

    @staticmethod
    def _end_queued(session: Session, job_id: str) -> list[tuple[str, int]]:
        job = get_job(session, job_id, lock=True)
        lots = [lot for lot in job.lots if lot.state == LotState.QUEUED]
        for lot in lots:
            lot.state = LotState.CANCELLED.value
        queued = sa.and_(CellRow.job_id == job_id, CellRow.state == CellState.QUEUED.value)
        reason = "the job's deadline passed before it began"
        # the cells of a running lot belong to its worker until the lot ends
        running = sa.select(LotRow.id).where(
            LotRow.job_id == job_id, LotRow.state == LotState.RUNNING.value
        )
        queued = sa.and_(queued, CellRow.lot_id.not_in(running))
        settle_cells(session, queued, Outcome.CANCELLED, reason)
        end_job_if_complete(session, job_id)
        return [(lot.id, lot.attempt) for lot in lots]
