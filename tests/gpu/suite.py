"""A suite of job files, measured in stretches by a service and one worker on each GPU.

    LOSSBENCH_DATA_DIR=data python -P tests/gpu/suite.py --gpus 0 1 --until-s 520

Call it again with the same data folder to go on: jobs that wait there are continued. A suite is
sent as jobs of few contenders, so that a stretch which ends early loses little; each shape stays on
one GPU, since only results of one device are compared. Exit 0 when nothing is left, 3 when the time
is over.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

from lossbench.service.client import LossbenchClient
from lossbench.service.contract.errors import LossbenchError

ENOUGH, NOT_YET = 0, 3
SUITES = Path(__file__).parents[2] / "suites"
PARTS = {
    "first": {0: 1, 5: 1, 8: 2, 10: 4, 12: 5, 14: 6, 15: 7},
    "first-trained": {0: 3, 2: 3, 3: 4},
}
"""Where a suite's contenders are cut -> priority; those of one part should share an environment."""
STOP_S = 15.0
COMMAND = (sys.executable, "-P", "-m", "lossbench.service.cli.main")


def arguments_of(texts: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--gpus", nargs="+", type=int, default=[0])
    parser.add_argument("--until-s", type=float, default=520.0)
    parser.add_argument("--suites", nargs="+", default=list(PARTS))
    parser.add_argument("--of", type=int, default=0, help="GPUs to share shapes by; 0: those given")
    parser.add_argument("--port", type=int, default=8799)
    return parser.parse_args(texts)


def parts_of(
    name: str, suite: dict[str, Any], gpus: Sequence[int], of: int
) -> Iterator[dict[str, Any]]:
    """Jobs of a suite: a few contenders on all shapes of one GPU, which are every `of`-th."""
    priorities = PARTS.get(name, {0: 5})
    cuts = [*priorities, len(suite["contenders"])]
    for begin, end in pairwise(cuts):
        for gpu in gpus:
            shapes = suite["shapes"][gpu::of]
            contenders = suite["contenders"][begin:end]
            if shapes and contenders:
                route = {"accelerator": f"gpu-{gpu}", "priority": priorities[begin]}
                yield {**suite, **route, "contenders": contenders, "shapes": shapes}


def answering(client: LossbenchClient, within_s: float = 60.0) -> list[Any]:
    """The jobs that are there, once the service answers. Raises the last error after `within_s`."""
    began = time.monotonic()
    while True:
        try:
            return client.jobs(limit=1000)
        except LossbenchError:
            if time.monotonic() - began > within_s:
                raise
            time.sleep(0.3)


def submit(client: LossbenchClient, names: Sequence[str], gpus: Sequence[int], of: int) -> None:
    """Send the parts of these GPUs."""
    for name in names:
        suite = yaml.safe_load((SUITES / f"{name}.yaml").read_text(encoding="utf-8"))
        for part in parts_of(name, suite, gpus, of):
            client.submit(part)


def open_jobs(client: LossbenchClient, queues: Sequence[str]) -> list[Any]:
    """Jobs of these queues that have not ended."""
    jobs = client.jobs(limit=1000)
    return [j for j in jobs if j.ended_at is None and j.accelerator in queues]


def report(client: LossbenchClient) -> None:
    """Outcomes of all cells, and what is not ok."""
    found: Counter[str] = Counter()
    for job in client.jobs(limit=1000):
        for cell in client.cells(job.id):
            found[str(cell.outcome or cell.state)] += 1
            if cell.outcome not in (None, "ok"):
                sys.stdout.write(f"{cell.contender} {cell.case}: {cell.outcome}: {cell.reason}\n")
    sys.stdout.write(json.dumps(dict(found)) + "\n")


def main(texts: Sequence[str] | None = None) -> int:
    """Measure until nothing is left or the time is over."""
    given = arguments_of(texts)
    began = time.monotonic()
    queues = [f"gpu-{gpu}" for gpu in given.gpus]
    service = subprocess.Popen([*COMMAND, "serve", "--no-auth", "--port", str(given.port)])
    workers: list[subprocess.Popen[bytes]] = []
    left: list[Any] = []
    try:
        with LossbenchClient(f"http://127.0.0.1:{given.port}") as client:
            waiting = answering(client)
            workers += [
                subprocess.Popen([*COMMAND, "worker", "--gpu", gpu[4:], "--queue", gpu])
                for gpu in queues
            ]
            while len(client.machines()) < len(workers) and time.monotonic() - began < 120:
                time.sleep(0.5)
            if not waiting:
                submit(client, given.suites, given.gpus, given.of or len(queues))
            while left := open_jobs(client, queues):
                if time.monotonic() - began > given.until_s - STOP_S:
                    break
                time.sleep(1.0)
            report(client)
    finally:
        for process in [*workers, service]:
            process.terminate()
        for process in [*workers, service]:
            process.wait(STOP_S)
    sys.stdout.write(f"{len(left)} jobs of these GPUs are left\n")
    return NOT_YET if left else ENOUGH


if __name__ == "__main__":
    sys.exit(main())
