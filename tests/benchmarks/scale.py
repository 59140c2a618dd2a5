"""How fast pages and API are over many stored results: one table, no assertions.

Run as `python -P tests/benchmarks/scale.py sqlite:////tmp/scale.db` over a database that `fill.py`
filled, or `make scale`. A real service in a process of its own, one client, loopback. The first
byte of a page comes with its last: pages are not streamed, so whole answers are timed.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

sys.path.append(str(Path(__file__).parent))

from fill import fill
from on_postgres import postgres
from served import Served, Timing, import_times, served, timed
from world_facts import ENTRANTS, MACHINES

PAGE_MS, LIST_MS = 100.0, 100.0
V1 = "/api/v1"


class Asked(NamedTuple):
    """A row of the table: its name, the addresses asked in turns, and its budgets."""

    name: str
    paths: list[str]
    p95_ms: float | None
    most_kb: float | None = None
    """Most kilobytes of the packed answer."""


def _found(service: Served) -> dict[str, Any]:
    """Ids to ask for: jobs of each kind, results spread over the whole history."""
    jobs = service.json(f"{V1}/jobs?limit=100")["items"]
    nightly = [job["id"] for job in jobs if job["cells_total"] == 400]
    compare = [job["id"] for job in jobs if job["kind"] == "compare"]
    wide = next(job["id"] for job in jobs if job["cells_total"] == 6800)
    results, path = [], f"{V1}/results?limit=1000"
    for _ in range(3):
        page = service.json(path)
        results += [item["id"] for item in page["items"][::50]]
        path = f"{V1}/results?limit=1000&cursor={page['next_cursor']}"
    sides = service.json(f"{V1}/comparisons?limit=1")["items"][0]
    return {
        "nightly": nightly[:20],
        "compare": compare,
        "wide": wide,
        "results": results,
        "deep": path.replace("limit=1000", "limit=100"),
        "base": sides["base"],
        "candidate": sides["candidate"],
    }


def pages(ids: dict[str, Any]) -> list[Asked]:
    """The pages of the web."""
    base, cand = ids["base"], ids["candidate"]
    gpu = MACHINES[2].device.replace(" ", "+")
    return [
        Asked("/", ["/"], PAGE_MS),
        Asked("/jobs/new", ["/jobs/new"], PAGE_MS),
        Asked("/jobs/{id}, 400 cells", [f"/jobs/{job}" for job in ids["nightly"]], PAGE_MS),
        Asked("/jobs/{id}, 800 cells", [f"/jobs/{job}" for job in ids["compare"]], PAGE_MS),
        Asked("/jobs/{id}, 6,800 cells", [f"/jobs/{ids['wide']}"], PAGE_MS),
        Asked("/compare, choose", ["/compare"], PAGE_MS),
        Asked(
            "/compare?job=, 400 cases",
            [f"/compare?job={job}&base={base}&cand={cand}" for job in ids["compare"]],
            PAGE_MS,
            80,
        ),
        Asked("/compare?job=, 3,400 cases", [f"/compare?job={ids['wide']}"], 150.0),
        Asked("/compare?base=, over all results", ["/compare?base=torch-naive&cand=flce"], None),
        Asked("/compare?base=&gpu=", [f"/compare?base=torch-naive&cand=flce&gpu={gpu}"], PAGE_MS),
        Asked("/shapes", ["/shapes", f"/shapes?gpu={gpu}"], PAGE_MS),
        Asked("/pareto", ["/pareto", f"/pareto?gpu={gpu}"], PAGE_MS),
        Asked("/history", ["/history", "/history?kernel=liger"], PAGE_MS),
        Asked("/alerts", ["/alerts"], PAGE_MS),
        Asked("/claims", ["/claims"], PAGE_MS),
        Asked("/claims/{id}", ["/claims/one-pass-beats-chunks"], PAGE_MS),
        Asked("/results/{id}", [f"/results/{run}" for run in ids["results"]], PAGE_MS),
        Asked("/machines", ["/machines"], PAGE_MS),
        Asked("/kernels", ["/kernels"], PAGE_MS),
        Asked("/kernels/{name}", ["/kernels/liger", "/kernels/flce"], PAGE_MS),
    ]


def lists(ids: dict[str, Any]) -> list[Asked]:
    """Lists of results under every filter and order."""
    kernels = sorted({entrant.kernel for entrant in ENTRANTS})
    case = "N8192-H4096-V128256-bfloat16"
    gpus = [machine.device.replace(" ", "+") for machine in MACHINES]
    rows = {
        "newest": [""],
        "deep cursor": [ids["deep"].partition("?")[2]],
        "kernel=": [f"kernel={name}" for name in kernels],
        "kernel=&version=": ["kernel=liger&version=0.8.0", "kernel=cce&version=24.12.3"],
        "kernel= twice": ["kernel=flce&kernel=quack"],
        "case=": [f"case={case}"],
        "case=&contender=": [f"case={case}&contender=flce"],
        "gpu=": [f"gpu={name}" for name in gpus],
        "job=": [f"job={job}" for job in ids["nightly"]],
        "outcome=wrong": ["outcome=wrong"],
        "label=": ["label=branch=main"],
        "label= of no job": ["label=branch=none"],
        "since=": ["since=2026-01-01T00:00:00Z"],
        "since=, until= long ago": ["since=2025-06-02T00:00:00Z&until=2025-06-03T00:00:00Z"],
        "tokens= of no result": ["tokens=12345"],
        "tokens=&hidden=&vocab=": ["tokens=8192&hidden=4096&vocab=128256"],
        "hidden_gte=": ["hidden_gte=12288"],
        "imported=true": ["imported=true"],
        **{f"sort={name}": [f"sort={name}"] for name in ("latency_ms", "-latency_ms")},
        **{
            f"sort=-{name}": [f"sort=-{name}"]
            for name in (
                "workspace_bytes",
                "ratio_to_baseline",
                "floor_ratio",
                "tokens_per_s",
                "tokens",
                "hidden",
                "vocab",
            )
        },
        "sort=tokens": ["sort=tokens"],
        "kernel=&sort=latency_ms": [f"kernel={name}&sort=latency_ms" for name in kernels],
    }
    asked = [
        Asked(f"/results {name}", [f"{V1}/results?{query}" for query in queries], LIST_MS)
        for name, queries in rows.items()
    ]
    # no index serves it, and no page is ever full: the whole table is read
    none = Asked("/results dtype= of no result", [f"{V1}/results?dtype=float64"], None)
    return [*asked, none]


def api(ids: dict[str, Any]) -> list[Asked]:
    """The other routes of the API."""
    base, cand, job = ids["base"], ids["candidate"], ids["compare"]
    sides = f"base={base}&cand={cand}"
    gpu = MACHINES[2].device.replace(" ", "+")
    wide = f"base=torch-naive&cand=flce&job={ids['wide']}"
    runs, nightly = ids["results"], ids["nightly"]
    kernels = sorted({entrant.kernel for entrant in ENTRANTS})
    return [
        Asked(
            "/compare, 400 cases of a job, 100 a page",
            [f"{V1}/compare?{sides}&job={one}" for one in job],
            60.0,
            60,
        ),
        Asked(
            "/compare, 400 cases of a job, all in one page",
            [f"{V1}/compare?{sides}&job={one}&limit=400" for one in job],
            None,
        ),
        Asked("/compare, 400 cases of a GPU", [f"{V1}/compare?{sides}&gpu={gpu}"], 60.0, 60),
        Asked("/compare, all 5,400 cases", [f"{V1}/compare?base=torch-naive&cand=flce"], None),
        Asked("/compare, 3,400 cases, first page", [f"{V1}/compare?{wide}"], 150.0),
        Asked("/jobs", [f"{V1}/jobs"], LIST_MS),
        Asked("/jobs/{id}", [f"{V1}/jobs/{one}" for one in nightly], LIST_MS),
        Asked("/jobs/{id}/cells, 400", [f"{V1}/jobs/{one}/cells" for one in nightly], LIST_MS),
        Asked("/results/{id}", [f"{V1}/results/{run}" for run in runs], LIST_MS),
        Asked("/results/{id}/samples", [f"{V1}/results/{run}/samples" for run in runs], LIST_MS),
        Asked(
            "/comparisons", [f"{V1}/comparisons?{sides.replace('cand=', 'candidate=')}"], LIST_MS
        ),
        Asked("/kernels", [f"{V1}/kernels"], LIST_MS),
        Asked("/kernels/{name}", [f"{V1}/kernels/{name}" for name in kernels], LIST_MS),
        Asked("/kernels/liger/versions/0.8.5", [f"{V1}/kernels/liger/versions/0.8.5"], LIST_MS),
        Asked("/machines", [f"{V1}/machines"], LIST_MS),
        Asked("/plots/latency of a job", [f"{V1}/plots/latency?job={nightly[0]}"], LIST_MS),
        Asked("/metrics", ["/metrics"], LIST_MS),
        Asked("/claims", [f"{V1}/claims"], LIST_MS),
        *aggregates(ids),
    ]


def aggregates(ids: dict[str, Any]) -> list[Asked]:
    """Routes that answer from many results at once."""
    case = "N8192-H4096-V128256-bfloat16"
    gpu = MACHINES[2].device.replace(" ", "+")
    shape = "hidden=4096&vocab=128256&tokens=8192"
    return [
        Asked("/series of a case", [f"{V1}/series?case={case}&gpu={gpu}"], LIST_MS),
        Asked("/series of a kernel", [f"{V1}/series?kernel=liger"], LIST_MS),
        Asked("/shape-map", [f"{V1}/shape-map?gpu={gpu}"], LIST_MS),
        Asked("/pareto", [f"{V1}/pareto?gpu={gpu}"], LIST_MS),
        Asked("/recommend", [f"{V1}/recommend?{shape}&gpu={gpu}"], LIST_MS),
        Asked(
            "/recommend, nearest shape",
            [f"{V1}/recommend?hidden=4000&vocab=120000&tokens=8000&gpu={gpu}"],
            LIST_MS,
        ),
    ]


def measured(service: Served, repeats: int, only: str) -> Iterator[tuple[Asked, Timing]]:
    """Each row with its times."""
    ids = _found(service)
    for asked in (*pages(ids), *api(ids), *lists(ids)):
        if only in asked.name:
            yield asked, timed(service, asked.paths, repeats)


def line_of(asked: Asked, found: Timing) -> str:
    """A line of the table; a row over its budget is marked."""
    budget = "" if asked.p95_ms is None else f"{asked.p95_ms:.0f} ms"
    over = asked.p95_ms is not None and found.p95_ms > asked.p95_ms
    size = f"{found.packed_kb:.0f} KB"
    if asked.most_kb is not None:
        budget += f", {asked.most_kb:.0f} KB"
        over = over or found.packed_kb > asked.most_kb
    times = f"{found.p50_ms:.1f} ms | {found.p95_ms:.1f} ms"
    return f"| {asked.name} | {times} | {size} | {budget}{' **over**' if over else ''} |"


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def exports(service: Served) -> Iterator[str]:
    """Lines on writing every result to a file: time, size and the service's memory."""
    for kind in ("csv", "parquet"):
        began, size = time.perf_counter(), 0
        with service.http.stream("GET", f"{V1}/export/results.{kind}", timeout=600) as answer:
            for part in answer.iter_raw():
                size += len(part)
        took = time.perf_counter() - began
        answer.raise_for_status()
        peak = service.resident_mb(peak=True)
        yield f"| {kind} | {took:.0f} s | {size / 1e6:.0f} MB | {peak:.0f} MB | 250 MB |"


@contextmanager
def database(url: str, results: int, folder: Path) -> Iterator[str]:
    """The URL of a filled database; `postgresql` is a server started for this."""
    if url == "postgresql":
        with postgres(folder) as found:
            fill(found, results)
            yield found
        return
    if url.startswith("sqlite:///") and not Path(url.removeprefix("sqlite:///")).exists():
        fill(url, results)
    yield url


def measure(url: str, chosen: argparse.Namespace, folder: Path) -> None:
    """Print the tables of one database."""
    if chosen.export:
        with served(url, folder) as service:
            say("| export of all | time | packed | peak memory of the service | budget |")
            say("|---|---|---|---|---|")
            for text in exports(service):
                say(text)
    with served(url, folder) as service:
        say("\n| what | p50 | p95 | gzip | budget (p95) |\n|---|---|---|---|---|")
        for asked, found in measured(service, chosen.repeats, chosen.only):
            say(line_of(asked, found))
        if chosen.imports:
            found = import_times(service, chosen.imports)
            say(line_of(Asked("POST /imports, 400 results x 3", [], 150.0), found))


def main() -> None:
    """Fill where needed, then measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", help="SQLAlchemy URL of a database, or `postgresql`")
    parser.add_argument("--results", type=int, default=1_000_000, help="of a database not there")
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--only", default="", help="rows whose name holds this")
    parser.add_argument("--imports", type=int, default=0, help="imports to send; these stay stored")
    parser.add_argument("--export", action="store_true", help="write all results to files too")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lb") as name:
        folder = Path(name)
        with database(chosen.url, chosen.results, folder) as url:
            measure(url, chosen, folder)


if __name__ == "__main__":
    main()
