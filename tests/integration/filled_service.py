"""A service whose database holds one of everything, and a request that each operation answers.

Not a test: `fill` is given to the suites that ask the whole API. Every number stored is invented.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from lossbench.service.contract.alert import AlertDirection, AlertMetric
from lossbench.service.contract.check import CaseCheck, CheckRecord
from lossbench.service.contract.comparison import ComparisonRecord
from lossbench.service.contract.contender import Contender
from lossbench.service.contract.run import Cell
from lossbench.service.contract.words import Outcome, Pass, Scope, Verdict
from lossbench.service.store.alert_findings import Found, FoundCase
from lossbench.service.store.alerts import record
from lossbench.service.store.checks import insert_check
from lossbench.service.store.jobs import get_job
from lossbench.service.store.proofs import ProofKind, insert_proof
from lossbench.service.store.tokens import create_token
from lossbench.service.store.work import CellAnswer

from .conftest import ApiService, FakeWorker, make_environment
from .stored_training import store_training

SHAPE = {"tokens": 1024, "hidden": 512, "vocab": 4096}
BODY: dict[str, Any] = {"contenders": ["flce", "liger@0.8.5"], "shapes": [SHAPE], "reuse": False}
JOBS = "/api/v1/jobs"
VIEW = {"path": "/compare", "query": {"base": "liger@0.8.5", "cand": ["flce"]}}
LIGER_TABLE = (
    "kernel_name,kernel_provider,kernel_operation_mode,metric_name,metric_unit,x_name,x_label,"
    "x_value,y_value_50,y_value_20,y_value_80,extra_benchmark_config_str,gpu_name,timestamp,"
    "liger_version\n"
    'fused_linear_cross_entropy,liger,full,speed,ms,BT,B x T,4096,60.5,60.1,60.9,"{""H"": 4096, '
    '""V"": 128256, ""mode"": ""full"", ""dtype"": ""torch.bfloat16""}",NVIDIA H100,'
    "2026-01-02 03:04:05,0.5.0\n"
)


@dataclass
class Example:
    """A request that is known to be answered with 2xx, as far as it says something."""

    path: dict[str, str] = field(default_factory=dict)
    query: dict[str, Any] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    body: Any = None
    media_type: str | None = None


Examples = Mapping[str, list[Example]]
"""By operation, such as `GET /api/v1/jobs`. One that is not listed needs nothing given."""


class Filler:
    """Fills a service's database through its API, and through its store where no route writes."""

    def __init__(self, service: ApiService, token: str | None) -> None:
        self._service = service
        self._http = service.client(token)
        self._worker = service.worker()

    def job(self, answer: Any = None, done: bool = True, **changes: Any) -> str:
        """A job, answered by a worker unless it is to wait."""
        posted = self._http.post(JOBS, json={**BODY, **changes})
        assert posted.status_code == 202, posted.text
        job_id = str(posted.json()["id"])
        if done:
            self._worker.answer(job_id, answer)
        return job_id

    def results(self, job_id: str) -> list[str]:
        """Ids of a job's results."""
        cells = self._http.get(f"{JOBS}/{job_id}/cells").json()["items"]
        return [cell["result_id"] for cell in cells]

    def comparison(self) -> str:
        """A comparison of two contenders head to head."""
        changes = {"kind": "compare", "contenders": ["liger@0.6.5", "liger@0.8.5"]}
        job_id = self.job(done=False, **changes)
        settle_comparisons(self._service, self._worker, job_id)
        found = self._http.get("/api/v1/comparisons", params={"job": job_id}).json()["items"]
        return str(found[0]["id"])

    def check(self) -> str:
        """A check of two cases, one of them wrong."""
        first = {
            "case": "options/none/mean/bfloat16",
            "group": "options",
            "what": "option none",
            "dtype": "bfloat16",
            "outcome": "ok",
            "grade": "exact",
            "worst_output": "dw",
            "relative_l2": 2e-3,
            "ratio": 1.01,
        }
        second = {**first, "outcome": "wrong", "grade": None, "reason": "db is missing"}
        moment = datetime(2026, 11, 30, 12, tzinfo=UTC)
        record = CheckRecord(
            contender=Contender.parse("liger@0.8.5"),
            version="0.8.5",
            environment=make_environment(),
            details={"source_hash": "abc"},
            cases=tuple(CaseCheck.model_validate(case) for case in (first, second)),
            started_at=moment,
            ended_at=moment,
        )
        with self._service.context.database.transaction() as session:
            return insert_check(session, record)

    def proof(self) -> str:
        """What a device showed in a self-test."""
        record = {"passed": True, "log_ratios": [0.001, -0.002], "limit": 0.01}
        with self._service.context.database.transaction() as session:
            return insert_proof(session, ProofKind.SELF_TEST, make_environment(), True, record)

    def listed(self, path: str) -> str:
        """Id of the first item of a list."""
        items = self._http.get(path).json()["items"]
        return str(items[0]["id"])

    def view(self) -> str:
        """Hash of a stored view."""
        posted = self._http.post("/api/v1/views", json=VIEW)
        assert posted.status_code == 201, posted.text
        return str(posted.json()["hash"])

    def alerts(self, count: int) -> list[str]:
        """Ids of candidates that can be measured again."""
        found = FoundCase(
            kernel="liger",
            metric=AlertMetric.TIME,
            direction=AlertDirection.WORSE,
            params="",
            case="N1024-H512-V4096-bfloat16",
            pass_="forward_backward",
            device_name="NVIDIA H200",
            before_version="0.6.5",
            after_version="0.8.5",
            before="0.5× the baseline",
            after="0.75× the baseline",
            ratio=1.5,
            inputs={"method": "release_steps", "ratios": [[0.5, 0.49, 0.51, 3]] * 2},
        )
        made = []
        with self._service.context.database.transaction() as session:
            for _ in range(count):
                (alert,) = record(session, Found([found], tests=[0.001]))
                # another one of the same versions, which a scan would have added to the first
                alert.key = alert.id
                session.flush()
                made.append(alert.id)
        return made

    def training(self) -> str:
        """Id of a job of kind train with stored steps."""
        with self._service.context.database.transaction() as session:
            return store_training(session)

    def tokens(self, count: int) -> list[str]:
        """Ids of tokens that nobody uses."""
        with self._service.context.database.transaction() as session:
            return [create_token(session, "spare", (Scope.READ,))[0].id for _ in range(count)]


def settle_comparisons(service: ApiService, worker: FakeWorker, job_id: str) -> None:
    """Answer all cases of a compare job: the second contender takes twice the time."""
    with service.context.database.reading() as session:
        lots = [(lot.id, lot.attempt) for lot in get_job(session, job_id).lots]
    for lot_id, attempt in lots:
        for case_index in range(worker.work.begin_lot(lot_id, attempt)):
            task = worker.work.begin_case(lot_id, attempt, case_index)
            assert task is not None
            _settle(worker, task)
        worker.work.finish_lot(lot_id, attempt)


def _settle(worker: FakeWorker, task: Any) -> None:
    base, candidate = task.work.contenders
    pass_ = Pass(task.cells[0].pass_)
    whole = Cell(contender=base, case=task.work.case, pass_=pass_)
    verdict = {
        "base": base,
        "candidate": candidate,
        "case": task.work.case,
        "pass": pass_,
        "verdict": Verdict.SLOWER,
        "ratio": 2.0,
        "ratio_low": 1.9,
        "ratio_high": 2.1,
        "minimum_detectable_effect": 0.02,
        "processes": 3,
        "looks": 1,
        "log_ratios": (0.69, 0.70, 0.69),
        "environment": worker.record(whole).environment,
        "measured_at": datetime.now(UTC),
    }
    answers = [
        CellAnswer(
            cell.id,
            Outcome.OK,
            None,
            worker.record(
                whole.model_copy(update={"contender": Contender.parse(cell.contender)}),
                20.0 if cell.contender == candidate.text else 10.0,
            ),
        )
        for cell in task.cells
    ]
    worker.work.save_case(task, answers, [ComparisonRecord.model_validate(verdict)])


def fill(service: ApiService, token: str | None = None, spare: int = 4) -> Examples:
    """Store one of everything; returns what each operation can be asked.

    `spare` is how many times each operation that uses its thing up can be asked with success.
    """
    filler = Filler(service, token)
    filler.proof()
    return {**_of_jobs(filler, spare), **_of_aggregates(filler), **_of_others(filler, spare)}


def _of_jobs(filler: Filler, spare: int) -> dict[str, list[Example]]:
    done = filler.job(sweep={"tokens": [512, 1024]}, labels={"branch": "main"})
    waiting = [filler.job(done=False) for _ in range(spare)]
    failed = [filler.job(lambda _cell: Outcome.FAILED) for _ in range(spare)]
    used_up = [filler.results(filler.job())[0] for _ in range(spare)]
    of_job = [Example(path={"job_id": done})]
    of_result = [Example(path={"result_id": result}) for result in filler.results(done)]
    reason = {"invalid_reason": "another process was on the device"}
    return {
        f"POST {JOBS}": [Example(body=BODY, media_type="application/json")],
        f"GET {JOBS}/{{job_id}}": of_job,
        f"GET {JOBS}/{{job_id}}/cells": of_job,
        f"GET {JOBS}/{{job_id}}/events": of_job,
        f"GET {JOBS}/{{job_id}}/cells/{{position}}/log": [
            Example(path={"job_id": done, "position": str(place)}) for place in range(2)
        ],
        f"POST {JOBS}/{{job_id}}/cancel": [Example(path={"job_id": job}) for job in waiting],
        f"POST {JOBS}/{{job_id}}/retry": [Example(path={"job_id": job}) for job in failed],
        "GET /api/v1/results/{result_id}": of_result,
        "GET /api/v1/results/{result_id}/samples": of_result,
        "GET /api/v1/results/{result_id}/nvbench": of_result,
        "PATCH /api/v1/results/{result_id}": [
            Example(path={"result_id": result}, body=reason, media_type="application/json")
            for result in used_up
        ],
    }


def _of_aggregates(filler: Filler) -> dict[str, list[Example]]:
    series = filler.listed("/api/v1/series")
    return {
        "GET /api/v1/compare": [Example(query={"base": "liger@0.8.5", "cand": ["flce"]})],
        "GET /api/v1/plots/{name}": [
            Example(path={"name": name}) for name in ("latency", "memory", "error")
        ],
        "GET /api/v1/comparisons/{comparison_id}": [
            Example(path={"comparison_id": filler.comparison()})
        ],
        "GET /api/v1/series/{series_id}/points": [Example(path={"series_id": series})],
        "GET /api/v1/recommend": [Example(query={"hidden": 512, "vocab": 4096, "tokens": 1024})],
        "POST /api/v1/views": [Example(body=VIEW, media_type="application/json")],
        "GET /api/v1/views/{view_hash}": [Example(path={"view_hash": filler.view()})],
    }


def _of_others(filler: Filler, spare: int) -> dict[str, list[Example]]:
    # what one operation changes is not what another one needs
    changing, *alerts = [
        Example(path={"alert_id": alert_id}) for alert_id in filler.alerts(spare + 1)
    ]
    training = [Example(path={"training_id": filler.training()})]
    changed = Example(path=changing.path, body={"note": "known"}, media_type="application/json")
    return {
        "GET /api/v1/alerts/{alert_id}": [changing],
        "PATCH /api/v1/alerts/{alert_id}": [changed],
        "POST /api/v1/alerts/{alert_id}/confirm": alerts,
        "GET /api/v1/claims/{claim_id}": [Example(path={"claim_id": "cast-error-script"})],
        "GET /api/v1/training/{training_id}": training,
        "GET /api/v1/training/{training_id}/points": training,
        "GET /api/v1/kernels/{name}": [Example(path={"name": "flce"})],
        "GET /api/v1/kernels/{name}/versions/{version}": [
            Example(path={"name": "liger", "version": "0.8.5"})
        ],
        "GET /api/v1/machines/{machine_id}": [Example(path={"machine_id": "worker-1"})],
        "GET /api/v1/checks/{check_id}": [Example(path={"check_id": filler.check()})],
        "GET /api/v1/proofs": [Example(query={"machine": "worker-1"})],
        "POST /api/v1/imports": [Example(body=LIGER_TABLE, media_type="text/csv")],
        "POST /api/v1/tokens": [Example(body={"name": "ci"}, media_type="application/json")],
        "DELETE /api/v1/tokens/{token_id}": [
            Example(path={"token_id": token_id}) for token_id in filler.tokens(spare)
        ],
    }
