"""The worker's transactions: claim a lot, report progress, save cells behind a fence."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from pydantic import TypeAdapter
from sqlalchemy.orm import Session

from ..contract.comparison import ComparisonRecord
from ..contract.errors import LotLostError
from ..contract.run import CaseWork, RunRecord, TrainingWork
from ..contract.words import CellState, JobState, LotState, Outcome
from .comparisons import insert_comparison
from .database import Database
from .events import add_event, now
from .jobs import end_job_if_complete, get_job
from .models import CellLogRow, CellRow, JobRow, LotRow
from .persistence import passes_by_itself, persistently
from .run_rows import NewRun, insert_runs

LOG_BYTES = 256 * 1024
_WORK: TypeAdapter[CaseWork | TrainingWork] = TypeAdapter(CaseWork | TrainingWork)


@dataclass(frozen=True)
class OpenCell:
    """A cell of a case that still needs an answer."""

    id: int
    position: int
    contender: str
    pass_: str


@dataclass(frozen=True)
class CaseTask:
    """One case to measure: its work, its open cells, and the job's settings."""

    job_id: str
    lot_id: str
    attempt: int
    case_index: int
    work: CaseWork | TrainingWork
    cells: tuple[OpenCell, ...]
    request: dict[str, Any]


@dataclass(frozen=True)
class CellAnswer:
    """How one cell ended: a record to store, or only an outcome with its reason."""

    cell_id: int
    outcome: Outcome
    reason: str | None
    record: RunRecord | None
    log: str = ""
    training_run_id: str | None = None


class Work:
    """What a worker does in the database; while that is away, claims and saves wait for it."""

    def __init__(self, database: Database, worker_id: str) -> None:
        self._database = database
        self._worker_id = worker_id

    def begin_lot(self, lot_id: str, attempt: int) -> int:
        """Claim a lot; returns its number of cases. Raises LotLostError."""
        return persistently(lambda _: self._begin_lot(lot_id, attempt), "claim of a lot")

    def _begin_lot(self, lot_id: str, attempt: int) -> int:
        with self._database.transaction() as session:
            job = self._locked_job_of(session, lot_id)
            claimed = session.execute(
                sa.update(LotRow)
                .where(
                    LotRow.id == lot_id,
                    LotRow.attempt == attempt,
                    LotRow.state.in_([LotState.QUEUED.value, LotState.RUNNING.value]),
                )
                .values(state=LotState.RUNNING.value, worker_id=self._worker_id, claimed_at=now())
            )
            if not getattr(claimed, "rowcount", 0):
                raise LotLostError(f"lot {lot_id} attempt {attempt} is not open any more")
            lot = session.get_one(LotRow, lot_id)
            if job.state == JobState.QUEUED:
                job.state, job.started_at = JobState.RUNNING.value, now()
                add_event(session, job.id, "state", {"state": job.state, "worker": self._worker_id})
            return len(lot.cases)

    @staticmethod
    def _locked_job_of(session: Session, lot_id: str) -> JobRow:
        job_id = session.scalar(sa.select(LotRow.job_id).where(LotRow.id == lot_id))
        if job_id is None:
            raise LotLostError(f"there is no lot {lot_id}")
        return get_job(session, job_id, lock=True)

    def begin_case(self, lot_id: str, attempt: int, case_index: int) -> CaseTask | None:
        """Mark a case's open cells as running; None when all have answers already.

        Raises LotLostError.
        """
        return persistently(
            lambda _: self._begin_case(lot_id, attempt, case_index), "begin of a case"
        )

    def _begin_case(self, lot_id: str, attempt: int, case_index: int) -> CaseTask | None:
        with self._database.transaction() as session:
            lot = self._held_lot(session, lot_id, attempt)
            rows = list(
                session.scalars(
                    sa.select(CellRow)
                    .where(
                        CellRow.lot_id == lot_id,
                        CellRow.case_index == case_index,
                        CellRow.state != CellState.DONE.value,
                    )
                    .order_by(CellRow.position)
                )
            )
            if not rows:
                return None
            for row in rows:
                row.state, row.started_at = CellState.RUNNING.value, now()
                row.visits_done = 0
                add_event(session, lot.job_id, "cell", cell_event(row))
            job = session.get_one(JobRow, lot.job_id)
            return CaseTask(
                job_id=lot.job_id,
                lot_id=lot_id,
                attempt=attempt,
                case_index=case_index,
                work=_WORK.validate_python(lot.cases[case_index]),
                cells=tuple(OpenCell(r.id, r.position, r.contender, r.pass_) for r in rows),
                request=job.request,
            )

    def _held_lot(self, session: Session, lot_id: str, attempt: int) -> LotRow:
        """The lot, which this worker claimed last. An attempt that the queue delivered twice
        belongs to the worker that came second.
        """
        lot = session.get(LotRow, lot_id)
        mine = lot is not None and (lot.attempt, lot.worker_id) == (attempt, self._worker_id)
        if lot is None or not mine or lot.state != LotState.RUNNING:
            raise LotLostError(f"lot {lot_id} attempt {attempt} was cancelled or taken over")
        return lot

    def require_held(self, session: Session, task: CaseTask) -> None:
        """Raises LotLostError where this worker does not hold the task's lot any more."""
        self._held_lot(session, task.lot_id, task.attempt)

    def still_mine(self, lot_id: str, attempt: int) -> bool:
        """Whether this worker still holds the lot: false after a cancel or a take-over.

        True as well where the database does not say: the save will find out.
        """
        wanted = sa.select(LotRow.attempt, LotRow.state, LotRow.worker_id)
        try:
            with self._database.reading() as session:
                row = session.execute(wanted.where(LotRow.id == lot_id)).one_or_none()
        except sa.exc.SQLAlchemyError as error:
            if passes_by_itself(error):
                return True
            raise
        return row is not None and tuple(row) == (attempt, LotState.RUNNING, self._worker_id)

    def report_visits(self, task: CaseTask, visits: dict[int, tuple[int, int]]) -> None:
        """Store how many visits of each cell are done: {cell id: (done, total)}.

        Left out while the database is away: the next report says more.
        """
        with _left_out_while_away(), self._database.transaction() as session:
            for cell_id, (done, total) in visits.items():
                row = session.get_one(CellRow, cell_id)
                if row.state != CellState.RUNNING or row.attempt != task.attempt:
                    continue
                row.visits_done, row.visits_total = done, total
                add_event(session, task.job_id, "cell", cell_event(row))

    def note(self, task: CaseTask, text: str) -> None:
        """Append a line to the job's log stream; left out while the database is away."""
        with _left_out_while_away(), self._database.transaction() as session:
            add_event(session, task.job_id, "log", {"line": text, "worker": self._worker_id})

    def save_case(
        self,
        task: CaseTask,
        answers: Sequence[CellAnswer],
        comparisons: Sequence[ComparisonRecord] = (),
    ) -> None:
        """Store the answers of a case, all or none. Raises LotLostError when fenced.

        `comparisons` are those of its cells; their rows name the runs that are stored with them.
        """
        persistently(lambda again: self._save_case(task, answers, comparisons, again), "save")

    def _save_case(
        self,
        task: CaseTask,
        answers: Sequence[CellAnswer],
        comparisons: Sequence[ComparisonRecord],
        again: bool,
    ) -> None:
        names = {cell.id: (cell.contender, cell.pass_) for cell in task.cells}
        with self._database.transaction() as session:
            get_job(session, task.job_id, lock=True)
            self._held_lot(session, task.lot_id, task.attempt)
            if again and self._is_saved(session, task):
                return
            measured = {answer.cell_id: answer.record for answer in answers if answer.record}
            ids = insert_runs(session, [NewRun(record) for record in measured.values()])
            stored = dict(zip(measured, ids, strict=True))
            for answer in answers:
                self._settle(session, task, answer, stored.get(answer.cell_id))
            runs = {names[cell_id]: run_id for cell_id, run_id in stored.items()}
            for comparison in comparisons:
                insert_comparison(session, comparison, task.job_id, runs)
            end_job_if_complete(session, task.job_id)

    @staticmethod
    def _is_saved(session: Session, task: CaseTask) -> bool:
        """Whether a try whose answer was lost did store the case: nobody else may, while the lot
        is held.
        """
        ids = [cell.id for cell in task.cells]
        still_open = sa.select(CellRow.id).where(
            CellRow.id.in_(ids), CellRow.state != CellState.DONE.value
        )
        return session.scalar(still_open.limit(1)) is None

    @staticmethod
    def _settle(session: Session, task: CaseTask, answer: CellAnswer, run_id: str | None) -> None:
        settled = session.execute(
            sa.update(CellRow)
            .where(
                CellRow.id == answer.cell_id,
                CellRow.attempt == task.attempt,
                CellRow.state == CellState.RUNNING.value,
            )
            .values(
                state=CellState.DONE.value,
                outcome=answer.outcome.value,
                reason=answer.reason,
                run_id=run_id,
                training_run_id=answer.training_run_id,
                ended_at=now(),
            )
        )
        if not getattr(settled, "rowcount", 0):
            raise LotLostError(f"cell {answer.cell_id} is not open for attempt {task.attempt}")
        if answer.log:
            session.merge(CellLogRow(cell_id=answer.cell_id, text=answer.log[-LOG_BYTES:]))
        row = session.get_one(CellRow, answer.cell_id, populate_existing=True)
        add_event(session, task.job_id, "cell", cell_event(row))

    def finish_lot(self, lot_id: str, attempt: int) -> None:
        """Close a lot whose cases all have answers. Raises LotLostError."""
        persistently(lambda again: self._finish_lot(lot_id, attempt, again), "end of a lot")

    def _finish_lot(self, lot_id: str, attempt: int, again: bool) -> None:
        with self._database.transaction() as session:
            lot = session.get(LotRow, lot_id)
            if again and lot is not None and (lot.attempt, lot.state) == (attempt, LotState.DONE):
                return
            self._held_lot(session, lot_id, attempt).state = LotState.DONE.value


@contextmanager
def _left_out_while_away() -> Iterator[None]:
    try:
        yield
    except sa.exc.SQLAlchemyError as error:
        if not passes_by_itself(error):
            raise


def cell_event(row: CellRow) -> dict[str, Any]:
    """What followers of a job learn of a cell."""
    return {
        "position": row.position,
        "contender": row.contender,
        "case": row.case_text,
        "pass": row.pass_,
        "state": row.state,
        "outcome": row.outcome,
        "reason": row.reason,
        "visits_done": row.visits_done,
        "visits_total": row.visits_total,
        "run_id": row.run_id,
    }
