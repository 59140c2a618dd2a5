"""A fleet of real processes: routing by accelerator, health, drain, fair share, versions."""

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
import sqlalchemy as sa

from lossbench.service.contract.catalogue import load_catalogue
from lossbench.service.contract.job import JobRequest
from lossbench.service.contract.plan import plan_job
from lossbench.service.store.database import Database
from lossbench.service.store.jobs import Jobs
from lossbench.service.store.models import JobRow, LotRow, WorkerRow
from lossbench.service.store.queue import LotQueue
from lossbench.service.store.tokens import create_token

from . import engines
from .service_process import Processes, free_port, job_body

database_url = engines.database_url


@pytest.fixture
def processes(database_url: str, tmp_path: Path) -> Iterator[Processes]:
    made = Processes(tmp_path, database_url)
    yield made
    made.close()


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    made = Database(database_url)
    yield made
    made.close()


def until(condition: Callable[[], bool], what: str, timeout_s: float = 30.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {timeout_s} s"
        time.sleep(0.05)


def service(processes: Processes) -> httpx.Client:
    port = free_port()
    processes.service(port)
    return httpx.Client(base_url=f"http://127.0.0.1:{port}/api/v1", trust_env=False, timeout=30)


def submit(http: httpx.Client, cases: int, accelerator: str) -> str:
    answer = http.post(
        "/jobs", json={**job_body(cases), "accelerator": accelerator, "reuse": False}
    )
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])


def wait_for_end(http: httpx.Client, job: str) -> str:
    while not (view := http.get(f"/jobs/{job}?wait=20").json())["ended_at"]:
        pass
    return str(view["state"])


def takers(database: Database, job: str) -> set[tuple[str, list[str]]]:
    """Queue of the job's lots, and the queues of the workers that took them."""
    with database.reading() as session:
        rows = session.execute(
            sa.select(LotRow.queue, WorkerRow.queues)
            .join(WorkerRow, WorkerRow.id == LotRow.worker_id)
            .where(LotRow.job_id == job)
        ).all()
    return {(queue, *queues) for queue, queues in rows}


def test_jobs_go_to_workers_of_their_accelerator(processes: Processes, database: Database) -> None:
    with service(processes) as http:
        early = submit(http, 2, "any")
        processes.worker(0.02, queue="h200")
        processes.worker(0.02, queue="b200")
        jobs = {name: submit(http, 2, name) for name in ("h200", "b200", "any")}
        absent = submit(http, 2, "a100")
        assert {wait_for_end(http, job) for job in (early, *jobs.values())} == {"done"}
        assert takers(database, jobs["h200"]) == {("h200", "h200")}
        assert takers(database, jobs["b200"]) == {("b200", "b200")}
        assert takers(database, jobs["any"]) <= {("h200", "h200"), ("b200", "b200")}
        assert http.get(f"/jobs/{absent}").json()["state"] == "queued"


def test_worker_whose_device_check_failed_takes_nothing_and_says_why(
    processes: Processes, database: Database
) -> None:
    with service(processes) as http:
        processes.worker(0.02, point="unhealthy")
        job = submit(http, 2, "cpu")
        waiting = submit(http, 2, "any")
        time.sleep(1.5)
        assert http.get(f"/jobs/{job}").json()["state"] == "queued"
        (machine,) = http.get("/machines").json()["items"]
        assert machine["state"] == "unhealthy"
        with database.reading() as session:
            assert session.scalar(sa.select(WorkerRow.note)) == "a sum was wrong"
        assert "this device takes no lots" in processes.said()
        processes.worker(0.02)
        assert {wait_for_end(http, job), wait_for_end(http, waiting)} == {"done"}


@pytest.mark.slow
def test_drained_worker_ends_when_its_queue_is_empty(
    processes: Processes, database: Database
) -> None:
    with service(processes) as http:
        jobs = [submit(http, 2, "cpu") for _ in range(2)]
        worker = processes.worker(0.02, point="drain")
        assert worker.wait(timeout=30) == 0
        assert [http.get(f"/jobs/{job}").json()["state"] for job in jobs] == ["done", "done"]
    with database.reading() as session:
        assert session.execute(sa.select(WorkerRow.state, WorkerRow.note)).one() == (
            "gone",
            "stopped",
        )


def set_revision(database: Database, revision: str) -> str:
    """Pretend that a lossbench of another version upgraded the database; returns what it was."""
    with database.transaction() as session:
        was = session.scalar(sa.text("SELECT version_num FROM alembic_version"))
        session.execute(sa.text("UPDATE alembic_version SET version_num = :r"), {"r": revision})
    return str(was)


def start(processes: Processes) -> subprocess.CompletedProcess[str]:
    return processes.run("worker", "--queue", "cpu")


def test_worker_of_another_version_is_refused_and_says_which_side_to_upgrade(
    processes: Processes, database: Database
) -> None:
    head = set_revision(database, "9999")
    newer = start(processes)
    set_revision(database, "0001")
    older = start(processes)
    assert newer.returncode != 0
    assert f"schema 9999 and this lossbench knows schemas up to {head}" in flat(newer.stderr)
    assert "upgrade lossbench here" in flat(newer.stderr)
    assert older.returncode != 0
    assert f"schema 0001 and this lossbench needs {head}" in flat(older.stderr)
    assert "upgrade the service first" in flat(older.stderr)
    with database.reading() as session:
        assert session.scalar(sa.select(sa.func.count()).select_from(WorkerRow)) == 0


def flat(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.slow
def test_worker_ends_when_the_database_is_upgraded_under_it(
    processes: Processes, database: Database
) -> None:
    worker = processes.worker(0.02)
    set_revision(database, "9999")
    assert worker.wait(timeout=20) == 0
    assert "this worker ends" in processes.said()


def test_queue_serves_tokens_in_turns_and_priorities_first(
    processes: Processes, database: Database
) -> None:
    queue = LotQueue(database)
    with database.transaction() as session:
        busy, calm = (create_token(session, name, [])[0].id for name in ("busy", "calm"))

    def post(token: str, number: int, **changes: object) -> str:
        body = {**job_body(1), "shapes": [{"tokens": 8, "hidden": 8 * number, "vocab": 32}]}
        plan = plan_job(JobRequest.model_validate({**body, **changes}), load_catalogue())
        return Jobs(database, queue).submit(plan, {}, "cpu", token_id=token)

    many = [post(busy, number) for number in range(1, 5)]
    one = post(calm, 5)
    urgent = post(busy, 6, priority=1)
    processes.worker(0.02)

    def ended() -> bool:
        with database.reading() as session:
            return set(session.scalars(sa.select(JobRow.state))) == {"done"}

    until(ended, "end of all jobs")
    queue.close()
    with database.reading() as session:
        order = list(session.scalars(sa.select(LotRow.job_id).order_by(LotRow.claimed_at)))
    assert order == [urgent, many[0], one, *many[1:]]
