"""The device as the worker's own process sees it: described by a probe child, locked by a file."""

import json
import os
import subprocess
import sys

from lossbench.service.contract.errors import MissingPackageError, SetupError
from lossbench.service.contract.run import Environment

PROBE_TIMEOUT_S = 300


def probe_device(gpu: int | None = None, quick: bool = False) -> tuple[Environment, str | None]:
    """The environment of this machine, and what is wrong with its device, if anything.

    Raises MissingPackageError without torch, SetupError when the device cannot be described.
    """
    variables = dict(os.environ, PYTHONSAFEPATH="1")
    if gpu is not None:
        variables["CUDA_VISIBLE_DEVICES"] = str(gpu)
    command = [sys.executable, "-P", "-m", "lossbench.worker.probe"] + ["--quick"] * quick
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
    wrong = facts.pop("device_check")
    return Environment.model_validate(facts), wrong
