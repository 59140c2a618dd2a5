"""What an operator relies on: readiness, the log, and an orderly end."""

import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from structlog.testing import capture_logs

from . import engines
from .service_process import Processes, free_port, job_body, submit

BODY = {"contenders": ["flce"], "shapes": [{"tokens": 8, "hidden": 8, "vocab": 32}]}
JOBS = "/api/v1/jobs"

database_url = engines.database_url


def change(service: Any, statement: str) -> None:
    with service.context.database.transaction() as session:
        session.execute(sa.text(statement))


def not_ready(service: Any) -> str:
    answer = service.http.get("/readyz")
    assert answer.status_code == 503
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["retry-after"]
    return str(answer.json()["detail"])


def test_readiness_counts_the_live_workers(any_service: Any) -> None:
    any_service.context.start()
    assert any_service.http.get("/readyz").json() == {"status": "ready", "workers": 0}
    any_service.worker("worker-1")
    any_service.worker("worker-2")
    assert any_service.http.get("/readyz").json()["workers"] == 2
    change(any_service, "UPDATE workers SET state = 'gone' WHERE id = 'worker-1'")
    assert any_service.http.get("/readyz").json()["workers"] == 1


def test_readiness_of_an_older_schema_names_the_command(any_service: Any) -> None:
    any_service.context.start()
    change(any_service, "UPDATE alembic_version SET version_num = '0001'")
    assert "lossbench db upgrade" in not_ready(any_service)


def test_readiness_without_the_queues_tables_is_a_503(service: Any) -> None:
    service.context.start()
    change(service, "ALTER TABLE workflow_status RENAME TO elsewhere")
    assert "queue" in not_ready(service)
    change(service, "ALTER TABLE elsewhere RENAME TO workflow_status")
    assert service.http.get("/readyz").status_code == 200


def test_log_of_a_write_names_its_request_and_its_job(service: Any) -> None:
    with capture_logs() as logs:
        sent = service.http.post(JOBS, json=BODY)
        job = sent.json()["id"]
        cancelled = service.http.post(f"{JOBS}/{job}/cancel")
        service.http.post(JOBS, params={"dry_run": "true"}, json=BODY)
        service.http.post(JOBS, json={})
    writes = [entry for entry in logs if entry["event"] == "write"]
    assert [entry.get("job_id") for entry in writes] == [job, job, None, None]
    answers = [answer.headers["x-request-id"] for answer in (sent, cancelled)]
    assert [entry["request_id"] for entry in writes[:2]] == answers
    assert [entry["status"] for entry in writes] == [202, 200, 200, 422]


@pytest.fixture
def processes(sqlite_url: str, tmp_path: Path) -> Iterator[Processes]:
    made = Processes(tmp_path, sqlite_url)
    yield made
    made.close()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_service_told_to_stop_answers_what_it_has_begun_and_ends_with_0(
    processes: Processes, number: signal.Signals
) -> None:
    port = free_port()
    service = processes.service(port)
    got: dict[str, Any] = {}
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=20) as http:
        job = submit(http, 3)

        def wait() -> None:
            got["wait"] = http.get(f"{JOBS}/{job}", params={"wait": 20})

        def follow() -> None:
            got["events"] = http.get(f"{JOBS}/{job}/events")

        threads = [threading.Thread(target=target) for target in (wait, follow)]
        for thread in threads:
            thread.start()
        while "lossbench_event_streams 2.0" not in http.get("/metrics").text:
            time.sleep(0.05)
        began = time.monotonic()
        service.send_signal(number)
        for thread in threads:
            thread.join(timeout=15)
        assert service.wait(timeout=15) == 0
        assert time.monotonic() - began < 10
    assert got["wait"].json()["state"] == "queued"
    assert got["events"].status_code == 200
    assert "event: done" not in got["events"].text
    assert service.stderr is not None
    log = service.stderr.read()
    assert "Traceback" not in log
    line = next(line for line in log.splitlines() if "write" in line)
    assert f"job_id={job}" in line
    assert "request_id=req-" in line
    again = processes.service(port)
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as http:
        assert http.get(f"{JOBS}/{job}").json()["state"] == "queued"
        assert http.post(JOBS, json=job_body(1)).status_code == 202
    assert again.poll() is None
