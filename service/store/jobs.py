"""Jobs: submit, read, cancel, retry. One transaction each; the queue is written in the same one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from ..contract.errors import ConflictError, NotFoundError
from ..contract.ids import new_id
from ..contract.plan import Plan, PlannedCell
from ..contract.run import Lot
from ..contract.words import RETRIED, CellState, JobKind, JobState, LotState, Outcome
from .database import Database
from .events import add_event, now
from .known import KnownRun
from .models import CellLogRow, CellRow, JobRow, LotRow
from .queue import LotQueue
from .turns import next_turns, place_of

UNROUTED = "any"
"""Queue of lots that no worker serves yet; the router moves them when one appears."""


@dataclass(frozen=True)
class JobCounts:
    """Cells of a job by state and by outcome."""

    total: int
    queued: int = 0
    running: int = 0
    done: int = 0
    visited: float = 0.0
    """Cells, a running one counted by the share of its visits that are made."""
    outcomes: dict[str, int] = field(default_factory=dict)


class Jobs:
    """Writes and reads jobs of one database."""

    def __init__(self, database: Database, queue: LotQueue) -> None:
        self._database = database
        self._queue = queue

    def submit(
        self,
        plan: Plan,
        known: Mapping[str, KnownRun],
        route: str = UNROUTED,
        token_id: str | None = None,
        job_id: str | None = None,
    ) -> str:
        """Store a planned job and put its lots into the queue `route`; returns the job's id.

        `known` maps cell keys to stored results that answer them already.
        """
        job_id = job_id or new_id("job")
        if route != UNROUTED:
            self._queue.ensure(route)
        with self._database.transaction() as session:
            job = self._insert_job(session, job_id, plan, token_id)
            session.flush()
            open_lots = self._insert_cells(session, job_id, plan, known, route)
            add_event(session, job_id, "state", {"state": JobState.QUEUED.value})
            self._enqueue(session, job, open_lots)
            if not open_lots:
                end_job_if_complete(session, job_id)
        return job_id

    @staticmethod
    def _insert_job(session: Session, job_id: str, plan: Plan, token_id: str | None) -> JobRow:
        request = plan.request
        job = JobRow(
            id=job_id,
            kind=request.kind.value,
            state=JobState.QUEUED.value,
            request=request.model_dump(mode="json"),
            labels=request.labels,
            accelerator=request.accelerator,
            priority=request.priority,
            processes=request.processes,
            timeout_s=request.timeout_s,
            deadline_at=_deadline(request.deadline_s),
            cells_total=len(plan.cells),
            estimated_s=plan.estimated_s,
            token_id=token_id,
            created_at=now(),
        )
        session.add(job)
        return job

    @staticmethod
    def _insert_cells(
        session: Session, job_id: str, plan: Plan, known: Mapping[str, KnownRun], route: str
    ) -> list[LotRow]:
        open_lots: dict[int, LotRow] = {}
        for planned in plan.cells:
            settled = planned.outcome is not None or planned.cell.key in known
            if not settled and planned.lot not in open_lots:
                lot = _lot_row(job_id, plan.lots[planned.lot], route)
                open_lots[planned.lot] = lot
                session.add(lot)
        session.flush()
        for position, planned in enumerate(plan.cells):
            lot_row = open_lots.get(planned.lot)
            session.add(_cell_row(job_id, position, planned, lot_row, known))
        return list(open_lots.values())

    def cancel(self, job_id: str, reason: str = "cancelled by request") -> None:
        """End a job: what is queued or running becomes `cancelled`. Raises when it has ended."""
        with self._database.transaction() as session:
            job = get_job(session, job_id, lock=True)
            if JobState(job.state).ended:
                raise ConflictError(f"job {job_id} is {job.state} already")
            lots = [lot for lot in job.lots if lot.state in (LotState.QUEUED, LotState.RUNNING)]
            settle_cells(session, CellRow.job_id == job_id, Outcome.CANCELLED, reason)
            for lot in lots:
                lot.state = LotState.CANCELLED.value
            end_job(session, job, JobState.CANCELLED, reason)
            withdrawn = [(lot.id, lot.attempt) for lot in lots]
        self._queue.withdraw(withdrawn)

    def retry(self, job_id: str, route: str) -> int:
        """Run again the cells that failed, timed out or were cancelled; returns how many.

        Of a comparison both sides run again. A deadline counts anew: the old one may have passed.
        """
        if route != UNROUTED:
            self._queue.ensure(route)
        with self._database.transaction() as session:
            job = get_job(session, job_id, lock=True)
            if not JobState(job.state).ended:
                raise ConflictError(f"job {job_id} is still {job.state}; wait for its end")
            cells = list(
                session.scalars(
                    sa.select(CellRow).where(
                        CellRow.job_id == job_id,
                        CellRow.outcome.in_([outcome.value for outcome in RETRIED]),
                        # a job that came with a set has no lots: it cannot run here
                        CellRow.lot_id.is_not(None),
                    )
                )
            )
            if not cells:
                raise ConflictError(
                    f"job {job_id} has no failed, timed out or cancelled cell that can run here"
                )
            if job.kind == JobKind.COMPARE:
                cells = _with_other_sides(session, job_id, cells)
            self._requeue(session, job, {cell.lot_id for cell in cells if cell.lot_id}, route)
            for cell in cells:
                cell.state, cell.outcome, cell.reason = CellState.QUEUED.value, None, None
                cell.run_id, cell.deaths, cell.visits_done = None, 0, 0
                cell.started_at = cell.ended_at = None
            job.state, job.reason, job.ended_at = JobState.QUEUED.value, None, None
            job.deadline_at = _deadline(job.request.get("deadline_s"))
            add_event(session, job_id, "state", {"state": job.state})
        return len(cells)

    def _requeue(self, session: Session, job: JobRow, lot_ids: set[str], route: str) -> None:
        lots = [session.get_one(LotRow, lot_id) for lot_id in lot_ids]
        for lot in lots:
            lot.attempt += 1
            lot.state, lot.worker_id, lot.queue = LotState.QUEUED.value, None, route
            session.execute(
                sa.update(CellRow).where(CellRow.lot_id == lot.id).values(attempt=lot.attempt)
            )
        self._enqueue(session, job, lots)

    def _enqueue(self, session: Session, job: JobRow, lots: Sequence[LotRow]) -> None:
        """Give lots of a job, all on one route, their turns, and put them into its queue."""
        if not lots:
            return
        lots = sorted(lots, key=lambda lot: lot.position)
        for lot, turn in zip(lots, next_turns(session, job, lots[0].queue, len(lots)), strict=True):
            lot.turn = turn
            if lot.queue != UNROUTED:
                self._queue.enqueue(session, lot.id, lot.attempt, place_of(job, lot))


def _with_other_sides(session: Session, job_id: str, cells: list[CellRow]) -> list[CellRow]:
    """The cells with the other sides of their comparisons: both are measured in turns."""
    places = {(cell.case_text, cell.pass_) for cell in cells}
    return [
        cell
        for cell in session.scalars(sa.select(CellRow).where(CellRow.job_id == job_id))
        if (cell.case_text, cell.pass_) in places and cell.lot_id is not None
    ]


def _deadline(seconds: float | None) -> datetime | None:
    return now() + timedelta(seconds=seconds) if seconds else None


def _lot_row(job_id: str, lot: Lot, route: str) -> LotRow:
    return LotRow(
        id=new_id("lot"),
        job_id=job_id,
        position=lot.index,
        queue=route,
        state=LotState.QUEUED.value,
        attempt=1,
        cases=[work.model_dump(mode="json") for work in lot.cases],
        estimated_s=lot.estimated_s,
    )


def _cell_row(
    job_id: str,
    position: int,
    planned: PlannedCell,
    lot: LotRow | None,
    known: Mapping[str, KnownRun],
) -> CellRow:
    cell = planned.cell
    row = CellRow(
        job_id=job_id,
        lot_id=lot.id if lot is not None else None,
        position=position,
        case_index=planned.case_index,
        contender=cell.contender.text,
        case_text=cell.case.text,
        pass_=cell.pass_.value,
        cell_key=cell.key,
        state=CellState.QUEUED.value,
    )
    if planned.outcome is not None:
        row.outcome, row.reason = planned.outcome.value, planned.reason
    elif cell.key in known:
        answer = known[cell.key]
        row.outcome, row.reason, row.run_id = answer.outcome, answer.reason, answer.run_id
        row.reused = True
    if row.outcome is not None:
        row.state, row.ended_at = CellState.DONE.value, now()
    return row


def get_job(session: Session, job_id: str, lock: bool = False) -> JobRow:
    """The job; with `lock` its row is held until the transaction ends. Raises NotFoundError.

    Who changes cells or lots of a job and also the job itself locks the job first: a save and a
    cancel that met from two sides would otherwise deadlock on PostgreSQL.
    """
    query = sa.select(JobRow).where(JobRow.id == job_id)
    # the key stays free, so that events of the job can still be added
    job = session.scalar(query.with_for_update(key_share=True) if lock else query)
    if job is None:
        raise NotFoundError(f"there is no job {job_id!r}; GET /api/v1/jobs lists them")
    return job


def list_jobs(session: Session, before: str | None = None, limit: int = 100) -> list[JobRow]:
    """Jobs, newest first; `before` is the id of the last one seen."""
    query = sa.select(JobRow).order_by(JobRow.id.desc()).limit(limit)
    return list(session.scalars(query.where(JobRow.id < before) if before else query))


_SHARES = sa.func.sum(
    sa.case(
        (CellRow.visits_total > 0, 0.95 * CellRow.visits_done / CellRow.visits_total),
        else_=0.0,
    )
)
"""A cell whose visits are all made still has its check and its save before it."""


def count_cells(session: Session, job_ids: Sequence[str]) -> dict[str, JobCounts]:
    """Counts of several jobs in two queries; what is done is counted from an index alone."""
    found = sa.select(CellRow.job_id, CellRow.state, CellRow.outcome, sa.func.count())
    rows = session.execute(
        found.where(CellRow.job_id.in_(job_ids)).group_by(
            CellRow.job_id, CellRow.state, CellRow.outcome
        )
    ).all()
    counts: dict[str, Any] = {
        job_id: {"total": 0, "outcomes": {}, "visited": 0.0} for job_id in job_ids
    }
    for job_id, state, outcome, number in rows:
        entry = counts[job_id]
        entry["total"] += number
        entry[state] = entry.get(state, 0) + number
        if outcome is not None:
            entry["outcomes"][outcome] = number
            entry["visited"] += float(number)
    begun = [job_id for job_id, entry in counts.items() if entry["visited"] < entry["total"]]
    shares = sa.select(CellRow.job_id, _SHARES).where(
        CellRow.job_id.in_(begun), CellRow.state != CellState.DONE.value
    )
    for job_id, share in session.execute(shares.group_by(CellRow.job_id)) if begun else ():
        counts[job_id]["visited"] += float(share)
    return {job_id: JobCounts(**entry) for job_id, entry in counts.items()}


def list_cells(session: Session, job_id: str, after: int = -1, limit: int = 1000) -> list[CellRow]:
    """Cells of a job in order, behind position `after`."""
    return list(
        session.scalars(
            sa.select(CellRow)
            .where(CellRow.job_id == job_id, CellRow.position > after)
            .order_by(CellRow.position)
            .limit(limit)
        )
    )


def get_cell(session: Session, job_id: str, position: int) -> CellRow:
    """One cell by its place in the job. Raises NotFoundError."""
    cell = session.scalar(
        sa.select(CellRow).where(CellRow.job_id == job_id, CellRow.position == position)
    )
    if cell is None:
        raise NotFoundError(f"job {job_id!r} has no cell {position}")
    return cell


def get_cell_log(session: Session, cell: CellRow) -> str:
    """What the cell's measuring process printed last; empty where it printed nothing."""
    row = session.get(CellLogRow, cell.id)
    return row.text if row else ""


def queue_position(session: Session, job: JobRow) -> int:
    """Jobs that will run before this one on its queues; 0 when it is running or next."""
    if job.state != JobState.QUEUED:
        return 0
    ahead = sa.or_(
        JobRow.priority < job.priority,
        sa.and_(JobRow.priority == job.priority, JobRow.id < job.id),
        JobRow.state == JobState.RUNNING.value,
    )
    queues = sa.select(LotRow.queue).where(LotRow.job_id == job.id)
    beside = sa.select(LotRow.job_id).where(
        LotRow.queue.in_(queues),
        LotRow.state.in_([LotState.QUEUED.value, LotState.RUNNING.value]),
    )
    query = sa.select(sa.func.count()).where(
        JobRow.state.in_([JobState.QUEUED.value, JobState.RUNNING.value]),
        JobRow.id != job.id,
        JobRow.id.in_(beside),
        ahead,
    )
    return session.scalar(query) or 0


def settle_cells(
    session: Session, where: sa.ColumnElement[bool], outcome: Outcome, reason: str
) -> int:
    """Give every open cell that matches an outcome without a run; returns how many."""
    result = session.execute(
        sa.update(CellRow)
        .where(where, CellRow.state != CellState.DONE.value)
        .values(state=CellState.DONE.value, outcome=outcome.value, reason=reason, ended_at=now())
    )
    return int(getattr(result, "rowcount", 0))


def end_job(session: Session, job: JobRow, state: JobState, reason: str | None = None) -> None:
    """Close a job and tell its followers."""
    job.state, job.reason, job.ended_at = state.value, reason, now()
    add_event(session, job.id, "state", {"state": state.value, "reason": reason})
    add_event(session, job.id, "done", {"state": state.value})


def end_job_if_complete(session: Session, job_id: str) -> bool:
    """Close the job when no cell is open; the row lock makes the last of two workers see it."""
    session.flush()
    job = get_job(session, job_id, lock=True)
    if JobState(job.state).ended:
        return True
    still_open = session.scalar(
        sa.select(sa.func.count()).where(
            CellRow.job_id == job_id, CellRow.state != CellState.DONE.value
        )
    )
    if still_open:
        return False
    ran = session.scalar(
        sa.select(sa.func.count()).where(
            CellRow.job_id == job_id,
            sa.or_(CellRow.run_id.is_not(None), CellRow.started_at.is_not(None)),
        )
    )
    refused = session.scalar(
        sa.select(sa.func.count()).where(
            CellRow.job_id == job_id,
            CellRow.outcome.in_([Outcome.UNSUPPORTED.value, Outcome.OUT_OF_MEMORY.value]),
        )
    )
    state = JobState.DONE if ran or refused else JobState.FAILED
    reason = None if state is JobState.DONE else "none of its cells could run"
    end_job(session, job, state, reason)
    return True
