"""`lossbench train` whole: real processes, a killed one, the verdict, and the command on top."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from lossbench.kernels.adapters.torch_plain import build_naive
from lossbench.kernels.training.record import TrainingSettings
from lossbench.kernels.training.run import Arm, TrainingRun
from lossbench.kernels.training.text import load_corpus
from lossbench.service.contract.contender import Contender
from lossbench.service.contract.run import Environment
from lossbench.worker.device import probe_device
from lossbench.worker.environments import Environments
from lossbench.worker.install import Installer
from lossbench.worker.training import TrainedArm, Training, TrainingOutcome, TrainingPlan
from lossbench.worker.training_files import CHECKPOINT, read_steps, run_folder
from lossbench.worker.training_summary import summarise

SETTINGS = TrainingSettings(
    steps=50, batch=4, sequence=32, validation_tokens=2048, checkpoint_every=15
)
FLAGS = [
    *("--steps", "50", "--batch", "4", "--seq", "32", "--validation-tokens", "2048"),
    *("--checkpoint-every", "15", "--seeds", "2", "--threads", "1"),
]
NAIVE, FLCE = (TrainedArm(Contender.parse(text)) for text in ("torch-naive", "flce@1"))
CONTROL = TrainedArm(NAIVE.contender, reordered=True)


@pytest.fixture(scope="module")
def device() -> Environment:
    return probe_device(quick=True)[0]


def make_training(
    folder: Path, device: Environment, progress: Callable[..., None]
) -> tuple[Training, TrainingPlan]:
    plan = TrainingPlan(SETTINGS, (NAIVE, CONTROL, FLCE), (0, 1), folder / "out")
    environments = Environments(Installer(folder / "data"), "cpu")
    return Training(plan, environments, device, progress=progress), plan


@pytest.fixture(scope="module")
def killed(
    tmp_path_factory: pytest.TempPathFactory, device: Environment
) -> tuple[TrainingPlan, TrainingOutcome, list[int]]:
    """A training of which one process was killed after a checkpoint, and the steps it reported."""
    reported: list[int] = []

    def progress(arm: str, seed: int, step: int, loss: float | None) -> None:
        if (arm, seed) == (NAIVE.name, 0):
            reported.append(step)
            if step == 40 and reported.count(40) == 1:
                os.kill(training.processes[arm].pid, signal.SIGKILL)

    folder = tmp_path_factory.mktemp("training")
    training, plan = make_training(folder, device, progress)
    with training:
        outcome = training.run()
    return plan, outcome, reported


def test_killed_run_goes_on_at_its_checkpoint_bit_for_bit(
    killed: tuple[TrainingPlan, TrainingOutcome, list[int]],
) -> None:
    plan, outcome, reported = killed
    # 15 and 30 are checkpoints; it was killed at 40
    assert reported == [0, 20, 40, 30, 50, 50]
    torch.set_num_threads(1)
    arm = Arm(NAIVE.name, build_naive(None, {}))
    unbroken = TrainingRun(SETTINGS, load_corpus(SETTINGS), arm, 0, "cpu")
    steps = unbroken.advance(50)
    folder = run_folder(plan.out, NAIVE.name, 0)
    found = read_steps(folder)
    assert [(s.step, s.loss, s.gradient_norm) for s in found] == [
        (s.step, s.loss, s.gradient_norm) for s in steps
    ]
    record = outcome.records[NAIVE.name, 0]
    assert record.validation_loss == unbroken.validation_loss()
    assert record.resumed == 30
    assert not (folder / CHECKPOINT).exists()


def test_verdict_and_bands_of_two_contenders(
    killed: tuple[TrainingPlan, TrainingOutcome, list[int]],
) -> None:
    plan, outcome, _ = killed
    reference, control, flce = summarise(plan, outcome)
    assert (reference.verdict, control.verdict, flce.verdict) == ("reference", "same", "same")
    assert flce.decision is not None
    assert flce.decision.seeds == 2
    assert flce.curve is not None
    assert flce.curve.first_beyond_seeds is None
    assert all(half > 0 for half in (*flce.curve.rounding, *flce.curve.seeds))
    assert reference.tokens_per_s
    assert reference.loss_share is not None
    assert 0 < reference.loss_share < 1


def train_command(plan: TrainingPlan, *more: str) -> list[str]:
    command = [sys.executable, "-P", "-m", "lossbench.service.cli.main", "train"]
    return [*command, "-c", "torch-naive", "-c", "flce", *FLAGS, "--out", str(plan.out), *more]


def variables(plan: TrainingPlan) -> dict[str, str]:
    data = str(plan.out.parent / "data")
    path = os.environ["PATH"]
    return {"PATH": path, "LOSSBENCH_DATA_DIR": data, "PYTHONSAFEPATH": "1", "COLUMNS": "160"}


def test_command_on_a_finished_folder_trains_nothing_and_reports(
    killed: tuple[TrainingPlan, TrainingOutcome, list[int]],
) -> None:
    plan, _, _ = killed
    done = subprocess.run(
        train_command(plan, "--json"),
        env=variables(plan), capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert [row["verdict"] for row in rows] == ["reference", "same", "same"]
    lines = (plan.out / "results.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 6
    assert "| flce@1 |" in (plan.out / "report.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_killed_command_given_again_goes_on(tmp_path: Path) -> None:
    plan = TrainingPlan(SETTINGS, (NAIVE, CONTROL, FLCE), (0, 1), tmp_path / "out")
    command = train_command(plan)
    first = subprocess.Popen(command, env=variables(plan), stderr=subprocess.DEVNULL)
    begun = run_folder(plan.out, NAIVE.name, 0)
    until = time.monotonic() + 120
    while not (begun / CHECKPOINT).exists() and time.monotonic() < until:
        time.sleep(0.05)
    first.kill()
    first.wait()
    assert (begun / CHECKPOINT).exists()
    done = subprocess.run(
        command, env=variables(plan), capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    result = json.loads((begun / "result.json").read_text(encoding="utf-8"))
    assert result["resumed"] > 0
    arm = Arm(NAIVE.name, build_naive(None, {}))
    torch.set_num_threads(1)
    unbroken = TrainingRun(SETTINGS, load_corpus(SETTINGS), arm, 0, "cpu")
    assert [step.loss for step in read_steps(begun)] == [s.loss for s in unbroken.advance(50)]
