"""lossbench beside LNT 0.4.20: the same 180,000 samples in both, the same questions to both.

`make compare-peers` installs LNT in a virtual environment of its own and runs this. Both serve on
loopback from SQLite in a process of their own; one client, a new connection for each request. What
has no counterpart in LNT is not in the table. LNT's figures hold for this set-up: its own server
for development and SQLite; behind gunicorn with PostgreSQL it may be faster.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

sys.path.append(str(Path(__file__).parent))

import httpx
import numpy as np
from bulk import bulk_of
from fill import make_schema
from served import Served, Timing, free_port, import_times, served, summary, timed
from world import Tables, World

TOKEN = "compare-peers"
FIELDS = "fields=contender&fields=case&fields=latency_ms"
LNT_API, LNT_PAGES = "/api/db_default/v4/nts", "/db_default/v4/nts"
TABLES = ("jobs", "runs", "output_errors", "samples", "job_cells")


class Pair(NamedTuple):
    """One question: addresses at LNT and at lossbench, asked in turns."""

    name: str
    lnt: list[str]
    ours: list[str]


def submission(job: Tables) -> dict[str, Any]:
    """A job as a run in LNT's format: a test for each case and pass, its samples in seconds."""
    samples: dict[str, list[float]] = {}
    for row in job["samples"]:
        values = np.frombuffer(zlib.decompress(row["latency_ms"]), dtype="<f4") / 1000
        samples.setdefault(row["run_id"], []).extend(float(value) for value in values)
    begin = job["jobs"][0]["created_at"]
    stamp = "%Y-%m-%dT%H:%M:%S"
    return {
        "format_version": "2",
        "machine": {"name": job["runs"][0]["environment_id"].partition("-torch")[0]},
        "run": {
            "start_time": begin.strftime(stamp),
            "end_time": (begin + timedelta(minutes=5)).strftime(stamp),
            "llvm_project_revision": job["runs"][0]["version"].rpartition(".")[2],
        },
        "tests": [
            {"name": f"{run['case_text']}.{run['pass']}", "execution_time": samples[run["id"]]}
            for run in job["runs"]
        ],
    }


@contextmanager
def lnt_served(lnt: Path, folder: Path) -> Iterator[Served]:
    """A new LNT instance on SQLite, served by its own command, ended when left."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder}
    subprocess.run([lnt, "create", "instance", "--api-auth-token", TOKEN], check=True, **quiet)
    port = free_port()
    process = subprocess.Popen([lnt, "runserver", "instance", "--port", str(port)], **quiet)
    service = Served(f"http://127.0.0.1:{port}", process)
    try:
        _wait(service)
        yield service
    finally:
        service.http.close()
        process.terminate()
        process.wait()


def _wait(service: Served) -> None:
    deadline = time.perf_counter() + 60
    while time.perf_counter() < deadline:
        try:
            if service.http.get("/").status_code == 200:
                return
        except httpx.HTTPError:
            time.sleep(0.1)
    raise RuntimeError("LNT did not start")


def send_to_lnt(service: Served, jobs: list[Tables]) -> list[float]:
    """Submit every run; seconds of each call, in milliseconds."""
    times = []
    for job in jobs:
        body = json.dumps(submission(job))
        began = time.perf_counter()
        answer = service.http.post(
            f"{LNT_API}/runs", content=body, headers={"AuthToken": TOKEN}, timeout=120
        )
        times.append((time.perf_counter() - began) * 1e3)
        if answer.status_code != 301 or not answer.json()["success"]:
            raise RuntimeError(f"LNT refused a run: {answer.status_code} {answer.text[:200]}")
    return times


def store_ours(url: str, world: World, jobs: list[Tables]) -> None:
    """The same runs as stored results."""
    make_schema(url)
    bulk = bulk_of(url)
    bulk.write("environments", world.environments())
    for job in jobs:
        for table in TABLES:
            bulk.write(table, job[table])
    bulk.close()


def pairs(jobs: list[Tables], runs: int, ours: Served) -> list[Pair]:
    """What both can answer. The newest run of LNT has the id `runs`."""
    last = [job["jobs"][0]["id"] for job in jobs[-8:]]
    case, day = jobs[-1]["runs"][0], jobs[-1]["jobs"][0]["created_at"]
    two = f"base=liger@0.1.{runs // 2 - 2}&cand=liger@0.1.{runs // 2 - 1}"
    gpu = "gpu=NVIDIA+H200"
    v1, ids = "/api/v1", range(runs - 7, runs + 1)
    of_case = f"kernel=liger&case={case['case_text']}&pass={case['pass']}&{gpu}"
    series = ours.json(f"{v1}/series?{of_case}")["items"][0]["id"]
    return [
        Pair(
            "a run of 400 tests: page",
            [f"{LNT_PAGES}/{run}" for run in ids],
            [f"/jobs/{job}" for job in last],
        ),
        Pair(
            "two runs of 400 tests against each other: page",
            [f"{LNT_PAGES}/{run}?compare_to={run - 2}" for run in ids],
            [f"/compare?{two}&{gpu}"],
        ),
        Pair("what is new: latest runs", [f"{LNT_PAGES}/latest_runs_report"], ["/"]),
        Pair("what is new: daily report", [f"{LNT_PAGES}/daily_report/{day:%Y/%m/%d}"], ["/"]),
        Pair("machines: page", [f"{LNT_PAGES}/machine/1"], ["/machines"]),
        Pair(
            "versions measured",
            [f"{LNT_PAGES}/all_orders"],
            [f"{v1}/kernels/liger"],
        ),
        Pair(
            "one series of 75 points: API",
            # 3 is the place of `execution_time`
            [f"{LNT_API}/graph/1/{test}/3" for test in range(1, 9)],
            [f"{v1}/series/{series}/points"],
        ),
        Pair(
            "the results of a run: API, fields as LNT's",
            [f"{LNT_API}/runs/{run}" for run in ids],
            [f"{v1}/results?job={job}&limit=400&{FIELDS}" for job in last],
        ),
        Pair(
            "the results of a run: API, our 43 fields, which LNT has not",
            [],
            [f"{v1}/results?job={job}&limit=400" for job in last],
        ),
    ]


def line(name: str, lnt: Timing | None, ours: Timing) -> str:
    """A line of the table; `lnt` is None where LNT gives no such answer."""
    cells = (
        "– | – | –"
        if each is None
        else f"{_ms(each.p50_ms)} ms | {_ms(each.p95_ms)} ms | {each.packed_kb:.0f} KB"
        for each in (lnt, ours)
    )
    ratio = "–" if lnt is None else f"{lnt.p50_ms / ours.p50_ms:.1f}"
    return f"| {name} | {' | '.join(cells)} | {ratio} |\n"


def _ms(value: float) -> str:
    """Two digits that count: a third of a millisecond is a tenth of a short answer."""
    return f"{value:.1f}" if value < 10 else f"{value:.0f}"


def main() -> None:
    """Load both and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("lnt", type=Path, help="LNT's command, in an environment of its own")
    parser.add_argument("--orders", type=int, default=75, help="days; two runs of 400 tests each")
    parser.add_argument("--repeats", type=int, default=20)
    chosen = parser.parse_args()
    world = World(0, visits=1, fails=False)
    jobs = list(world.orders(chosen.orders))
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/lossbench.db"
        store_ours(url, world, jobs)
        lnt_command = chosen.lnt.absolute()
        with lnt_served(lnt_command, Path(folder)) as lnt, served(url, Path(folder)) as ours:
            sent = send_to_lnt(lnt, jobs)
            heads = "p50 | p95 | sent"
            out = sys.stdout
            out.write(f"| | LNT {heads} | lossbench {heads} | LNT / lossbench, p50 |\n")
            out.write("|---|---|---|---|---|---|---|---|\n")
            for asked in pairs(jobs, len(jobs), ours):
                theirs = timed(lnt, asked.lnt, chosen.repeats) if asked.lnt else None
                out.write(line(asked.name, theirs, timed(ours, asked.ours, chosen.repeats)))
                out.flush()
            size = len(json.dumps(submission(jobs[-1]))) / 1e3
            taken = summary(sent[-30:], size)
            out.write(line("ingest 400 x 3, the last 30 runs", taken, import_times(ours, 30)))


if __name__ == "__main__":
    main()
