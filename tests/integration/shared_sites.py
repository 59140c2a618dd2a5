"""A service with its pages that all tests of a file share: each test has a hidden size of its own.

Not a test. To start a service for each test costs more than the test itself.
"""

import itertools
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from lossbench.service.api.context import ServiceContext
from lossbench.service.api.security import AuthMode
from lossbench.service.contract.case import Case
from lossbench.service.contract.catalogue import Catalogue
from lossbench.service.contract.comparison import ComparisonRecord
from lossbench.service.contract.contender import Contender
from lossbench.service.contract.run import Cell
from lossbench.service.contract.words import Pass
from lossbench.service.settings import Settings
from lossbench.service.store.comparisons import insert_comparison
from lossbench.service.store.database import Database
from lossbench.service.store.queue import LotQueue
from lossbench.service.store.results import insert_run
from lossbench.web.app import create_app

from .conftest import CATALOGUE, ApiService, FakeWorker

ENGINES = ("sqlite", "postgresql")
LATENCY = {"flce": 20.0, "liger": 25.0, "torch-naive": 40.0}
VOCAB = 4096
_hidden = itertools.count(64, 8)


class Site:
    """Service, pages and a worker; `measure` stores results under this test's hidden size."""

    def __init__(self, service: ApiService, worker: FakeWorker) -> None:
        self.service, self.worker, self.http = service, worker, service.http
        self.context = service.context
        self.hidden = next(_hidden)

    def renewed(self) -> "Site":
        """The same site with another hidden size."""
        return Site(self.service, self.worker)

    def measure(
        self, times: dict[str, float] | None = None, answer: Any = None, **changes: Any
    ) -> str:
        """Run a job with flce and liger@0.8.5, `times` in ms by kernel; returns its id."""
        body: dict[str, Any] = {
            "contenders": ["flce", "liger@0.8.5"],
            "shapes": [{"tokens": 1024, "hidden": self.hidden, "vocab": VOCAB}],
            "reuse": False,
            **changes,
        }
        posted = self.http.post("/api/v1/jobs", json=body)
        assert posted.status_code == 202, posted.text
        job_id = str(posted.json()["id"])
        chosen = {**LATENCY, **(times or {})}

        def usual(cell: Any) -> Any:
            return self.worker.record(cell, chosen[cell.contender.kernel])

        self.worker.answer(job_id, answer or usual)
        return job_id

    def get(self, path: str, **query: Any) -> Any:
        """JSON of an address below /api/v1."""
        answer = self.http.get(f"/api/v1{path}", params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def case(self, tokens: int = 1024, more: str = "") -> str:
        """Text of this test's case."""
        return f"N{tokens}-H{self.hidden}-V{VOCAB}-bfloat16{more}"

    def results(self, **query: Any) -> list[dict[str, Any]]:
        """Results of this test."""
        found: list[dict[str, Any]] = self.get("/results", hidden=self.hidden, **query)["items"]
        return found

    def compare(self, base: str, candidate: str, ratio: float, verdict: str) -> str:
        """Store a comparison head to head on this test's case; returns its id."""
        cell = Cell(
            contender=Contender.parse(base),
            case=Case.parse(self.case()),
            pass_=Pass.FORWARD_BACKWARD,
        )
        record = ComparisonRecord.model_validate(
            {
                "base": cell.contender,
                "candidate": candidate,
                "case": cell.case,
                "pass": cell.pass_,
                "verdict": verdict,
                "ratio": ratio,
                "ratio_low": 0.99 * ratio,
                "ratio_high": 1.01 * ratio,
                "minimum_detectable_effect": 0.02,
                "processes": 3,
                "looks": 1,
                "log_ratios": (0.0, 0.0, 0.0),
                "environment": self.worker.record(cell).environment,
                "measured_at": datetime.now(UTC),
            }
        )
        with self.context.database.transaction() as session:
            return insert_comparison(session, record, None, {})

    def store(self, contender: str, latency_ms: float, **how: Any) -> str:
        """Store one result of this test's case: `imported`, or under a given `run_id`."""
        cell = Cell(
            contender=Contender.parse(contender),
            case=Case.parse(self.case()),
            pass_=Pass.FORWARD_BACKWARD,
        )
        with self.context.database.transaction() as session:
            return insert_run(session, self.worker.record(cell, latency_ms), **how)

    def invalidate(self, result_id: str, reason: str = "the fan was off") -> None:
        """Take a result out of use."""
        path = f"/api/v1/results/{result_id}"
        answer = self.http.patch(path, json={"invalid_reason": reason})
        assert answer.status_code == 200, answer.text


def open_site(request: pytest.FixtureRequest, catalogue: Catalogue = CATALOGUE) -> Iterator[Site]:
    """A site over a fresh database of the engine `request.param`, or of SQLite."""
    folder = request.getfixturevalue("tmp_path_factory").mktemp("site")
    if getattr(request, "param", "sqlite") == "sqlite":
        shutil.copy(request.getfixturevalue("sqlite_template"), folder / "lossbench.db")
        url = f"sqlite:///{folder / 'lossbench.db'}"
    else:
        url = request.getfixturevalue("postgres_server").fresh_url()
    settings = Settings(data_dir=folder, database_url=url, writes_per_minute=100_000)
    database = Database(url)
    context = ServiceContext(settings, AuthMode.OPEN, database, LotQueue(database), catalogue)
    service = ApiService(context, request.getfixturevalue("portal"))
    service.app = create_app(context)
    service.http = service.client()
    yield Site(service, service.worker())
    service.close()
