"""A lot from claim to end: each case measured by children, each case's cells saved in one go."""

import threading
import time
import traceback
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

from lossbench.service.contract.comparison import ComparisonRecord
from lossbench.service.contract.contender import Contender
from lossbench.service.contract.errors import LotLostError
from lossbench.service.contract.job import JobRequest
from lossbench.service.contract.run import Environment, TrainingWork
from lossbench.service.contract.words import Outcome, Pass
from lossbench.service.store.work import CaseTask, CellAnswer, Work

from .assemble import Occasion
from .compare import Measured, conclude, versus
from .environments import Environments
from .measure import CaseMeasurer
from .order import CaseOrder, CellOrder, CellResult
from .pool import ChildPool
from .training_job import Trainer

WANTED_POLL_S = 0.5
PROGRESS_S = 0.5

PoolFactory = Callable[[Callable[[], None]], ChildPool]


class LotWorker:
    """What the queue calls: begin, measure a case, finish. One lot at a time."""

    def __init__(
        self,
        work: Work,
        environments: Environments,
        environment: Environment,
        make_pool: PoolFactory,
        worker_id: str,
        trainer: Trainer | None = None,
    ) -> None:
        """Without a `trainer` it takes no lots of trainings."""
        self._trainer = trainer
        self._work, self._environments = work, environments
        self._environment, self._worker_id = environment, worker_id
        self._make_pool = make_pool
        self._pool: ChildPool | None = None
        self._one_lot = threading.Lock()
        self._holding: tuple[str, int] | None = None

    @property
    def lot_id(self) -> str | None:
        """The lot under way; None where there is none."""
        holding = self._holding
        return holding[0] if holding else None

    def begin(self, lot_id: str, attempt: int) -> int:
        """Claim a lot; returns its number of cases. Raises LotLostError."""
        with self._one_lot:
            cases = self._work.begin_lot(lot_id, attempt)
            self._holding = (lot_id, attempt)
            self._close_pool()
            self._pool = self._make_pool(self._wanted(lot_id, attempt))
        return cases

    def _wanted(self, lot_id: str, attempt: int) -> Callable[[], None]:
        """A check, at most twice a second, that nobody cancelled or took over the lot."""
        asked = time.monotonic()

        def still_wanted() -> None:
            nonlocal asked
            if time.monotonic() - asked < WANTED_POLL_S:
                return
            asked = time.monotonic()
            if not self._work.still_mine(lot_id, attempt):
                raise LotLostError(f"lot {lot_id} was cancelled or taken over")

        return still_wanted

    def measure_case(self, lot_id: str, attempt: int, case_index: int) -> None:
        """Measure one case and store its cells. Raises LotLostError when fenced."""
        try:
            task = self._work.begin_case(lot_id, attempt, case_index)
            if task is not None:
                self._work.save_case(task, *self._answers(task))
                if self._trainer is not None:
                    self._trainer.forget(task)
        except BaseException:
            self.drop(lot_id, attempt)
            raise

    def _answers(self, task: CaseTask) -> tuple[Sequence[CellAnswer], Sequence[ComparisonRecord]]:
        try:
            if isinstance(task.work, TrainingWork):
                return self._train(task), ()
            measured = self._measure(task)
            return [_answer(result) for result in measured.results], measured.comparisons
        except LotLostError:
            raise
        except Exception as error:  # a fault of ours: the cells say so, the lot goes on
            reason = f"internal error: {type(error).__name__}: {error}"[:500]
            log = traceback.format_exc()
            failed = Outcome.FAILED
            return [CellAnswer(cell.id, failed, reason, None, log) for cell in task.cells], ()

    def _train(self, task: CaseTask) -> Sequence[CellAnswer]:
        if self._trainer is None:
            raise LotLostError(f"lot {task.lot_id} trains, which this worker cannot")
        return self._trainer.train(task, self._wanted(task.lot_id, task.attempt))

    def _measure(self, task: CaseTask) -> Measured:
        if self._pool is None:
            raise LotLostError(f"lot {task.lot_id} has no measuring processes any more")
        order = case_order(task)
        started, began_s = datetime.now(UTC), time.monotonic()
        measurer = CaseMeasurer(
            self._environments,
            self._pool,
            self._progress(task),
            lambda line: self._work.note(task, line),
        )
        findings, endings = measurer.measure(order)
        # the wall clock may have been set meanwhile: a run that ends before it began is refused
        ended = started + timedelta(seconds=time.monotonic() - began_s)
        occasion = Occasion(self._environment, self._worker_id, started, ended)
        return conclude(order, findings, endings, occasion)

    def _progress(self, task: CaseTask) -> Callable[[dict[int, tuple[int, int]]], None]:
        reported = 0.0

        def report(visits: dict[int, tuple[int, int]]) -> None:
            nonlocal reported
            if time.monotonic() - reported >= PROGRESS_S:
                reported = time.monotonic()
                self._work.report_visits(task, visits)

        return report

    def finish(self, lot_id: str, attempt: int) -> None:
        """Close a lot and end its children."""
        try:
            self._work.finish_lot(lot_id, attempt)
        finally:
            self.drop(lot_id, attempt)

    def drop(self, lot_id: str, attempt: int) -> None:
        """Work on this attempt has ended, well or badly; a newer one goes on. Safe to repeat."""
        with self._one_lot:
            if self._holding == (lot_id, attempt):
                self._holding = None
                self._close_pool()

    def _close_pool(self) -> None:
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def abort(self) -> None:
        """End every child now; the thread that measures finds out and gives up its lot."""
        with self._one_lot:
            self._holding = None
            if self._trainer is not None:
                self._trainer.stop()
            if self._pool is not None:
                self._pool.abort()


def case_order(task: CaseTask) -> CaseOrder:
    """What the measuring side needs of a task. Raises TypeError for one that trains."""
    if isinstance(task.work, TrainingWork):
        raise TypeError(f"lot {task.lot_id} trains and measures no case")
    request = JobRequest.model_validate(task.request)
    return CaseOrder(
        case=task.work.case,
        cells=tuple(
            CellOrder(cell.id, Contender.parse(cell.contender), Pass(cell.pass_))
            for cell in task.cells
        ),
        baseline=request.baseline,
        processes=request.least_processes,
        timeout_s=request.timeout_s,
        versus=versus(request, task.work.contenders) if task.work.is_comparison else None,
    )


def _answer(result: CellResult) -> CellAnswer:
    return CellAnswer(result.number, result.outcome, result.reason, result.record, result.log)
