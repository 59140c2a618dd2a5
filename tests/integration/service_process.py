"""Services and scripted workers as processes of their own, for tests that kill and restart them."""

import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx

WORKER = Path(__file__).with_name("scripted_worker.py")


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Processes:
    """Starts services and workers on one database; `close` ends what still runs."""

    def __init__(self, folder: Path, url: str) -> None:
        self._started: list[subprocess.Popen[str]] = []
        self.variables = {
            "PATH": "/usr/bin:/bin",
            "LOSSBENCH_DATA_DIR": str(folder),
            "LOSSBENCH_DATABASE_URL": url,
            "LOSSBENCH_HEARTBEAT_S": "0.2",
            "LOSSBENCH_STALE_AFTER_S": "2",
            "PYTHONSAFEPATH": "1",
        }
        self._folder = folder

    def run(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """One command of lossbench, to its end."""
        return subprocess.run(
            [sys.executable, "-P", "-m", "lossbench.service.cli.main", *arguments],
            env=self.variables | variables,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def service(self, port: int, *flags: str, **variables: str) -> subprocess.Popen[str]:
        """A service that answers on this port; its log is in `stderr`."""
        command = [sys.executable, "-P", "-m", "lossbench.service.cli.main", "serve"]
        process = subprocess.Popen(
            [*command, *(flags or ("--no-auth",)), "--port", str(port)],
            env=self.variables | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._started.append(process)
        assert process.stdout is not None
        if not re.search(r"http://\S+", process.stdout.readline()):
            raise AssertionError(f"the service did not start: {process.communicate()[1]}")
        return process

    def worker(
        self, case_s: float, url: str | None = None, point: str = "never", queue: str = ""
    ) -> subprocess.Popen[str]:
        """A scripted worker that takes lots, each case as long as is said."""
        chosen = {"LOSSBENCH_DATABASE_URL": url} if url else {}
        more = ["", queue] if queue else []
        marker = str(self._folder / f"died-{point}")
        process = subprocess.Popen(
            [sys.executable, "-P", str(WORKER), point, marker, str(case_s), *more],
            env=self.variables | chosen,
            stdout=subprocess.PIPE,
            stderr=(self._folder / f"worker-{len(self._started)}.log").open("w"),
            text=True,
        )
        self._started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    def said(self) -> str:
        """What the workers wrote to their logs."""
        return "".join(log.read_text() for log in sorted(self._folder.glob("worker-*.log")))

    def close(self) -> None:
        """Kill and collect everything."""
        for process in self._started:
            process.send_signal(signal.SIGKILL)
            process.wait()
            for pipe in (process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()


def job_body(cases: int) -> dict[str, Any]:
    """A job of one contender on so many cases that the scripted worker answers."""
    return {
        "contenders": ["torch-upcast"],
        "shapes": [{"tokens": n, "hidden": 8, "vocab": 32} for n in range(1, cases + 1)],
        "dtypes": ["float32"],
        "processes": 1,
    }


def submit(http: httpx.Client, cases: int) -> str:
    """Submit such a job; returns its id."""
    answer = http.post("/api/v1/jobs", json=job_body(cases))
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])
