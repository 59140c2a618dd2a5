"""The device as the worker's own process sees it: described by a probe child, locked by a file."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from lossbench.service.contract.errors import MissingPackageError, SetupError
from lossbench.service.contract.run import Environment

PROBE_TIMEOUT_S = 300


class Probe(NamedTuple):
    """What a probe child found."""

    environment: Environment
    fault: str | None
    """What is wrong with the device's arithmetic, if anything."""
    self_test: dict[str, Any] | None
    """Result of the A/A test, where one was asked for."""


def probe_device(gpu: int | None = None, quick: bool = False) -> tuple[Environment, str | None]:
    """The environment of this machine, and what is wrong with its device, if anything.

    Raises MissingPackageError without torch, SetupError when the device cannot be described.
    """
    found = _probe(gpu, ["--quick"] * quick)
    return found.environment, found.fault


def probe_worker(data_dir: Path, gpu: int | None = None, quick: bool = False) -> Probe:
    """As `probe_device`, with the A/A self-test that a worker makes at its start.

    The test is made under the device's lock in `data_dir`, and left out where another holds it.
    """
    return _probe(gpu, [*["--quick"] * quick, "--self-test", str(data_dir)])


def _probe(gpu: int | None, arguments: list[str]) -> Probe:
    variables = dict(os.environ, PYTHONSAFEPATH="1")
    if gpu is not None:
        variables["CUDA_VISIBLE_DEVICES"] = str(gpu)
        variables.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    command = [sys.executable, "-P", "-m", "lossbench.worker.probe", *arguments]
    try:
        done = subprocess.run(
            command,
            env=variables,
            capture_output=True,
            text=True,
            timeout=PROBE_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise SetupError(f"the device did not answer within {PROBE_TIMEOUT_S} s") from error
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        if "No module named 'torch'" in last:
            raise MissingPackageError(
                "measuring needs torch, which is not installed: pip install 'lossbench[worker]'"
            )
        raise SetupError(f"the device cannot be described: {last}")
    facts = json.loads(done.stdout.strip().splitlines()[-1])
    wrong, tested = facts.pop("device_check"), facts.pop("self_test", None)
    return Probe(Environment.model_validate(facts), wrong, tested)
