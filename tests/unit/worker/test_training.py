"""Mutants among trained losses: which of them the curves and the perplexity tell from torch."""

from __future__ import annotations

import json
import math
from functools import cache
from pathlib import Path

import pytest
import torch

from lossbench.kernels.adapters.torch_plain import build_naive
from lossbench.kernels.mutants import MUTANTS
from lossbench.kernels.protocol import LossFunction
from lossbench.kernels.training import run as run_module
from lossbench.kernels.training.model import Decoder
from lossbench.kernels.training.record import RunRecord, StepRecord, TrainingSettings
from lossbench.kernels.training.run import Arm, TrainingRun
from lossbench.kernels.training.sizes import Shape
from lossbench.kernels.training.text import load_corpus
from lossbench.service.contract.contender import Contender
from lossbench.service.contract.errors import InvalidRequestError, SetupError
from lossbench.service.statistics.training_verdict import (
    CurveFinding,
    TrainingVerdict,
    compare_curves,
    decide_perplexity,
)
from lossbench.worker.training import RunLost, TrainedArm, TrainingOutcome, TrainingPlan
from lossbench.worker.training_files import (
    agree_on_settings,
    arm_folder,
    keep_settings,
    read_steps,
    run_folder,
    step_lines,
    take_folder,
)
from lossbench.worker.training_summary import NOT_SENSITIVE, cells, markdown, remarks, summarise

torch.set_num_threads(1)
SETTINGS = TrainingSettings(
    steps=60, batch=8, sequence=32, learning_rate=5e-3, validation_tokens=4096
)
SEEDS = (0, 1, 2)
NAIVE = build_naive(None, {})


@cache
def trained(loss: LossFunction, reordered: bool = False) -> tuple[list[list[float]], list[float]]:
    """Losses (seeds, steps) and validation losses of a small model."""
    corpus = load_corpus(SETTINGS)
    curves, validation = [], []
    for seed in SEEDS:
        run = TrainingRun(SETTINGS, corpus, Arm("x", loss, reordered), seed, "cpu")
        curves.append([step.loss for step in run.advance(SETTINGS.steps)])
        validation.append(run.validation_loss())
    return curves, validation


@pytest.fixture(autouse=True)
def small_model(monkeypatch: pytest.MonkeyPatch) -> None:
    def make(size: str, vocab: int, sequence: int, tied: bool, seed: int) -> Decoder:
        torch.manual_seed(seed)
        model = Decoder(Shape(1, 32, 2, 48), vocab, sequence, tied)
        torch.nn.init.normal_(model.embedding.weight, std=0.02)
        return model

    monkeypatch.setattr(run_module, "make_model", make)


def finding(loss: LossFunction) -> CurveFinding:
    control = trained(NAIVE, reordered=True)[0]
    return compare_curves(trained(loss)[0], trained(NAIVE)[0], control).finding


def verdict(loss: LossFunction) -> TrainingVerdict:
    return decide_perplexity(trained(loss)[1], trained(NAIVE)[1]).verdict


def test_the_reference_reordered_is_the_same() -> None:
    def again(*tensors: torch.Tensor) -> torch.Tensor:
        # rows in yet another order
        input, weight, target = tensors
        order = torch.randperm(len(target), generator=torch.Generator().manual_seed(1))
        return NAIVE(input[order], weight, target[order])

    assert finding(again) is CurveFinding.INSIDE
    assert verdict(again) is TrainingVerdict.SAME


@pytest.mark.parametrize("mutant", ["dw_summed_in_bf16", "dw_missing_chunk"])
def test_mutant_of_small_errors_leaves_the_band_of_rounding(mutant: str) -> None:
    """All of them learn nearly as well in 60 steps: their perplexity alone would not tell."""
    assert finding(MUTANTS[mutant]) is CurveFinding.BEYOND_ROUNDING


@pytest.mark.parametrize("mutant", ["dw_zero", "lse_off_by_one_tile"])
def test_mutant_of_large_errors_is_worse_and_beyond_seeds(mutant: str) -> None:
    assert finding(MUTANTS[mutant]) is CurveFinding.BEYOND_SEEDS
    assert verdict(MUTANTS[mutant]) is TrainingVerdict.WORSE


def test_steps_cut_short_by_a_kill_are_left_out(tmp_path: Path) -> None:
    steps = [StepRecord(n, 4.0 / n, 1.0, 0, 2.0, 1.0) for n in (1, 2, 3)]
    (tmp_path / "steps.jsonl").write_text(step_lines(steps)[:-9], encoding="utf-8")
    assert read_steps(tmp_path) == steps[:2]
    assert read_steps(tmp_path / "none") == []


def test_folders_of_arms_differ_and_say_whose_they_are(tmp_path: Path) -> None:
    names = ["flce@1", "flce@1[chunk_rows=8]", "flce-1", "flce@1 (rows reordered)"]
    folders = {arm_folder(tmp_path, name) for name in names}
    assert len(folders) == len(names)
    assert all(folder.name.startswith("flce-1") for folder in folders)


def test_folder_in_use_and_folder_that_cannot_be_are_refused(tmp_path: Path) -> None:
    take_folder(tmp_path / "new")
    with pytest.raises(SetupError, match="another `lossbench train`"):
        take_folder(tmp_path / "new")
    (tmp_path / "file").write_text("x", encoding="utf-8")
    with pytest.raises(InvalidRequestError, match="--out"):
        take_folder(tmp_path / "file" / "below")


def test_runs_of_other_settings_are_refused(tmp_path: Path) -> None:
    keep_settings(tmp_path, {"steps": 5, "text_sha256": "a"})
    agree_on_settings(tmp_path, {"steps": 5})
    with pytest.raises(InvalidRequestError, match="steps was 5, is 6"):
        agree_on_settings(tmp_path, {"steps": 6})
    with pytest.raises(InvalidRequestError, match="text_sha256"):
        keep_settings(tmp_path, {"steps": 5, "text_sha256": "b"})
    (tmp_path / "settings.json").write_text("[]", encoding="utf-8")
    with pytest.raises(InvalidRequestError, match="not what"):
        agree_on_settings(tmp_path, {"steps": 5})


def record(arm: str, seed: int, loss: float | None) -> RunRecord:
    outcome = "ok" if loss is not None else "diverged"
    return RunRecord(
        arm, seed, outcome, 4, 1000, 2000.0 + seed, 0.3, 2**30, 2**28, int(loss is None), loss,
        None if loss is None else math.exp(loss), loss,
    )  # fmt: skip


@pytest.fixture
def plan(tmp_path: Path) -> TrainingPlan:
    arms = tuple(TrainedArm(Contender.parse(text)) for text in ("torch-naive", "flce@1", "cce"))
    control = TrainedArm(arms[0].contender, reordered=True)
    settings = TrainingSettings(steps=4)
    return TrainingPlan(settings, (arms[0], control, *arms[1:]), (0, 1, 2), tmp_path)


def outcome_of(plan: TrainingPlan, losses: dict[str, list[float | None]]) -> TrainingOutcome:
    outcome = TrainingOutcome(lost={"cce": RunLost("unsupported", "cce needs a GPU")})
    for arm, values in losses.items():
        for seed, loss in enumerate(values):
            outcome.records[arm, seed] = record(arm, seed, loss)
            folder = run_folder(plan.out, arm, seed)
            folder.mkdir(parents=True)
            last = 2 if loss is None else 4
            steps = [
                StepRecord(n, math.nan if loss is None and n == 2 else 5.0 - n, 1.0, 0, 1.0, 0.3)
                for n in range(1, last + 1)
            ]
            (folder / "steps.jsonl").write_text(step_lines(steps), encoding="utf-8")
    return outcome


def test_summary_has_a_row_an_arm_with_its_verdict(plan: TrainingPlan) -> None:
    base: list[float | None] = [2.54, 2.55, 2.53]
    control = plan.arms[1].name
    outcome = outcome_of(plan, {"torch-naive": base, control: base, "flce@1": [2.54, None, 2.53]})
    rows = summarise(plan, outcome)
    assert [row.verdict for row in rows] == [
        "reference",
        "same",
        "worse",
        "unsupported: cce needs a GPU",
    ]
    assert cells(rows[0])[:6] == ("torch-naive", "2,001", "30%", "1.00 GiB", "0.25 GiB", "2.5400")
    assert rows[2].curve is not None
    assert rows[2].curve.first_beyond_seeds == 2
    assert any("1 of 3 runs diverged" in line for line in remarks(rows))
    assert NOT_SENSITIVE not in remarks(rows)
    text = markdown(plan.settings, rows, "a CPU")
    assert "| flce@1 | 2,001 | 30% |" in text
    json.dumps([row.as_json() for row in rows], allow_nan=False)


def test_control_that_differs_from_the_reference_is_remarked(plan: TrainingPlan) -> None:
    base: list[float | None] = [2.54, 2.55, 2.53]
    outcome = outcome_of(plan, {"torch-naive": base, plan.arms[1].name: [2.60, 2.49, 2.53]})
    assert NOT_SENSITIVE in remarks(summarise(plan, outcome))


def test_seed_that_one_side_lacks_is_not_paired(plan: TrainingPlan) -> None:
    outcome = outcome_of(
        plan, {"torch-naive": [2.0, 3.0, 2.5], plan.arms[1].name: [2.0], "flce@1": [2.0, 3.0]}
    )
    rows = summarise(plan, outcome)
    assert rows[2].decision is not None
    assert (rows[2].decision.seeds, rows[2].verdict) == (2, "same")
    assert rows[1].verdict == "inconclusive"
