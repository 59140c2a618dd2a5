"""Faults of the database, its disk and the clock."""

import sqlite3
import time
from pathlib import Path

from found import Fault, Found
from servers import Server, SmallDisk
from stage import Job, Stage

DOWN_S = 15.0
"""Longer than a worker may be silent."""
LOCKED_S = 35.0
"""Longer than SQLite waits for a lock."""
CUTS = 10
"""Connections that are cut, one after the other."""
HOUR_S = 3600


def _restarted(server: Server, stage: Stage) -> Found:
    worker = stage.worker()
    job = stage.submit(8)
    stage.wait_done(job, 2)
    server.stop()
    time.sleep(DOWN_S)
    server.start()
    return _goes_on(stage, job, worker, r"database away|database is back")


def _goes_on(stage: Stage, job: Job, worker, said: str) -> Found:  # type: ignore[no-untyped-def]
    """The same worker takes up its case again; the one under way is not lost."""
    began, saved = time.monotonic(), stage.done(job)
    stage.wait_done(job, min(saved + 1, job.cells))
    recovered_s = time.monotonic() - began
    stage.wait_end(job)
    found = Found([job], recovered_s, stage.said(said, job))
    if worker.poll() is not None:
        found.wrong.append("the worker ended")
    stage.end(worker)
    return found


def _cut(server: Server, stage: Stage) -> Found:
    worker = stage.worker("slow_save", case_s=0.1)
    job = stage.submit(20)
    stage.wait_done(job, 1)
    cuts = server.cut(stage.database.engine.url.database or "", CUTS, 20.0)
    found = _goes_on(stage, job, worker, r"database away|database is back|heartbeat not stored")
    if cuts < CUTS:
        found.wrong.append(f"{cuts} connections were cut")
    return found


def locked(stage: Stage) -> Found:
    """Another process holds SQLite's write lock for longer than anybody waits for it."""
    worker = stage.worker()
    job = stage.submit(8)
    stage.wait_done(job, 2)
    other = sqlite3.connect(str(stage.database.engine.url.database), timeout=20)
    other.isolation_level = None
    other.execute("BEGIN IMMEDIATE")
    time.sleep(LOCKED_S)
    other.rollback()
    other.close()
    return _goes_on(stage, job, worker, r"database away|database is back")


def disk_full(stage: Stage, disk: SmallDisk) -> Found:
    """No space is left while cases are saved; after a while somebody makes room."""
    worker = stage.worker()
    # results of 200 cells need some hundred kilobytes of pages
    job = stage.submit(200, contenders=["torch-upcast", "torch-naive"])
    stage.wait_done(job, 2)
    disk.fill()
    saved, since = stage.done(job), time.monotonic()
    while time.monotonic() - since < 12.0:
        time.sleep(0.5)
        if (now := stage.done(job)) > saved:
            saved, since = now, time.monotonic()
            disk.fill()
    disk.free()
    return _goes_on(stage, job, worker, r"database away|heartbeat not stored")


def clock_jump(seconds: int):  # type: ignore[no-untyped-def]
    """The wall clock of service and worker is set, while a case is measured."""

    def play(stage: Stage) -> Found:
        setting = stage.folder / "clock"
        setting.write_text("+0\n")
        faked = {
            "LD_PRELOAD": str(library()),
            "FAKETIME_TIMESTAMP_FILE": str(setting),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
        service = stage.service(**faked)
        worker = stage.worker(case_s=1.0, **faked)
        job = stage.submit(8)
        stage.wait_done(job, 2)
        changed = setting.with_suffix(".new")
        changed.write_text(f"{seconds:+d}\n")
        changed.replace(setting)
        found = _goes_on(stage, job, worker, r"queued again|worker is gone")
        # what clocks do is no event: silence is right
        if found.said:
            found.wrong.append(found.said)
        found.said = "(nothing: only beats count)"
        stage.end(service)
        return found

    return play


def library() -> Path:
    """libfaketime, from the package of that name. Raises PermissionError where it is missing."""
    try:
        import libfaketime
    except ImportError as error:
        raise PermissionError("the package libfaketime is not installed") from error
    return Path(libfaketime.__file__).parent / "vendor/libfaketime/src/libfaketime.so.1"


def faults(server: Server | None) -> list[Fault]:
    """Those of one engine."""
    found = [
        Fault("wall clock set forward by an hour", clock_jump(HOUR_S), service=False),
        Fault("wall clock set back by an hour", clock_jump(-HOUR_S), service=False),
    ]
    if server is None:
        return [Fault("database locked by another for 35 s", locked), *found]
    return [
        Fault(
            "database server killed, started after 15 s", lambda stage: _restarted(server, stage)
        ),
        Fault("connection cut in mid transaction", lambda stage: _cut(server, stage)),
        *found,
    ]
