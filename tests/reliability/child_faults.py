"""Faults of measuring processes: killed, hanging, out of memory, forking, flooding, crashing.

The worker is the real one and measures `torch-naive` beside a contender that misbehaves.
"""

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from found import Fault, Found
from stage import Job, Stage, until

from lossbench.service.store.models import CellLogRow, CellRow

MARK = "reliability-fork"
SPEC = """
from lossbench.kernels.kernel_spec import KernelSpec

SPECS = tuple(
    KernelSpec(
        name=f"bad-{kind}", summary="misbehaves", origin="built-in", versions=("1.0",),
        build=f"misbehaving:build_{kind}", options=frozenset(), dtypes=frozenset({"float32"}),
        gradients_in_forward=False,
        products={"forward": 1, "backward": 2, "forward_backward": 3},
    )
    for kind in ("hangs", "leaks", "forks", "lingers", "floods", "segfaults", "exits")
)
"""
CODE = """
import os, resource, signal, subprocess, sys, time

import torch
import torch.nn.functional as F


def _after(fault):
    def loss(input, weight, target, bias=None, **options):
        fault()
        return F.cross_entropy(F.linear(input, weight, bias), target)

    return lambda version, params: loss


flooded = False


def hang():
    time.sleep(3600)


def leak():
    # what the process has by now, and half a gigabyte more
    pages = int(open("/proc/self/statm").read().split()[0])
    limit = pages * resource.getpagesize() + 2**29
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    kept = []
    while True:
        kept.append(torch.ones(2**22))


def fork():
    # one that leaves its group, one that changes its parent, and one that runs another program
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(3600)
        time.sleep(3600)
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600) # reliability-fork"],
                     start_new_session=True)
    os._exit(9)


def linger():
    # a fork out of the group keeps the lock of the device, whatever becomes of its parent
    if os.fork() == 0:
        os.setsid()
    time.sleep(3600)


def flood():
    global flooded
    if flooded:
        return
    flooded = True
    line = b"the kernel prints and prints and prints and prints and prints!!\\n" * 1024
    for _ in range(1600):
        os.write(1, line)


def segfault():
    os.kill(os.getpid(), signal.SIGSEGV)


def leave():
    os._exit(3)


build_hangs, build_leaks, build_forks = _after(hang), _after(leak), _after(fork)
build_lingers = _after(linger)
build_floods, build_segfaults, build_exits = _after(flood), _after(segfault), _after(leave)
"""


def plugin(folder: Path) -> str:
    """Lay the misbehaving kernels where a plugin would be; returns what goes on the path."""
    site = folder / "site"
    facts = site / "misbehaving-1.0.dist-info"
    facts.mkdir(parents=True, exist_ok=True)
    (site / "misbehaving_spec.py").write_text(SPEC)
    (site / "misbehaving.py").write_text(CODE)
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: misbehaving\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(
        "[lossbench.kernels]\nmisbehaving = misbehaving_spec:SPECS\n"
    )
    return os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])


def _worker(stage: Stage) -> Any:
    """The stage's measuring worker, which all of these faults share."""
    for process in stage.started:
        if process.poll() is None and b"--queue" in _command(process.pid):
            return process
    return stage.measuring_worker(PYTHONPATH=plugin(stage.folder))


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += [int(child) for child in (task / "children").read_text().split()]
    return [child for child in found if b"lossbench.worker.child" in _command(child)]


def _cells(stage: Stage, job: Job) -> dict[str, tuple[str | None, str, str]]:
    """Outcome, reason and log of each contender's cell."""
    query = (
        sa.select(CellRow.contender, CellRow.outcome, CellRow.reason, CellLogRow.text)
        .outerjoin(CellLogRow, CellLogRow.cell_id == CellRow.id)
        .where(CellRow.job_id == job.id)
    )
    with stage.database.reading() as session:
        return {
            contender.partition("@")[0]: (outcome, reason or "", text or "")
            for contender, outcome, reason, text in session.execute(query)
        }


def _misbehaves(kind: str, outcome: str, reason: str) -> Any:
    def play(stage: Stage) -> Found:
        worker = _worker(stage)
        job = stage.submit(1, contenders=["torch-naive", f"bad-{kind}"], timeout_s=10)
        until(lambda: stage.state(job) == "running", "the job runs", 60)
        began = time.monotonic()
        stage.wait_end(job)
        expected = None if outcome == "ok" else 1
        found = Found([job], time.monotonic() - began, "", expected)
        cells = _cells(stage, job)
        bad = cells[f"bad-{kind}"]
        found.said = f"cell: {bad[1]}"
        if cells["torch-naive"][0] != "ok" or bad[0] != outcome or reason not in bad[1]:
            found.wrong.append(str({name: cell[:2] for name, cell in cells.items()}))
        if kind == "floods":
            found.said = f"cell: ok; {len(bad[2])} bytes of its output kept"
        if worker.poll() is not None:
            found.wrong.append("the worker ended")
        left = [pid for pid in _pids() if MARK.encode() in _command(pid)]
        if left:
            found.wrong.append(f"{len(left)} forked processes are left")
        return found

    return play


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def child_killed(stage: Stage) -> Found:
    """kill -9 of the measuring process between two visits: they are made again."""
    worker = _worker(stage)
    job = stage.submit(1, contenders=["torch-naive"])
    visits = sa.select(CellRow.visits_done).where(CellRow.job_id == job.id)

    def visited() -> bool:
        with stage.database.reading() as session:
            return (session.scalar(visits) or 0) > 0

    until(visited, "the first visit", 60)
    (child,) = _children(worker.pid)
    os.kill(child, signal.SIGKILL)
    began = time.monotonic()
    stage.wait_end(job)
    return Found([job], time.monotonic() - began, "(nothing: the visits are made again)")


def orphan(stage: Stage) -> Found:
    """kill -9 of a worker whose contender forked out of its group: the next gets the device."""
    worker = _worker(stage)
    job = stage.submit(1, contenders=["torch-naive", "bad-lingers"], timeout_s=15)
    (lock,) = stage.folder.glob("locks/device-*.lock")

    def forked() -> bool:
        return len(_holders(lock) - {worker.pid, *_children(worker.pid)}) > 0

    until(forked, "a fork that holds the lock", 60)
    worker.kill()
    worker.wait()
    began = time.monotonic()
    until(lambda: len(_holders(lock)) == 1, "only the fork holds the lock", 10)
    stage.measuring_worker(PYTHONPATH=plugin(stage.folder))
    recovered_s = time.monotonic() - began
    stage.wait_end(job)
    found = Found([job], recovered_s, stage.said("worker is gone|queued again", job), expected=1)
    if _cells(stage, job)["torch-naive"][0] != "ok":
        found.wrong.append(str(_cells(stage, job)))
    return found


def _holders(file: Path) -> set[int]:
    """Processes that have the file open."""
    found = set()
    for pid in _pids():
        with contextlib.suppress(OSError):
            descriptors = list(Path(f"/proc/{pid}/fd").iterdir())
            found |= {pid for descriptor in descriptors if _points_at(descriptor, file)}
    return found


def _points_at(descriptor: Path, file: Path) -> bool:
    try:
        return Path(os.readlink(descriptor)) == file
    except OSError:
        return False


FAULTS = [
    Fault("child killed between two visits", child_killed),
    Fault("child that hangs", _misbehaves("hangs", "timed_out", "longer than")),
    Fault("child that leaks memory to the limit", _misbehaves("leaks", "out_of_memory", "")),
    Fault("child that forks out of its group, then exits", _misbehaves("forks", "failed", "exit")),
    Fault("worker killed beside a fork that holds the device's lock", orphan),
    Fault("child that prints 100 MB", _misbehaves("floods", "ok", "")),
    Fault("child that ends by SIGSEGV", _misbehaves("segfaults", "failed", "SIGSEGV")),
    Fault("child that exits", _misbehaves("exits", "failed", "exit code 3")),
]
