"""What service, queue and store cost beside measuring: one table, no assertions.

Run as `python -P tests/benchmarks/service_costs.py`. Real processes, real SQLite, loopback only.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

HERE = Path(__file__).parent
SCRIPTED_WORKER = HERE.parent / "integration" / "scripted_worker.py"
CELLS = 200


def lossbench(data_dir: str, *arguments: str) -> subprocess.Popen[str]:
    """Start a command of the installed script."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "lossbench.service.cli.main", *arguments],
        env=dict(os.environ, LOSSBENCH_DATA_DIR=data_dir, PYTHONSAFEPATH="1", COLUMNS="200"),
        stdout=subprocess.PIPE,
        text=True,
    )


def until(condition: Callable[[], Any], timeout_s: float = 60.0) -> Any:
    """What the condition returns as soon as it is true; raises TimeoutError."""
    deadline = time.perf_counter() + timeout_s
    while time.perf_counter() < deadline:
        if found := condition():
            return found
        time.sleep(0.005)
    raise TimeoutError(f"not within {timeout_s:g} s")


def answers(url: str) -> bool:
    """Whether a page answers with 200."""
    try:
        return httpx.get(url, trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False


def resident_mb(pid: int) -> float:
    """Resident memory of a process in MB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1000


def children_of(pid: int) -> list[int]:
    """Direct children of a process, whichever thread started them."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += [int(child) for child in (task / "children").read_text().split()]
    return found


def measure_service(data_dir: str, rows: list[tuple[str, str, str]]) -> None:
    """Start to first page, memory, and how soon an idle worker begins."""
    began = time.perf_counter()
    service = lossbench(data_dir, "serve", "--no-auth", "--port", "8791")
    url = "http://127.0.0.1:8791"
    try:
        until(lambda: answers(f"{url}/"))
        rows.append(("start to first page", f"{time.perf_counter() - began:.2f} s", "< 3 s"))
        for _ in range(50):
            answers(f"{url}/")
        rows.append(("memory of the service", f"{resident_mb(service.pid):.0f} MB", "< 220 MB"))
        measure_claim(data_dir, url, rows)
    finally:
        service.terminate()
        service.wait()


def measure_claim(data_dir: str, url: str, rows: list[tuple[str, str, str]]) -> None:
    """From an accepted POST to a started measuring process, on an idle worker."""
    worker = lossbench(data_dir, "worker")
    try:
        until(lambda: httpx.get(f"{url}/api/v1/machines", trust_env=False).json()["items"])
        time.sleep(1.5)
        before = set(children_of(worker.pid))
        body = {
            "contenders": ["torch-naive"],
            "shapes": [{"tokens": 32, "hidden": 16, "vocab": 64}],
            "dtypes": ["float32"],
            "processes": 1,
        }
        answer = httpx.post(f"{url}/api/v1/jobs", json=body, trust_env=False)
        accepted = time.perf_counter()
        answer.raise_for_status()
        until(lambda: set(children_of(worker.pid)) - before)
        waited = time.perf_counter() - accepted
        rows.append(("accepted to child started, idle worker", f"{waited:.2f} s", "< 1 s"))
    finally:
        worker.terminate()
        worker.wait()


def measure_overhead(data_dir: str, rows: list[tuple[str, str, str]]) -> None:
    """Queue and storage cost of a cell whose measuring takes no time."""
    service = lossbench(data_dir, "serve", "--no-auth", "--port", "8792")
    url = "http://127.0.0.1:8792"
    until(lambda: answers(f"{url}/"))
    worker = subprocess.Popen(
        [sys.executable, "-P", str(SCRIPTED_WORKER), "never", f"{data_dir}/died", "0"],
        env=dict(os.environ, LOSSBENCH_DATA_DIR=data_dir, PYTHONSAFEPATH="1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        if worker.stdout is None or worker.stdout.readline() != "ready\n":
            raise RuntimeError("the scripted worker did not start")
        body = {
            "contenders": ["torch-naive", "torch-upcast", "flce", "liger"],
            "shapes": [{"tokens": 8, "hidden": 8, "vocab": 16}],
            "sweep": {"tokens": list(range(8, 8 + CELLS // 4))},
            "dtypes": ["float32"],
            "reuse": False,
        }
        began = time.perf_counter()
        job = httpx.post(f"{url}/api/v1/jobs", json=body, trust_env=False, timeout=30).json()
        address = f"{url}/api/v1/jobs/{job['id']}"
        until(lambda: httpx.get(address, trust_env=False).json()["state"] == "done", 120)
        each = (time.perf_counter() - began) / CELLS * 1e3
        rows.append((f"queue and storage a cell ({CELLS} cells)", f"{each:.1f} ms", "<= 50 ms"))
    finally:
        for process in (worker, service):
            process.terminate()
            process.wait()


def main() -> None:
    """Print the table."""
    rows: list[tuple[str, str, str]] = []
    with tempfile.TemporaryDirectory() as data_dir:
        measure_service(data_dir, rows)
    with tempfile.TemporaryDirectory() as data_dir:
        measure_overhead(data_dir, rows)
    if "--json" in sys.argv:
        sys.stdout.write(json.dumps(rows) + "\n")
        return
    sys.stdout.write("| what | measured | budget |\n|---|---|---|\n")
    for row in rows:
        sys.stdout.write("| " + " | ".join(row) + " |\n")


if __name__ == "__main__":
    main()
