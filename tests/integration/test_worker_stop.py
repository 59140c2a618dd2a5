"""A worker told to stop in the middle of a case ends at once; its lot goes to another."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import sqlalchemy as sa

from lossbench.service.contract.catalogue import load_catalogue
from lossbench.service.contract.job import JobRequest
from lossbench.service.contract.plan import plan_job
from lossbench.service.store.database import Database
from lossbench.service.store.jobs import Jobs
from lossbench.service.store.models import CellRow, LotRow, WorkerRow
from lossbench.service.store.queue import LotQueue
from lossbench.service.store.reaper import Reaper

MOST_S = 8.0


def start_worker(database: Database, folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "lossbench.service.cli.main", "worker"],
        env={
            "PATH": "/usr/bin:/bin",
            "LOSSBENCH_DATA_DIR": str(folder),
            "LOSSBENCH_DATABASE_URL": database.url,
            "PYTHONSAFEPATH": "1",
        },
        stdout=subprocess.DEVNULL,
    )


def wait_until_running(database: Database) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with database.reading() as session:
            if session.scalar(sa.select(CellRow.state)) == "running":
                return
        time.sleep(0.05)
    raise AssertionError("the job did not begin within 60 s")


def test_worker_when_terminated_while_measuring_ends_and_gives_its_lot_back(
    database: Database, tmp_path: Path
) -> None:
    queue = LotQueue(database)
    request = JobRequest.model_validate(
        {
            "contenders": ["torch-naive"],
            "shapes": [{"tokens": 64, "hidden": 32, "vocab": 128}],
            "dtypes": ["float32"],
        }
    )
    Jobs(database, queue).submit(plan_job(request, load_catalogue()), {}, "cpu")
    worker = start_worker(database, tmp_path)
    try:
        wait_until_running(database)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(timeout=MOST_S) == 0
    finally:
        worker.kill()
    with database.reading() as session:
        assert session.scalar(sa.select(WorkerRow.state)) == "gone"
    Reaper(database, queue, stale_after_s=60, max_attempts=3).tick()
    with database.reading() as session:
        lot = session.scalars(sa.select(LotRow)).one()
        answers = [(c.state, c.outcome, c.reason) for c in session.scalars(sa.select(CellRow))]
        assert (lot.state, lot.attempt) == ("queued", 2), answers
        assert session.scalar(sa.select(CellRow.state)) == "queued"
        # a worker that was told to stop says nothing about the case
        assert session.scalar(sa.select(CellRow.deaths)) == 0
    queue.close()
