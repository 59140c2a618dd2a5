"""The folder of a training: what lies where, read and written so that a kill leaves it whole.

settings.json                        what the runs share; runs of other settings are refused
runs/ARM/seed-N/steps.jsonl          a line a step
runs/ARM/seed-N/checkpoint.pt        while the run is under way
runs/ARM/seed-N/result.json          once it has ended
runs/ARM/process.log                 what the contender printed
results.jsonl, report.md             every ended run; the table for people
"""

import fcntl
import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from lossbench.kernels.training.record import RunRecord, StepRecord
from lossbench.service.contract.errors import InvalidRequestError, SetupError

STEPS, CHECKPOINT, RESULT = "steps.jsonl", "checkpoint.pt", "result.json"
SETTINGS, RESULTS, REPORT, LOG = "settings.json", "results.jsonl", "report.md", "process.log"
BAD_TEXT = "bad_text"
"""Outcome of opening a run whose text cannot be used."""


def write_whole(path: Path, text: str) -> None:
    """Replace a file at once."""
    beside = path.with_name(path.name + ".part")
    with beside.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


def read_steps(folder: Path) -> list[StepRecord]:
    """The steps of a run; a last line that a kill cut short is left out."""
    path = folder / STEPS
    if not path.exists():
        return []
    whole, _, _ = path.read_text(encoding="utf-8").rpartition("\n")
    return [StepRecord.from_json(json.loads(line)) for line in whole.splitlines()]


def step_lines(steps: Iterable[StepRecord]) -> str:
    """Steps as lines of JSON."""
    return "".join(json.dumps(each.as_json()) + "\n" for each in steps)


def read_result(folder: Path) -> RunRecord | None:
    """The record of a run that has ended."""
    path = folder / RESULT
    if not path.exists():
        return None
    return RunRecord.from_json(json.loads(path.read_text(encoding="utf-8")))


def arm_folder(out: Path, arm: str) -> Path:
    """Folder of a contender's runs: readable, and its own."""
    readable = re.sub(r"[^A-Za-z0-9.]+", "-", arm).strip("-")[:60]
    return out / "runs" / f"{readable}-{hashlib.sha256(arm.encode()).hexdigest()[:6]}"


def run_folder(out: Path, arm: str, seed: int) -> Path:
    """Folder of one run."""
    return arm_folder(out, arm) / f"seed-{seed}"


def take_folder(out: Path) -> int:
    """Descriptor of the folder's lock; a new folder is made.

    Raises SetupError where another works in it, InvalidRequestError where it cannot be made.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(out / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise InvalidRequestError(f"--out {out}: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise SetupError(f"another `lossbench train` works in {out}") from error
    return descriptor


def agree_on_settings(out: Path, shared: Mapping[str, Any]) -> None:
    """Compare what all runs share with what the runs there were made with, if there are any.

    Raises InvalidRequestError naming what differs.
    """
    if not (out / SETTINGS).exists():
        return
    before = read_settings(out)
    different = [
        f"{key} was {before.get(key)!r}, is {value!r}"
        for key, value in shared.items()
        if before.get(key) != value
    ]
    if different:
        raise InvalidRequestError(
            f"the runs in {out} were made otherwise: {'; '.join(different)}; give the same again, "
            "or another --out"
        )


def keep_settings(out: Path, shared: Mapping[str, Any]) -> None:
    """Write what all runs share; where that is written already, raise as `agree_on_settings`."""
    agree_on_settings(out, shared)
    if not (out / SETTINGS).exists():
        write_whole(out / SETTINGS, json.dumps(shared, indent=1) + "\n")


def read_settings(out: Path) -> dict[str, Any]:
    """What the runs of a folder share. Raises InvalidRequestError where that cannot be read."""
    path = out / SETTINGS
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidRequestError(f"{path} cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise InvalidRequestError(f"{path} is not what `lossbench train` writes")
    return found
