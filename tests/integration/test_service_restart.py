"""The service is killed and started anew while a job runs: followers lose and repeat nothing."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from lossbench.service.client import JobEvent, LossbenchClient

from .service_process import Processes, free_port, submit

CASES = 12
CASE_S = 0.15

pytestmark = pytest.mark.slow


@pytest.fixture
def processes(database_url: str, tmp_path: Path) -> Iterator[Processes]:
    made = Processes(tmp_path, database_url)
    yield made
    made.close()


def blocks(lines: Iterator[str]) -> Iterator[dict[str, str]]:
    """Events of a stream as they come."""
    fields: dict[str, str] = {}
    for line in lines:
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        else:
            if "event" in fields:
                yield fields
            fields = {}


def connect(port: int) -> httpx.Client:
    return httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=30)


def stream(http: httpx.Client, job_id: str, last_id: str | None = None) -> Any:
    headers = {"Last-Event-ID": last_id} if last_id else {}
    return http.stream("GET", f"/api/v1/jobs/{job_id}/events", headers=headers)


@pytest.mark.parametrize("k", [1, 4, 9])
def test_stream_cut_after_event_k_resumes_in_a_new_process_with_the_next_exactly_once(
    processes: Processes, k: int
) -> None:
    first_port, second_port = free_port(), free_port()
    killed = processes.service(first_port)
    processes.worker(CASE_S)
    seen: list[dict[str, str]] = []
    with connect(first_port) as http:
        job_id = submit(http, CASES)
        with stream(http, job_id) as answer:
            for event in blocks(answer.iter_lines()):
                seen.append(event)
                if len(seen) == k:
                    killed.kill()
                    killed.wait()
                    # what was on its way is thrown away with the connection
                    break
    processes.service(second_port)
    with connect(second_port) as http:
        with stream(http, job_id, seen[-1]["id"]) as answer:
            resumed = list(blocks(answer.iter_lines()))
        with stream(http, job_id) as answer:
            whole = list(blocks(answer.iter_lines()))
        job = http.get(f"/api/v1/jobs/{job_id}").json()
    assert (job["state"], job["outcomes"]) == ("done", {"ok": CASES})
    assert seen + resumed == whole
    ids = [int(event["id"]) for event in whole]
    assert ids == sorted(set(ids))
    assert [event["event"] for event in whole].count("done") == 1
    assert len(resumed) > 2


def test_client_that_watches_outlives_the_service(processes: Processes) -> None:
    port = free_port()
    killed = processes.service(port)
    processes.worker(CASE_S)
    with connect(port) as http:
        job_id = submit(http, CASES)
    seen: list[JobEvent] = []
    enough = threading.Event()

    def watch() -> None:
        with LossbenchClient(f"http://127.0.0.1:{port}", retry_wait_s=0.3) as client:
            for event in client.watch(job_id):
                seen.append(event)
                if len(seen) == 3:
                    enough.set()

    watching = threading.Thread(target=watch)
    watching.start()
    assert enough.wait(20)
    killed.kill()
    killed.wait()
    processes.service(port)
    watching.join(timeout=60)
    assert not watching.is_alive()
    with LossbenchClient(f"http://127.0.0.1:{port}") as client:
        assert seen == list(client.watch(job_id))
        assert seen[-1].kind == "done"
        assert len(client.cells(job_id)) == CASES
