"""Compare jobs answered with verdicts that are made up."""

from datetime import UTC, datetime
from typing import Any

from lossbench.service.contract.comparison import ComparisonRecord
from lossbench.service.contract.contender import Contender
from lossbench.service.contract.run import Cell
from lossbench.service.contract.words import Outcome, Pass, Verdict
from lossbench.service.store.jobs import get_job
from lossbench.service.store.work import CellAnswer

JOBS = "/api/v1/jobs"
SHAPE = {"tokens": 1024, "hidden": 512, "vocab": 4096}
BODY: dict[str, Any] = {
    "kind": "compare",
    "contenders": ["liger@0.8.0", "liger@0.8.5"],
    "shapes": [SHAPE],
}


class Referee:
    """Answers compare jobs: `verdict` and `ratio` for every case, or one side with an outcome."""

    def __init__(self, service: Any, worker: Any = None) -> None:
        self.service, self.worker = service, worker or service.worker()

    def submit(self, **changes: Any) -> str:
        body = {**BODY, "contenders": ["liger@0.6.5", "liger@0.8.5"], **changes}
        posted = self.service.http.post(JOBS, json=body)
        assert posted.status_code == 202, posted.text
        return str(posted.json()["id"])

    def lots(self, job_id: str) -> list[tuple[str, int]]:
        with self.service.context.database.reading() as session:
            return [
                (lot.id, lot.attempt)
                for lot in get_job(session, job_id).lots
                if lot.state == "queued"
            ]

    def settle(self, job_id: str, lost: Outcome | None = None, **changes: Any) -> None:
        """Save every case; `lost` is how the candidate's cells end."""
        work = self.worker.work
        for lot_id, attempt in self.lots(job_id):
            for case_index in range(work.begin_lot(lot_id, attempt)):
                task = work.begin_case(lot_id, attempt, case_index)
                work.save_case(task, self.answers(task, lost), self.verdicts(task, **changes))
            work.finish_lot(lot_id, attempt)

    def answers(self, task: Any, lost: Outcome | None = None) -> list[CellAnswer]:
        candidate = task.work.contenders[1].text
        answers = []
        for cell in task.cells:
            contender = Contender.parse(cell.contender)
            whole = Cell(contender=contender, case=task.work.case, pass_=Pass(cell.pass_))
            if lost is not None and cell.contender == candidate:
                answers.append(CellAnswer(cell.id, lost, "because", None))
                continue
            latency = 20.0 if cell.contender == candidate else 10.0
            answers.append(
                CellAnswer(cell.id, Outcome.OK, None, self.worker.record(whole, latency))
            )
        return answers

    def verdicts(self, task: Any, **changes: Any) -> list[ComparisonRecord]:
        base, candidate = task.work.contenders
        record = self.worker.record(
            Cell(contender=base, case=task.work.case, pass_=Pass.FORWARD_BACKWARD)
        )
        values: dict[str, Any] = {
            "base": base,
            "candidate": candidate,
            "case": task.work.case,
            "verdict": Verdict.SLOWER,
            "ratio": 2.0,
            "ratio_low": 1.9,
            "ratio_high": 2.1,
            "minimum_detectable_effect": 0.02,
            "processes": 3,
            "looks": 1,
            "log_ratios": (0.69, 0.70, 0.69),
            "environment": record.environment,
            "measured_at": datetime.now(UTC),
            **changes,
        }
        passes = dict.fromkeys(cell.pass_ for cell in task.cells)
        return [ComparisonRecord.model_validate({**values, "pass": each}) for each in passes]
