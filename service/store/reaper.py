"""Keeps jobs moving: gives lots of dead workers to others, routes waiting lots, ends overdue jobs.

One per service process. Staleness is judged on this process's own monotonic clock: a worker is dead
when its beat counter has not moved for `stale_after_s`, whatever the wall clocks say. Only time
that the reaper has watched counts: while the database is away no worker can beat.
"""

import time
from collections.abc import Callable

import sqlalchemy as sa
import structlog
from sqlalchemy.orm import Session

from ..contract.words import CellState, JobState, LotState, Outcome
from .database import Database
from .events import add_event, now
from .jobs import UNROUTED, end_job_if_complete, get_job, settle_cells
from .models import CellLogRow, CellRow, JobRow, LotRow, WorkerRow
from .queue import LotQueue
from .turns import place_of
from .workers import STOPPED, live_machines, route, set_worker_state

Clock = Callable[[], float]
AT_ONCE = 1000
"""Most lots whose place in the queue is looked after in one round."""

log = structlog.get_logger("lossbench.reaper")


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
        self._looked_at = clock()
        self._watched_s = 0.0
        self._seen: dict[str, tuple[int, float]] = {}
        self._strays: dict[tuple[str, int], float] = {}
        self._missing: dict[tuple[str, int], float] = {}

    def tick(self) -> None:
        """One round of all duties."""
        dead = self._find_dead_workers()
        self._take_back_lots(dead)
        self._find_missing()
        self._route_waiting()
        self._end_overdue()
        self._database.checkpoint()

    def _watch(self) -> float:
        """Seconds that this reaper has watched. A look that came late, since the database or this
        process was away, counts as a quarter of what makes a worker stale.
        """
        moment = self._clock()
        self._watched_s += min(moment - self._looked_at, self._stale_after_s / 4)
        self._looked_at = moment
        return self._watched_s

    def _find_dead_workers(self) -> dict[str, bool]:
        """Ids of workers that are gone, and whether each died; marks those whose beat stopped."""
        query = sa.select(WorkerRow.id, WorkerRow.beat, WorkerRow.state, WorkerRow.note)
        with self._database.reading() as session:
            rows = session.execute(query).all()
        moment = self._watch()
        silent = set()
        for worker_id, beat, state, _ in rows:
            seen = self._seen.get(worker_id)
            if seen is None or seen[0] != beat:
                self._seen[worker_id] = (beat, moment)
            elif state != "gone" and moment - seen[1] > self._stale_after_s:
                silent.add(worker_id)
        if silent:
            note = f"no heartbeat for {self._stale_after_s:g} s"
            with self._database.transaction() as session:
                for worker_id in silent:
                    set_worker_state(session, worker_id, "gone", note)
            for worker_id in silent:
                log.warning("worker is gone", worker=worker_id, reason=note)
        gone = {row.id: row.note != STOPPED for row in rows if row.state == "gone"}
        return gone | dict.fromkeys(silent, True)

    def _take_back_lots(self, dead: dict[str, bool]) -> None:
        """Requeue every lot held by a dead worker, by an unknown one, or by none that admits it."""
        moment = self._watched_s
        strays: dict[tuple[str, int], float] = {}
        for lot_id, attempt, executor in self._queue.held():
            if executor in dead:
                self._take_from(lot_id, attempt, executor, dead[executor])
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
                self._take_from(lot_id, attempt, worker, dead[worker])
            elif moment - since > self._stale_after_s:
                self.give_back(lot_id, attempt, "its worker dropped it")
        self._strays = strays

    def _take_from(self, lot_id: str, attempt: int, worker: str, died: bool) -> None:
        """A worker that was told to stop says nothing about the case that it measured."""
        if died:
            self.give_back(lot_id, attempt, f"worker {worker} died")
        else:
            self.give_back(lot_id, attempt, f"worker {worker} stopped", charged=False)

    def _find_missing(self) -> None:
        """Queue again what waits in our tables but not in the queue, as after a failed claim."""
        query = sa.select(LotRow.id, LotRow.attempt).where(
            LotRow.state == LotState.QUEUED.value, LotRow.queue != UNROUTED
        )
        with self._database.reading() as session:
            rows = session.execute(query.order_by(LotRow.id).limit(AT_ONCE)).all()
        missing: dict[tuple[str, int], float] = {}
        for lot in self._queue.ended([(lot_id, attempt) for lot_id, attempt in rows]):
            since = missing[lot] = self._missing.get(lot, self._watched_s)
            if self._watched_s - since > self._stale_after_s:
                self.give_back(*lot, "its place in the queue was lost", charged=False)
        self._missing = missing

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

    def give_back(self, lot_id: str, attempt: int, why: str, charged: bool = True) -> None:
        """Put a lot back for its next attempt; a case that killed too many workers fails.

        `charged`: whether this counts against the case that was being measured.
        """
        with self._database.reading() as session:
            queue = session.scalar(sa.select(LotRow.queue).where(LotRow.id == lot_id))
        if queue is not None:
            self._queue.ensure(queue)
            with self._database.transaction() as session:
                if self._requeue(session, lot_id, attempt, why, charged):
                    log.warning("lot queued again", lot=lot_id, attempt=attempt + 1, reason=why)
        self._queue.withdraw([(lot_id, attempt)])

    def _requeue(
        self, session: Session, lot_id: str, attempt: int, why: str, charged: bool
    ) -> bool:
        job_id = session.scalar(sa.select(LotRow.job_id).where(LotRow.id == lot_id))
        job = get_job(session, job_id, lock=True) if job_id else None
        lot = session.scalar(sa.select(LotRow).where(LotRow.id == lot_id).with_for_update())
        open_states = (LotState.QUEUED, LotState.RUNNING)
        if job is None or lot is None or lot.attempt != attempt or lot.state not in open_states:
            return False
        running = sa.and_(CellRow.lot_id == lot_id, CellRow.state == CellState.RUNNING.value)
        if charged:
            self._charge(session, running, f"attempt {attempt}: {why} while measuring this case")
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
            return True
        lot.state, lot.worker_id = LotState.QUEUED.value, None
        self._queue.enqueue(session, lot.id, lot.attempt, place_of(job, lot))
        return True

    @staticmethod
    def _charge(session: Session, running: sa.ColumnElement[bool], line: str) -> None:
        """Count a death against the cells under way, and say so in their logs: who died with its
        worker left no other.
        """
        session.execute(sa.update(CellRow).where(running).values(deaths=CellRow.deaths + 1))
        for cell_id in session.scalars(sa.select(CellRow.id).where(running)):
            row = session.get(CellLogRow, cell_id)
            if row is None:
                session.add(CellLogRow(cell_id=cell_id, text=f"{line}\n"))
            else:
                row.text += f"{line}\n"
        session.flush()

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
                self._queue.enqueue(session, lot.id, lot.attempt, place_of(job, lot))

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
