"""Which processes belong to this worker, read from /proc: whoever else uses the GPU is foreign."""

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

PROC = Path("/proc")
NVIDIA_FILES = "/dev/nvidia"


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
