"""The scripts of docs/howto/submit-from-a-script.md, run as they stand against a real service."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .filled_service import settle_comparisons

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "submit-from-a-script.md"
ADDRESS = "http://127.0.0.1:8765"
PLAIN, TYPED = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
MOST_LINES = 15


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service with a worker on this CPU, in processes of their own."""
    variables = {
        "PATH": os.environ["PATH"],
        "LOSSBENCH_DATA_DIR": str(tmp_path_factory.mktemp("served")),
        "PYTHONSAFEPATH": "1",
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-P", "-m", "lossbench.service.cli.main", "serve"]
    process = subprocess.Popen(
        [*command, "--with-worker", "--no-auth", "--port", "0"],
        env=variables,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    found = re.search(r"http://\S+", process.stdout.readline())
    assert found
    yield found.group()
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=20) == 0


def run(script: str, address: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-c", script],
        env={"PATH": os.environ["PATH"], "LOSSBENCH_URL": address, "PYTHONSAFEPATH": "1"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


def test_script_of_15_lines_prints_the_verdict_of_a_job_answered_meanwhile(service: Any) -> None:
    assert len(PLAIN.strip().splitlines()) <= MOST_LINES
    assert "lossbench" not in PLAIN.replace("LOSSBENCH", "")
    service.context.start()
    address, worker = service.listen(), service.worker()

    def answer() -> None:
        while not (jobs := service.http.get("/api/v1/jobs").json()["items"]):
            time.sleep(0.02)
        time.sleep(0.3)  # the script waits by now
        settle_comparisons(service, worker, jobs[0]["id"])

    answering = threading.Thread(target=answer)
    answering.start()
    done = run(PLAIN.replace("torch-upcast", "flce"), address)
    answering.join()
    assert (done.stdout, done.stderr) == ("flce against torch-naive: slower, 2.000 x\n", "")
    refused = run(PLAIN.replace("torch-upcast", "flcee"), address)
    assert refused.returncode == 1
    (line,) = refused.stderr.splitlines()
    assert line.startswith(
        "/contenders/1/kernel: there is no kernel 'flcee' (did you mean 'flce'?)"
    )


@pytest.mark.slow
def test_script_of_15_lines_prints_a_measured_verdict(address: str) -> None:
    done = run(PLAIN, address)
    assert done.returncode == 0, done.stderr
    said = re.fullmatch(r"torch-upcast against torch-naive: ([a-z_]+), \d\.\d+ x\n", done.stdout)
    assert said, done.stdout
    assert said[1] in {"faster", "slower", "no_difference", "inconclusive"}


@pytest.mark.slow
def test_typed_script_prints_the_result(address: str) -> None:
    assert ADDRESS in TYPED
    done = run(TYPED.replace(ADDRESS, address), address)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"torch-naive@\S+ ok \d+\.\d+ ms", done.stdout.strip().splitlines()[-1])
