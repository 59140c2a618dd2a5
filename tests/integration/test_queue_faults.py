"""kill -9 of a worker at every point: the job ends, every cell has exactly one result.

SIGKILL is sent by the worker to itself at the named point, once; a second worker stands by.
"""

import contextlib
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from lossbench.service.contract.catalogue import load_catalogue
from lossbench.service.contract.errors import ConflictError
from lossbench.service.contract.job import JobRequest
from lossbench.service.contract.plan import plan_job
from lossbench.service.store.database import Database
from lossbench.service.store.jobs import Jobs
from lossbench.service.store.models import CellRow, JobRow, LotRow, RunRow
from lossbench.service.store.queue import LotQueue, migrate_queue
from lossbench.service.store.reaper import Reaper

STALE_AFTER_S = 1.0
POINTS = (
    "before_claim",
    "after_claim",
    "case_begun",
    "measuring",
    "before_save",
    "between_save_and_checkpoint",
    "lot_finished",
)
WORKER = Path(__file__).with_name("scripted_worker.py")


class Fleet:
    """Scripted workers on one database, with a reaper beside them."""

    def __init__(self, database: Database, folder: Path) -> None:
        self.database, self._folder = database, folder
        migrate_queue(database)
        self.queue = LotQueue(database)
        self.jobs = Jobs(database, self.queue)
        self._reaper = Reaper(database, self.queue, STALE_AFTER_S, max_attempts=3)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._reap)
        self._thread.start()
        self.workers: list[subprocess.Popen[str]] = []

    def _reap(self) -> None:
        while not self._stopped.wait(0.1):
            self._reaper.tick()

    def start_worker(self, point: str = "never", case_s: float = 0.15) -> subprocess.Popen[str]:
        """Start one and wait until it takes lots."""
        process = subprocess.Popen(
            [sys.executable, "-P", str(WORKER), point, str(self._folder / "died"), str(case_s)],
            env={
                "PATH": "/usr/bin:/bin",
                "LOSSBENCH_DATA_DIR": str(self._folder),
                "LOSSBENCH_DATABASE_URL": self.database.url,
                "LOSSBENCH_HEARTBEAT_S": "0.2",
                "PYTHONSAFEPATH": "1",
            },
            stdout=subprocess.PIPE,
            text=True,
        )
        self.workers.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    def submit(self, cases: int = 4) -> str:
        """A job of two contenders on so many cases, in one lot."""
        request = JobRequest.model_validate(
            {
                "contenders": ["torch-naive", "torch-upcast"],
                "shapes": [{"tokens": 8 * (i + 1), "hidden": 8, "vocab": 32} for i in range(cases)],
                "dtypes": ["float32"],
                "processes": 1,
            }
        )
        return self.jobs.submit(plan_job(request, load_catalogue()), {}, "cpu")

    def wait_for_end(self, job_id: str, timeout_s: float = 30.0) -> str:
        """State of the job at its end."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            with self.database.reading() as session:
                state = session.scalar(sa.select(JobRow.state).where(JobRow.id == job_id))
            if state not in ("queued", "running"):
                return str(state)
            time.sleep(0.05)
        raise AssertionError(f"job {job_id} did not end within {timeout_s} s")

    def close(self) -> None:
        """End everything."""
        for worker in self.workers:
            worker.kill()
            worker.wait()
            if worker.stdout is not None:
                worker.stdout.close()
        self._stopped.set()
        self._thread.join()
        self.queue.close()


@pytest.fixture
def fleet(database: Database, tmp_path: Path) -> Iterator[Fleet]:
    """An empty fleet; its workers are killed at the end."""
    made = Fleet(database, tmp_path)
    yield made
    made.close()


def assert_every_cell_once(fleet: Fleet, job_id: str, cells: int) -> None:
    with fleet.database.reading() as session:
        rows = list(session.scalars(sa.select(CellRow).where(CellRow.job_id == job_id)))
        runs = session.scalar(sa.select(sa.func.count()).select_from(RunRow))
    assert [row.outcome for row in rows] == ["ok"] * cells
    assert len({row.run_id for row in rows}) == cells
    assert runs == cells, "a result was stored that no cell points at"


@pytest.mark.parametrize("point", POINTS)
def test_job_when_worker_is_killed_ends_with_every_cell_once(fleet: Fleet, point: str) -> None:
    doomed = fleet.start_worker(point)
    job_id = fleet.submit()
    assert doomed.wait(timeout=20) == -9
    fleet.start_worker()
    if point == "lot_finished":
        assert fleet.wait_for_end(job_id) == "done"
    assert fleet.wait_for_end(job_id) == "done"
    assert_every_cell_once(fleet, job_id, 8)


def test_poison_case_when_it_kills_every_worker_fails_alone(fleet: Fleet, tmp_path: Path) -> None:
    job_id = fleet.submit(cases=2)
    for _ in range(3):
        (tmp_path / "died").unlink(missing_ok=True)
        assert fleet.start_worker("measuring").wait(timeout=20) == -9
    fleet.start_worker()
    assert fleet.wait_for_end(job_id) == "done"
    with fleet.database.reading() as session:
        rows = list(session.scalars(sa.select(CellRow).order_by(CellRow.position)))
    assert [row.outcome for row in rows] == ["failed", "failed", "ok", "ok"]
    assert "while measuring this case, 3 times" in str(rows[0].reason)


def all_threads_stopped(pid: int) -> bool:
    """Whether every thread of the process is in state T."""
    states = [
        stat.read_text().rpartition(")")[2].split()[0]
        for stat in Path(f"/proc/{pid}/task").glob("*/stat")
    ]
    return bool(states) and set(states) == {"T"}


def freeze(process: subprocess.Popen[str], database: Database) -> None:
    """SIGSTOP outside a transaction: a frozen writer of SQLite would keep its one lock."""
    while True:
        process.send_signal(signal.SIGSTOP)
        # the threads of a process stop one after the other
        while not all_threads_stopped(process.pid):
            time.sleep(0.005)
        if not database.is_sqlite:
            return
        probe = sqlite3.connect(str(database.engine.url.database), timeout=0.3)
        try:
            probe.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            process.send_signal(signal.SIGCONT)
            time.sleep(0.05)
        else:
            return
        finally:
            probe.rollback()
            probe.close()


def test_zombie_when_it_wakes_up_cannot_save(fleet: Fleet) -> None:
    zombie = fleet.start_worker()
    job_id = fleet.submit(cases=6)
    while True:
        with fleet.database.reading() as session:
            if session.scalar(sa.select(LotRow.state)) == "running":
                break
        time.sleep(0.02)
    freeze(zombie, fleet.database)
    fleet.start_worker()
    assert fleet.wait_for_end(job_id) == "done"
    zombie.send_signal(signal.SIGCONT)
    time.sleep(1.0)
    assert_every_cell_once(fleet, job_id, 12)


def test_cancel_when_running_leaves_no_open_cell(fleet: Fleet) -> None:
    fleet.start_worker()
    job_id = fleet.submit(cases=20)
    while True:
        with fleet.database.reading() as session:
            if session.scalar(sa.select(JobRow.state)) == "running":
                break
        time.sleep(0.02)
    fleet.jobs.cancel(job_id)
    assert fleet.wait_for_end(job_id) == "cancelled"
    with fleet.database.reading() as session:
        outcomes = set(session.scalars(sa.select(CellRow.outcome)))
    assert outcomes <= {"ok", "cancelled"}
    assert "cancelled" in outcomes
    second = fleet.submit(cases=1)
    assert fleet.wait_for_end(second) == "done"


def test_cancel_when_saves_are_under_way_meets_no_deadlock(fleet: Fleet) -> None:
    fleet.start_worker(case_s=0.0)
    fleet.start_worker(case_s=0.0)
    for _ in range(6):
        job_id = fleet.submit(cases=25)
        while True:
            with fleet.database.reading() as session:
                saved = session.scalar(
                    sa.select(sa.func.count()).where(
                        CellRow.job_id == job_id, CellRow.run_id.is_not(None)
                    )
                )
            if saved:
                break
        with contextlib.suppress(ConflictError):
            # a fast worker may have ended the job in this moment
            fleet.jobs.cancel(job_id)
        assert fleet.wait_for_end(job_id) in ("cancelled", "done")


def test_two_workers_when_sharing_a_job_double_nothing(fleet: Fleet) -> None:
    fleet.start_worker()
    fleet.start_worker()
    job_ids = [fleet.submit(cases=3) for _ in range(4)]
    assert {fleet.wait_for_end(job_id) for job_id in job_ids} == {"done"}
    with fleet.database.reading() as session:
        assert session.scalar(sa.select(sa.func.count()).select_from(RunRow)) == 24
