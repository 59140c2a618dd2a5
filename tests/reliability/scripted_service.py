"""The real service, which kills itself once at a named point.

Run as `python scripted_service.py POINT MARKER [flags of lossbench serve]`.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any

from lossbench.service.cli.main import main
from lossbench.service.store.jobs import Jobs
from lossbench.service.store.queue import LotQueue
from lossbench.service.store.reaper import Reaper


def install(point: str, marker: Path) -> None:
    """Put SIGKILL at the point: before or after what commits."""

    def at(name: str) -> None:
        if name == point and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    def around(owner: Any, method: str, before: str, after: str) -> None:
        original = getattr(owner, method)

        def wrapped(self: Any, *arguments: Any, **named: Any) -> Any:
            at(before)
            result = original(self, *arguments, **named)
            at(after)
            return result

        setattr(owner, method, wrapped)

    around(Jobs, "submit", "submit_begun", "submit_committed")
    # inside the transaction that stores the job
    around(Jobs, "_enqueue", "submit_unqueued", "submit_uncommitted")
    around(Jobs, "cancel", "cancel_begun", "cancel_done")
    around(Reaper, "give_back", "take_back_begun", "take_back_done")
    around(Reaper, "_requeue", "requeue_begun", "requeue_uncommitted")
    # between the commit of a requeue or a cancel, and the queue's own bookkeeping
    around(LotQueue, "withdraw", "not_withdrawn", "withdrawn")


if __name__ == "__main__":
    install(sys.argv[1], Path(sys.argv[2]))
    sys.argv[1:] = ["serve", *sys.argv[3:]]
    main()
