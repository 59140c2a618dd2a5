"""GPU minutes: a job that is too long, and a token that has asked for enough today."""

from typing import Any

import pytest
import sqlalchemy as sa

from lossbench.service.api.security import AuthMode
from lossbench.service.contract.words import Scope
from lossbench.service.store.budgets import WINDOW
from lossbench.service.store.events import now
from lossbench.service.store.models import JobRow

JOBS = "/api/v1/jobs"


def body(cells: int = 1, **changes: Any) -> dict[str, Any]:
    shapes = [{"tokens": 8 + index, "hidden": 64, "vocab": 4096} for index in range(cells)]
    return {"contenders": ["flce"], "shapes": shapes, "reuse": False, **changes}


@pytest.fixture
def one_cell_minutes(shared_service: Any) -> float:
    """What a job of one cell is estimated at."""
    planned = shared_service.http.post(JOBS, params={"dry_run": "true"}, json=body()).json()
    return float(planned["estimated_minutes"])


def test_job_over_its_minutes_is_refused_with_what_to_do(
    make_service: Any, sqlite_url: str, one_cell_minutes: float
) -> None:
    service = make_service(sqlite_url, max_gpu_minutes_per_job=2.5 * one_cell_minutes)
    assert service.http.post(JOBS, json=body(2)).status_code == 202
    refused = service.http.post(JOBS, json=body(3))
    assert refused.status_code == 422
    problem = refused.json()
    assert problem["type"].endswith("#job-too-large")
    assert problem["errors"][0]["code"] == "too_many_gpu_minutes"
    for words in ("GPU minutes", "Split it", "LOSSBENCH_MAX_GPU_MINUTES_PER_JOB", "dry run"):
        assert words in problem["detail"]
    assert len(service.http.get(JOBS).json()["items"]) == 1
    # a dry run still says how long it would be
    planned = service.http.post(JOBS, params={"dry_run": "true"}, json=body(3))
    assert planned.json()["estimated_minutes"] == pytest.approx(3 * one_cell_minutes)


def test_token_over_its_minutes_of_the_day_has_to_wait(
    make_service: Any, database_url: str, one_cell_minutes: float
) -> None:
    service = make_service(
        database_url, AuthMode.TOKENS, max_gpu_minutes_per_token=2.5 * one_cell_minutes
    )
    mine, other = (service.client(service.token(Scope.SUBMIT)) for _ in range(2))
    first = mine.post(JOBS, json=body(2))
    assert first.status_code == 202
    refused = mine.post(JOBS, json=body(1), headers={"Idempotency-Key": "one"})
    assert refused.status_code == 429
    assert refused.json()["type"].endswith("#too-many-requests")
    for words in ("GPU minutes", "LOSSBENCH_MAX_GPU_MINUTES_PER_TOKEN", "cancel queued jobs"):
        assert words in refused.json()["detail"]
    wait_s = int(refused.headers["retry-after"])
    assert 0.99 * WINDOW.total_seconds() < wait_s <= WINDOW.total_seconds()
    assert other.post(JOBS, json=body(2)).status_code == 202
    # what was cancelled before it began costs nothing
    job_id = first.json()["id"]
    assert mine.post(f"{JOBS}/{job_id}/cancel").status_code == 200
    again = mine.post(JOBS, json=body(2), headers={"Idempotency-Key": "two"})
    assert again.status_code == 202, again.text
    assert mine.post(JOBS, json=body(1)).status_code == 429
    with service.context.database.transaction() as session:
        session.execute(sa.update(JobRow).values(created_at=now() - WINDOW))
    assert mine.post(JOBS, json=body(1), headers={"Idempotency-Key": "one"}).status_code == 202
    too_long = mine.post(JOBS, json=body(3))
    assert "this job alone is larger than that: split it" in too_long.json()["detail"]


def test_cells_that_are_known_cost_no_minutes(
    make_service: Any, sqlite_url: str, one_cell_minutes: float
) -> None:
    service = make_service(sqlite_url, max_gpu_minutes_per_job=1.5 * one_cell_minutes)
    worker = service.worker()
    job_id = service.http.post(JOBS, json=body(1)).json()["id"]
    worker.answer(job_id)
    assert service.http.post(JOBS, json=body(2, reuse=True)).status_code == 202
    assert service.http.post(JOBS, json=body(2)).status_code == 422


def test_every_write_is_one_line_of_who_and_what(
    make_service: Any, sqlite_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    service = make_service(sqlite_url, AuthMode.TOKENS)
    sender = service.client(service.token(Scope.SUBMIT))
    capsys.readouterr()
    answer = sender.post("/api/v1/views", json={"path": "/results", "query": {}})
    sender.get("/api/v1/results")
    lines = [line for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert len(lines) == 1
    for words in ("write", "path=/api/v1/views", "status=201", "who=tok-"):
        assert words in lines[0]
    assert answer.headers["x-request-id"] in lines[0]
