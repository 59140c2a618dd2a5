"""Health of a worker's container: some process in it holds the lock of its device.

Only the standard library and one small file are read: a check that took a second of processor time
would be seen in what the worker measures.
"""

import os
import sys
from pathlib import Path


def locked_inodes(lines: list[str]) -> set[int]:
    """Inodes with a file lock, from lines such as `1: FLOCK ADVISORY WRITE 7 08:01:42 0 EOF`."""
    fields = [line.split() for line in lines if "FLOCK" in line]
    return {int(field[5].rpartition(":")[2]) for field in fields if len(field) > 5}


def holds_device(data_dir: Path, proc_locks: Path = Path("/proc/locks")) -> bool:
    """Whether a device's lock under `data_dir` is held."""
    held = locked_inodes(proc_locks.read_text(encoding="utf-8").splitlines())
    return any(path.stat().st_ino in held for path in data_dir.glob("locks/device-*.lock"))


if __name__ == "__main__":
    sys.exit(not holds_device(Path(os.environ.get("LOSSBENCH_DATA_DIR", "/data"))))
