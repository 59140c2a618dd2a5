"""A long job with a worker killed every few seconds until it is done."""

import random
import time

from found import Fault, Found
from stage import Stage, plain

WORKERS = 2
CASE_S = 0.15


def killed_until_done(cells: int, every_s: float, limit_s: float = 3600) -> Fault:
    """Two workers share a job; one of them, chosen by lot, is killed every few seconds."""

    def play(stage: Stage) -> Found:
        job = stage.submit(cells)
        choose = random.Random(20261130)
        workers = [stage.worker(case_s=CASE_S) for _ in range(WORKERS)]
        kills, longest_s, began = 0, 0.0, time.monotonic()
        seen, seen_at = 0, time.monotonic()
        next_kill = time.monotonic() + every_s
        while stage.state(job) in ("queued", "running"):
            time.sleep(0.05)
            if (done := stage.done(job)) > seen:
                longest_s = max(longest_s, time.monotonic() - seen_at)
                seen, seen_at = done, time.monotonic()
            if time.monotonic() > next_kill:
                place = choose.randrange(WORKERS)
                workers[place].kill()
                workers[place].wait()
                workers[place] = stage.worker(case_s=CASE_S)
                kills += 1
                next_kill = time.monotonic() + every_s
            if time.monotonic() - began > limit_s:
                break
        found = Found([job], longest_s, stage.said("worker is gone|lot queued again", job))
        found.said = f"{kills} workers killed; {plain(found.said)}"
        found.wrong += [] if kills else ["nobody was killed"]
        stage.end(*workers)
        return found

    return Fault(f"worker killed every {every_s:g} s until {cells:,} cells are done", play)
