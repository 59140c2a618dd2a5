"""Jobs and a worker's side on one database, with a queue that records what it is told."""

from collections.abc import Callable
from typing import Any
from unittest.mock import MagicMock, create_autospec

from lossbench.service.contract.catalogue import load_catalogue
from lossbench.service.contract.job import JobRequest
from lossbench.service.contract.plan import plan_job
from lossbench.service.contract.run import RunRecord
from lossbench.service.contract.words import Outcome
from lossbench.service.store.database import Database
from lossbench.service.store.jobs import Jobs, get_job, list_cells
from lossbench.service.store.known import KnownRun
from lossbench.service.store.queue import LotQueue
from lossbench.service.store.work import CellAnswer, Work

Make = Callable[..., RunRecord]


def request(**changes: Any) -> JobRequest:
    body: dict[str, Any] = {
        "contenders": ["torch-naive", "torch-upcast"],
        "shapes": [{"tokens": 8, "hidden": 4, "vocab": 16}],
        "dtypes": ["float32"],
        "sweep": {"tokens": [8, 16]},
    }
    return JobRequest.model_validate({**body, **changes})


class Desk:
    """Jobs and a worker's side on one database."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.queue: MagicMock = create_autospec(LotQueue, instance=True)
        self.jobs = Jobs(database, self.queue)
        self.work = Work(database, "wrk-1")

    def submit(
        self, known: dict[str, KnownRun] | None = None, route: str = "h200", **changes: Any
    ) -> str:
        plan = plan_job(request(**changes), load_catalogue())
        return self.jobs.submit(plan, known or {}, route)

    def lots(self, job_id: str) -> list[tuple[str, int, str]]:
        """(id, attempt, state) in order."""
        with self.database.reading() as session:
            return [(lot.id, lot.attempt, lot.state) for lot in get_job(session, job_id).lots]

    def measure(self, lot: str, case: int, outcome: Outcome = Outcome.OK, attempt: int = 1) -> None:
        """Answer a case's open cells as a worker would, each with a record where it is ok."""
        task = self.work.begin_case(lot, attempt, case)
        assert task is not None
        reason = None if outcome is Outcome.OK else "because"
        self.work.save_case(
            task,
            [
                CellAnswer(cell.id, outcome, reason, self.record(cell.contender, task), "log\n")
                for cell in task.cells
            ],
        )

    def record(self, contender: str, task: Any) -> RunRecord | None:
        return self.make_record(contender, task.work.case.text)

    make_record: Make

    def state(self, job_id: str) -> str:
        with self.database.reading() as session:
            return get_job(session, job_id).state

    def cells(self, job_id: str) -> list[tuple[str, str | None]]:
        with self.database.reading() as session:
            return [(cell.state, cell.outcome) for cell in list_cells(session, job_id)]
