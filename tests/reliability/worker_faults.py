"""Faults of workers: killed at every phase, frozen, doubled, told to stop."""

import os
import signal
import sqlite3
import time
from pathlib import Path

import sqlalchemy as sa
from dbos import DBOSClient
from found import Fault, Found
from stage import Job, Stage, until

from lossbench.service.store.models import WorkerRow
from lossbench.service.store.queue import workflow_id
from lossbench.service.store.workers import STOPPED

POINTS = {
    "before_claim": "worker killed before it claims a lot",
    "after_claim": "worker killed after the claim",
    "case_begun": "worker killed when a case has begun",
    "measuring": "worker killed while it measures",
    "before_save": "worker killed before a save",
    "in_save": "worker killed in the middle of a save",
    "between_save_and_checkpoint": "worker killed between save and checkpoint",
    "lot_finished": "worker killed when the lot is finished",
}


def _killed_at(point: str) -> Fault:
    def play(stage: Stage) -> Found:
        stage.marker(point).unlink(missing_ok=True)
        # the other stands by, held so that the doomed one gets the lot
        other, doomed = stage.worker(), stage.worker(point)
        freeze(other.pid, sqlite_file(stage))
        job = stage.submit(4)
        deadline = time.monotonic() + 5
        while doomed.poll() is None and stage.state(job) == "queued":
            if time.monotonic() > deadline:
                break
            time.sleep(0.01)
        other.send_signal(signal.SIGCONT)
        doomed.wait(timeout=60)
        died_at = stage.marker(point).stat().st_mtime
        saved = stage.done(job)
        if stage.state(job) != "done":
            stage.wait_done(job, saved + 1)
        recovered_s = max(0.0, time.time() - died_at)
        stage.wait_end(job)
        said = stage.said(r"worker is gone|lot queued again|queued again", job)
        stage.end(other)
        if point == "lot_finished":
            # nothing was left to do
            return Found([job], None, said or "(the job was done)")
        return Found([job], recovered_s, said)

    return Fault(POINTS[point], play)


def all_threads_stopped(pid: int) -> bool:
    """Whether every thread of the process is in state T."""
    states = [
        stat.read_text().rpartition(")")[2].split()[0]
        for stat in Path(f"/proc/{pid}/task").glob("*/stat")
    ]
    return bool(states) and set(states) == {"T"}


def sqlite_file(stage: Stage) -> str | None:
    """The database's file, where it is one."""
    return stage.database.engine.url.database if stage.engine == "sqlite" else None


def freeze(pid: int, sqlite_file: str | None) -> None:
    """SIGSTOP outside a transaction: a frozen writer of SQLite would keep its one lock."""
    while True:
        os.kill(pid, signal.SIGSTOP)
        until(lambda: all_threads_stopped(pid), "all threads are stopped", 10)
        if sqlite_file is None:
            return
        probe = sqlite3.connect(sqlite_file, timeout=0.3)
        try:
            probe.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            os.kill(pid, signal.SIGCONT)
            time.sleep(0.05)
        else:
            return
        finally:
            probe.rollback()
            probe.close()


def zombie(stage: Stage) -> Found:
    """A worker is frozen, its lot goes to another, and it wakes up in the middle of that."""
    frozen = stage.worker(case_s=1.0)
    job = stage.submit(12)
    stage.wait_done(job, 1)
    freeze(frozen.pid, sqlite_file(stage))
    began, saved = time.monotonic(), stage.done(job)
    other = stage.worker(case_s=1.0)
    stage.wait_done(job, saved + 1)
    recovered_s = time.monotonic() - began
    frozen.send_signal(signal.SIGCONT)
    stage.wait_end(job)
    time.sleep(2.0)
    found = Found([job], recovered_s, stage.said(r"worker is gone|lot queued again"))
    stage.end(frozen, other)
    return found


def duplicate_delivery(stage: Stage) -> Found:
    """The queue gives a lot that one worker measures to a second one, too."""
    first = stage.worker(case_s=0.6)
    job = stage.submit(10)
    stage.wait_done(job, 2)
    second = stage.worker(case_s=0.6)
    lot = stage.lot(job)
    client = DBOSClient(system_database_url=stage.url)
    try:
        client.resume_workflow(workflow_id(lot.id, lot.attempt), queue_name="cpu")
    finally:
        client.destroy()
    longest_s = longest_pause(stage, job)
    time.sleep(1.0)
    said = stage.said(r"lot let go|lot queued again", job)
    stage.end(first, second)
    return Found([job], longest_s, said)


def longest_pause(stage: Stage, job: Job) -> float:
    """Seconds that nothing was saved, at most, until the job's end."""
    longest_s, saved, since = 0.0, stage.done(job), time.monotonic()
    deadline = since + 120
    while stage.state(job) in ("queued", "running") and time.monotonic() < deadline:
        time.sleep(0.05)
        if (done := stage.done(job)) > saved:
            longest_s = max(longest_s, time.monotonic() - since)
            saved, since = done, time.monotonic()
    return longest_s


def two_on_one_device(stage: Stage) -> Found:
    """A second worker is started on the device of the first."""
    first = stage.worker(device="gpu-7")
    job = stage.submit(4)
    stage.wait_done(job, 1)
    wrong = []
    try:
        stage.worker(device="gpu-7")
        wrong.append("the second worker started")
    except RuntimeError:
        pass
    stage.wait_end(job)
    said = stage.said("another worker measures on this device")
    stage.end(first)
    return Found([job], 0.0, said, wrong=wrong)


def told_to_stop(stage: Stage) -> Found:
    """SIGTERM while it measures: the lot goes to another at once, and no case is charged."""
    stopped = stage.worker(case_s=2.0)
    job = stage.submit(12)
    stage.wait_done(job, 1)
    other = stage.worker(case_s=0.3)
    sent, saved = time.monotonic(), stage.done(job)
    stage.end(stopped)
    stage.wait_done(job, min(saved + 1, job.cells))
    recovered_s = time.monotonic() - sent
    stage.wait_end(job)
    with stage.database.reading() as session:
        notes = set(session.scalars(sa.select(WorkerRow.note)))
    found = Found([job], recovered_s, stage.said(r"lot queued again|queued again", job))
    if STOPPED not in notes:
        found.wrong.append(f"the workers left with {notes}")
    stage.end(other)
    return found


FAULTS = [
    *(_killed_at(point) for point in POINTS),
    Fault("worker frozen (SIGSTOP), woken when its lot is another's", zombie),
    Fault("lot delivered to two workers", duplicate_delivery),
    Fault("second worker on the same device", two_on_one_device),
    Fault("worker told to stop (SIGTERM) while it measures", told_to_stop),
]
