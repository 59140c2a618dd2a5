"""Which processes belong to this worker, read from /proc: whoever else uses the GPU is foreign.

What a contender starts can leave its process group and change its parent. It keeps the variables
that it began with, so every measuring process is marked there, with its own name and its worker's.
"""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path

PROC = Path("/proc")
NVIDIA_FILES = "/dev/nvidia"
CHILD_VARIABLE = "LOSSBENCH_CHILD"
WORKER_VARIABLE = "LOSSBENCH_CHILD_OF"
END_WITHIN_S = 2.0


def parent_of(pid: int) -> int | None:
    """Parent of a process; None where there is no such process."""
    try:
        # the name in brackets may hold spaces and brackets itself
        fields = (PROC / str(pid) / "stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return None
    return int(fields[1])


def family_of(root: int) -> set[int]:
    """`root` and everything that it and its descendants have started and that still runs."""
    parents = {
        int(entry.name): parent_of(int(entry.name))
        for entry in PROC.iterdir()
        if entry.name.isdigit()
    }
    family, new = {root}, {root}
    while new:
        new = {pid for pid, parent in parents.items() if parent in new} - family
        family |= new
    return family


def holders_of_gpu(pids: Iterable[int]) -> set[int]:
    """Those of the processes that hold a file of the NVIDIA driver open."""
    holders = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            for entry in os.scandir(PROC / str(pid) / "fd"):
                with contextlib.suppress(OSError):
                    if os.readlink(entry.path).startswith(NVIDIA_FILES):
                        holders.add(pid)
                        break
    return holders


def count_foreign(listed: Iterable[int], own_pid: int, worker_pid: int) -> int:
    """How many of the processes that the driver lists are not of the worker's family.

    In a container the driver may number processes as the host does: then this process is not in its
    list under its own number, and what is left is to count the family's users of the GPU.
    """
    seen = set(listed)
    if not seen:
        return 0
    family = family_of(worker_pid) | {own_pid}
    if own_pid in seen:
        return len(seen - family)
    return max(0, len(seen) - max(1, len(holders_of_gpu(family))))


def life_of(pid: int) -> str | None:
    """A name of one process that no later one gets: PID namespace, PID, and when it began."""
    try:
        namespace = os.readlink(PROC / "self" / "ns" / "pid")
        began = (PROC / str(pid) / "stat").read_text().rpartition(") ")[2].split()[19]
    except OSError:
        return None
    return f"{namespace}:{pid}:{began}"


def end_marked(mark: str) -> int:
    """Kill every process that began as, or under, the child of this mark; returns how many."""
    wanted = f"{CHILD_VARIABLE}={mark}".encode()
    return _kill_all(lambda variables: wanted in variables)


def end_orphans() -> int:
    """Kill measuring processes, and what they started, whose worker is gone; returns how many.

    Linux ends a child with its worker, but not what the child itself has forked.
    """
    return _kill_all(_is_orphan)


def _is_orphan(variables: list[bytes]) -> bool:
    start = f"{WORKER_VARIABLE}=".encode()
    for variable in variables:
        if variable.startswith(start):
            name = variable[len(start) :].decode(errors="replace")
            namespace, _, rest = name.rpartition(":")[0].rpartition(":")
            try:
                # another container's numbers say nothing here
                mine = os.readlink(PROC / "self" / "ns" / "pid") == namespace
                return mine and life_of(int(rest)) != name
            except (OSError, ValueError):
                return False
    return False


def _kill_all(wanted: Callable[[list[bytes]], bool]) -> int:
    """Kill until none is left: a process may fork while it is looked for."""
    killed: set[int] = set()
    deadline = time.monotonic() + END_WITHIN_S
    while found := {pid for pid in _pids() if pid != os.getpid() and wanted(_variables_of(pid))}:
        for pid in found:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        killed |= found
        if time.monotonic() > deadline:
            break
        time.sleep(0.005)
    return len(killed)


def _pids() -> list[int]:
    return [int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit()]


def _variables_of(pid: int) -> list[bytes]:
    """The variables that a process began with; none of a dead one, or of another user's."""
    try:
        return (PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return []
