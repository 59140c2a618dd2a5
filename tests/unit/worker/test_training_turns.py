"""Turns, deaths and lost arms of a training, with scripted processes in place of real ones."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lossbench.kernels.errors import UnsupportedHere
from lossbench.kernels.training.record import RunRecord, TrainingSettings
from lossbench.service.contract.contender import Contender
from lossbench.service.contract.errors import ChildDiedError, WorkerError
from lossbench.service.contract.run import Environment
from lossbench.worker import training
from lossbench.worker.environments import ContenderEnvironment, Environments
from lossbench.worker.training import RunLost, TrainedArm, Training, TrainingPlan

STEPS, CHECKPOINT = 60, 25


class Script:
    """What happened, and where a process dies: {(arm, step): times}."""

    def __init__(self, deaths: Mapping[tuple[str, int], int] | None = None) -> None:
        self.deaths = dict(deaths or {})
        self.turns: list[tuple[str, int]] = []
        self.refused: dict[str, str] = {}
        self.open_processes = 0


class ScriptedProcess:
    """Takes orders as a training process does; a checkpoint at step 25."""

    script: Script

    def __init__(
        self,
        environment: ContenderEnvironment,
        log: Path,
        gpu: int | None,
        wanted: Callable[[], None],
    ) -> None:
        self.arm, self.step, self.saved = log.parent, 0, log.parent / "saved"
        self.script.open_processes += 1

    def ask(self, order: Mapping[str, Any]) -> dict[str, Any]:
        match order["do"]:
            case "open":
                self.name, self.seed = order["arm"], order["seed"]
                if self.name in self.script.refused:
                    raise RunLost("out_of_memory", self.script.refused[self.name])
                path = Path(order["folder"])
                path.mkdir(parents=True, exist_ok=True)
                self.saved = path / "saved"
                self.step = int(self.saved.read_text()) if self.saved.exists() else 0
                return {"step": self.step, "ended": self.step >= STEPS, "text_sha256": "a"}
            case "advance":
                return self._advance(min(order["to"], STEPS))
        record = RunRecord(
            self.name, self.seed, "ok", STEPS, 1, 1.0, 0.5, None, None, 0, 2.0, 7.4, 2.0
        )
        return {"record": record.as_json()}

    def _advance(self, to: int) -> dict[str, Any]:
        self.script.turns.append((self.name, to))
        if self.step < CHECKPOINT <= to:
            self.saved.write_text(str(CHECKPOINT))
        left = self.script.deaths.get((self.name, to), 0)
        if left:
            self.script.deaths[self.name, to] = left - 1
            raise ChildDiedError("the training process ended with signal SIGKILL")
        self.step = to
        return {"step": to, "ended": to >= STEPS, "last": {"loss": 2.0}}

    def close(self) -> None:
        self.script.open_processes -= 1


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    made = Script()
    monkeypatch.setattr(ScriptedProcess, "script", made, raising=False)
    monkeypatch.setattr(training, "TrainingProcess", ScriptedProcess)
    return made


class Everywhere:
    """Environments of a machine that lacks what is in `missing`."""

    missing: tuple[str, ...] = ()

    def of(self, contender: Contender) -> ContenderEnvironment:
        if contender.kernel in self.missing:
            raise UnsupportedHere("needs a GPU")
        return ContenderEnvironment("built-in")


def make(folder: Path, seeds: int = 1, missing: tuple[str, ...] = ()) -> Training:
    arms = tuple(TrainedArm(Contender.parse(text)) for text in ("torch-naive", "flce@1"))
    plan = TrainingPlan(TrainingSettings(steps=STEPS), arms, tuple(range(seeds)), folder)
    device = cast(Environment, SimpleNamespace(device_name="cpu", facts={"torch": "2"}))
    environments = Everywhere()
    environments.missing = missing
    return Training(plan, cast(Environments, environments), device)


def test_contenders_take_turns_and_another_begins_each_time(script: Script, tmp_path: Path) -> None:
    with make(tmp_path) as running:
        outcome = running.run()
    assert script.turns == [
        ("flce@1", 20), ("torch-naive", 20),
        ("torch-naive", 40), ("flce@1", 40),
        ("flce@1", 60), ("torch-naive", 60),
    ]  # fmt: skip
    assert set(outcome.records) == {("torch-naive", 0), ("flce@1", 0)}
    assert script.open_processes == 0


def test_dead_process_goes_on_at_the_checkpoint(script: Script, tmp_path: Path) -> None:
    script.deaths["flce@1", 60] = 1
    with make(tmp_path) as running:
        outcome = running.run()
    flce = [to for arm, to in script.turns if arm == "flce@1"]
    assert flce == [20, 40, 60, 45, 60]
    assert not outcome.lost
    assert script.open_processes == 0


def test_process_that_always_dies_at_one_step_is_given_up(script: Script, tmp_path: Path) -> None:
    """From its checkpoint to just before it gets on each time: that alone must not save it."""
    script.deaths["flce@1", 60] = 1000
    with make(tmp_path, seeds=2) as running:
        outcome = running.run()
    assert "SIGKILL" in outcome.lost["flce@1"].reason
    # once from step 40, then three times from 45, the furthest it ever came
    assert [to for arm, to in script.turns if arm == "flce@1"].count(60) == 4
    # the other one is trained to the end, over both seeds
    assert set(outcome.records) == {("torch-naive", 0), ("torch-naive", 1)}


def test_contender_that_does_not_fit_leaves_the_others_alone(
    script: Script, tmp_path: Path
) -> None:
    script.refused["flce@1"] = "out of memory"
    with make(tmp_path) as running:
        outcome = running.run()
    assert (outcome.lost["flce@1"].outcome, set(outcome.records)) == (
        "out_of_memory",
        {("torch-naive", 0)},
    )


def test_contender_that_this_machine_lacks_is_unsupported(script: Script, tmp_path: Path) -> None:
    with make(tmp_path, missing=("flce",)) as running:
        outcome = running.run()
    assert outcome.lost["flce@1"].outcome == "unsupported"


def test_reference_that_cannot_be_trained_ends_it(script: Script, tmp_path: Path) -> None:
    with make(tmp_path, missing=("torch-naive",)) as running, pytest.raises(WorkerError) as caught:
        running.run()
    assert "the reference torch-naive, seed 0: needs a GPU" in caught.value.message
    assert script.open_processes == 0
