"""One worker per device: a file lock named after it, inherited by the measuring processes.

While an orphan child still holds the descriptor no other worker can measure beside it; who comes
next ends the orphans first.
"""

import fcntl
import os
from pathlib import Path

from lossbench.service.contract.errors import SetupError

from .process_family import end_orphans


def take_device_lock(data_dir: Path, device_uuid_hash: str) -> int:
    """File descriptor of the held lock. Raises SetupError when another worker holds it."""
    folder = data_dir / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / f"device-{device_uuid_hash}.lock", os.O_RDWR | os.O_CREAT, 0o644)
    if not _try_lock(descriptor):
        end_orphans()
        if not _try_lock(descriptor):
            os.close(descriptor)
            raise SetupError(
                "another worker measures on this device already; stop it, or choose another GPU "
                "with --gpu"
            )
    return descriptor


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
