"""kill -9 of a real child and of a real worker in the middle of a case: every cell exactly once."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from lossbench.service.contract.catalogue import load_catalogue
from lossbench.service.contract.job import JobRequest
from lossbench.service.contract.plan import plan_job
from lossbench.service.store.database import Database
from lossbench.service.store.jobs import Jobs
from lossbench.service.store.models import CellRow, JobRow, RunRow
from lossbench.service.store.queue import LotQueue
from lossbench.service.store.reaper import Reaper

CONTENDERS = ["torch-naive", "torch-upcast"]


class Machine:
    """Real workers on one database, with a reaper beside them."""

    def __init__(self, database: Database, folder: Path) -> None:
        self.database, self._folder = database, folder
        self.queue = LotQueue(database)
        self._reaper = Reaper(database, self.queue, stale_after_s=1.5, max_attempts=3)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._reap)
        self._thread.start()
        self._workers: list[subprocess.Popen[bytes]] = []

    def _reap(self) -> None:
        while not self._stopped.wait(0.2):
            self._reaper.tick()

    def start_worker(self) -> subprocess.Popen[bytes]:
        worker = subprocess.Popen(
            [sys.executable, "-P", "-m", "lossbench.service.cli.main", "worker"],
            env={
                "PATH": "/usr/bin:/bin",
                "LOSSBENCH_DATA_DIR": str(self._folder),
                "LOSSBENCH_DATABASE_URL": self.database.url,
                "LOSSBENCH_HEARTBEAT_S": "0.3",
                "PYTHONSAFEPATH": "1",
            },
            stdout=subprocess.DEVNULL,
        )
        self._workers.append(worker)
        return worker

    def submit(self) -> str:
        request = JobRequest.model_validate(
            {
                "contenders": CONTENDERS,
                "shapes": [{"tokens": 64, "hidden": 32, "vocab": 128}],
                "dtypes": ["float32"],
                "processes": 1,
            }
        )
        return Jobs(self.database, self.queue).submit(
            plan_job(request, load_catalogue()), {}, "cpu"
        )

    def ask(self, query: sa.Select[tuple[int]]) -> int:
        with self.database.reading() as session:
            return session.scalar(query) or 0

    def close(self) -> None:
        for worker in self._workers:
            worker.kill()
            worker.wait()
        self._stopped.set()
        self._thread.join()
        self.queue.close()


@pytest.fixture
def machine(database: Database, tmp_path: Path) -> Iterator[Machine]:
    made = Machine(database, tmp_path)
    yield made
    made.close()


def until(condition: Callable[[], bool], what: str, timeout_s: float = 90.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {timeout_s} s"
        time.sleep(0.05)


def measuring_children(worker_pid: int) -> list[int]:
    pids: list[int] = []
    for task in Path(f"/proc/{worker_pid}/task").iterdir():
        pids += [int(pid) for pid in (task / "children").read_text().split()]
    return [pid for pid in pids if b"lossbench.worker.child" in command_line(pid)]


def command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def wait_for_first_visits(machine: Machine) -> None:
    visited = sa.select(sa.func.max(CellRow.visits_done))
    until(lambda: machine.ask(visited) > 0, "first visit")


def assert_done_with_every_cell_once(machine: Machine, job_id: str) -> None:
    ended = sa.select(sa.func.count()).where(JobRow.id == job_id, JobRow.state == "done")
    until(lambda: machine.ask(ended) == 1, "end of the job")
    with machine.database.reading() as session:
        cells = list(session.scalars(sa.select(CellRow).where(CellRow.job_id == job_id)))
        runs = session.scalar(sa.select(sa.func.count()).select_from(RunRow))
    assert [(cell.outcome, cell.reason) for cell in cells] == [("ok", None)] * len(CONTENDERS)
    assert len({cell.run_id for cell in cells}) == runs == len(CONTENDERS)


def test_child_killed_in_the_middle_of_a_case_costs_only_its_visits(machine: Machine) -> None:
    worker = machine.start_worker()
    job_id = machine.submit()
    wait_for_first_visits(machine)
    (child,) = measuring_children(worker.pid)
    os.kill(child, signal.SIGKILL)
    assert_done_with_every_cell_once(machine, job_id)
    assert worker.poll() is None


def test_worker_killed_in_the_middle_of_a_case_is_replaced_by_another(machine: Machine) -> None:
    worker = machine.start_worker()
    job_id = machine.submit()
    wait_for_first_visits(machine)
    children = measuring_children(worker.pid)
    worker.kill()
    until(lambda: not any(command_line(pid) for pid in children), "death of the children", 5.0)
    machine.start_worker()
    assert_done_with_every_cell_once(machine, job_id)
