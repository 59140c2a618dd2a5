"""A real service in a process of its own over a given database, and times of asking it."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import numpy as np

LONGEST_S = 8.0
"""No row is repeated beyond this."""


class Timing(NamedTuple):
    """Times of whole answers in milliseconds, and the mean size of the packed body in KB."""

    p50_ms: float
    p95_ms: float
    packed_kb: float


class Served:
    """A running service: its address, its process, and a client that connects for each request."""

    def __init__(self, url: str, process: "subprocess.Popen[bytes]") -> None:
        self.url, self.process = url, process
        limits = httpx.Limits(max_keepalive_connections=0)
        self.http = httpx.Client(base_url=url, trust_env=False, timeout=120, limits=limits)

    def json(self, path: str) -> Any:
        """The body of an answer. Raises HTTPStatusError."""
        return self.http.get(path).raise_for_status().json()

    def resident_mb(self, peak: bool = False) -> float:
        """Resident memory of the service in MB, now or at its highest."""
        word = "VmHWM" if peak else "VmRSS"
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith(word)).split()[1]) / 1000


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def served(database_url: str, folder: Path) -> Iterator[Served]:
    """`lossbench serve --no-auth` over the database, ended when left."""
    port = free_port()
    environment = dict(
        os.environ,
        LOSSBENCH_DATA_DIR=str(folder),
        LOSSBENCH_DATABASE_URL=database_url,
        LOSSBENCH_WRITES_PER_MINUTE="100000",
        PYTHONSAFEPATH="1",
    )
    command = [sys.executable, "-P", "-m", "lossbench.service.cli.main", "serve", "--no-auth"]
    process = subprocess.Popen(
        [*command, "--port", str(port)], env=environment, stdout=subprocess.DEVNULL
    )
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
    while time.perf_counter() < deadline and service.process.poll() is None:
        try:
            if service.http.get("/readyz").status_code == 200:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.05)
    raise RuntimeError("the service did not start")


def timed(service: Served, paths: Sequence[str], repeats: int) -> Timing:
    """Times of asking the addresses in turns, after one round that does not count."""
    for path in paths[:3]:
        service.http.get(path).raise_for_status()
    times: list[float] = []
    sizes: list[int] = []
    stop = time.perf_counter() + LONGEST_S
    for index in range(repeats):
        began = time.perf_counter()
        with service.http.stream("GET", paths[index % len(paths)]) as answer:
            body = b"".join(answer.iter_raw())
        times.append((time.perf_counter() - began) * 1e3)
        answer.raise_for_status()
        sizes.append(len(body))
        if time.perf_counter() > stop and len(times) >= 3:
            break
    return summary(times, float(np.mean(sizes)) / 1e3)


def summary(times_ms: Sequence[float], packed_kb: float) -> Timing:
    """Median and 95th percentile."""
    return Timing(*(float(np.percentile(times_ms, share)) for share in (50, 95)), packed_kb)


_HEADER = (
    "kernel_name,kernel_provider,kernel_operation_mode,metric_name,metric_unit,x_name,x_label,"
    "x_value,y_value_50,y_value_20,y_value_80,extra_benchmark_config_str,gpu_name,timestamp,"
    "liger_version"
)


def liger_table(number: int, results: int = 400) -> bytes:
    """A table in Liger's format: `results` rows of median, 20th and 80th percentile each."""
    lines = [_HEADER]
    for index in range(results):
        config = '"{""H"": 4096, ""V"": 128256, ""dtype"": ""torch.bfloat16""}"'
        tokens, median = 1024 + 16 * index, 5.0 + 0.01 * index + 0.001 * number
        stamp = f"2026-06-15 {number // 60 % 24:02d}:{number % 60:02d}:03"
        lines.append(
            "fused_linear_cross_entropy,liger,full,speed,ms,token_length,total tokens,"
            f"{tokens},{median:.3f},{median * 0.99:.3f},{median * 1.01:.3f},{config},"
            f"NVIDIA H100 80GB HBM3,{stamp},0.8.5"
        )
    return ("\n".join(lines) + "\n").encode()


def import_times(service: Served, imports: int) -> Timing:
    """Times of importing 400 results with 3 numbers each, every table of a commit of its own."""
    mark, times = time.time_ns() % 10**9, []
    for number in range(imports):
        body = liger_table(number)
        began = time.perf_counter()
        answer = service.http.post(
            "/api/v1/imports",
            params={"commit": f"{mark}-{number}"},
            content=body,
            headers={"Content-Type": "text/csv"},
        )
        times.append((time.perf_counter() - began) * 1e3)
        found = answer.raise_for_status().json()
        if found["results_added"] != 400:
            raise RuntimeError(f"not all rows became results: {found}")
    return summary(times, len(body) / 1e3)
