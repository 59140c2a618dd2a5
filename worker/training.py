"""Trains contenders side by side: one process each, taking turns of a few steps, seed after seed.

All contenders of a seed are resident and only one works at a time, so that a slow phase of the
machine meets all of them. Who begins changes from turn to turn. A process that dies is started
again and goes on at its last checkpoint.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from lossbench.kernels.errors import UnsupportedHere
from lossbench.kernels.training.record import RunRecord, StepRecord, TrainingSettings
from lossbench.service.contract.contender import Contender
from lossbench.service.contract.errors import (
    ChildDiedError,
    ChildTimeoutError,
    InstallError,
    InvalidRequestError,
    WorkerError,
)
from lossbench.service.contract.ids import new_id
from lossbench.service.contract.run import Environment

from .children import child_variables
from .environments import ContenderEnvironment, Environments
from .messages import REPLY_FD_VARIABLE
from .process_family import CHILD_VARIABLE, WORKER_VARIABLE, life_of
from .training_files import (
    BAD_TEXT,
    LOG,
    agree_on_settings,
    arm_folder,
    keep_settings,
    read_result,
    run_folder,
)

TURN_STEPS = 20
ANSWER_TIMEOUT_S = 3600.0
"""For one turn, and for opening a run: 20 steps that take longer are no benchmark."""
MOST_DEATHS = 3
"""Of one run's process, before a step that it never got beyond."""
REORDERED = " (rows reordered)"

Progress = Callable[[str, int, int, float | None], None]
"""Arm, seed, step reached, loss there."""
POLL_S = 0.5
"""Between two questions whether the training is still wanted."""


def _wanted() -> None:
    """Nobody cancels."""


class Recorder(Protocol):
    """Who keeps what a training does, run by run."""

    def opened(self, arm: str, step: int, folder: Path, facts: Mapping[str, Any]) -> None:
        """A run begins at a step, 0 for a new one; its earlier steps are in its folder."""

    def advanced(self, arm: str, steps: Sequence[StepRecord]) -> None:
        """Steps were made."""

    def found(self, arm: str, folder: Path) -> None:
        """A run had ended before; all of it is in its folder."""


class RunLost(Exception):  # noqa: N818
    """A run cannot go on here; `outcome` and a one-line `reason`."""

    def __init__(self, outcome: str, reason: str) -> None:
        super().__init__(reason)
        self.outcome, self.reason = outcome, reason


@dataclass(frozen=True)
class TrainedArm:
    """A contender to train with; `reordered` makes it the control of rounding."""

    contender: Contender
    reordered: bool = False

    @property
    def name(self) -> str:
        """Name in tables and files."""
        return self.contender.text + (REORDERED if self.reordered else "")


@dataclass(frozen=True)
class TrainingPlan:
    """What to train: the first arm is the reference."""

    settings: TrainingSettings
    arms: tuple[TrainedArm, ...]
    seeds: tuple[int, ...]
    out: Path
    done: frozenset[str] = frozenset()
    """Names of arms that are not trained: they have ended elsewhere."""


@dataclass
class TrainingOutcome:
    """Ended runs by (arm, seed), and why an arm gave up, by name."""

    records: dict[tuple[str, int], RunRecord] = field(default_factory=dict)
    lost: dict[str, RunLost] = field(default_factory=dict)


class TrainingProcess:
    """One training process; started from the calling thread, which must outlive it."""

    def __init__(
        self,
        environment: ContenderEnvironment,
        log: Path,
        gpu: int | None,
        wanted: Callable[[], None] = _wanted,
    ) -> None:
        """`wanted` is called while an answer is waited for; it raises to leave."""
        self._wanted = wanted
        read, write = os.pipe()
        variables = child_variables(
            environment.search_path, False, environment.more_paths, environment.variables
        )
        variables |= {CHILD_VARIABLE: new_id("child"), WORKER_VARIABLE: life_of(os.getpid()) or ""}
        variables[REPLY_FD_VARIABLE] = str(write)
        if gpu is not None:
            variables["CUDA_VISIBLE_DEVICES"] = str(gpu)
            variables.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
        log.parent.mkdir(parents=True, exist_ok=True)
        self._log = log
        with log.open("ab") as printed:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "lossbench.worker.training_child"],
                env=variables,
                pass_fds=[write],
                stdin=subprocess.PIPE,
                stdout=printed,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        os.close(write)
        self._replies, self._pending = read, b""

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def ask(self, order: Mapping[str, Any]) -> dict[str, Any]:
        """Send an order and wait for its answer.

        Raises RunLost where it refuses, InvalidRequestError for a text that cannot be used,
        ChildDiedError, ChildTimeoutError.
        """
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.write(json.dumps(order).encode() + b"\n")
                self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._line())
        if answer["ok"]:
            return answer
        if answer["outcome"] == BAD_TEXT:
            raise InvalidRequestError(answer["reason"])
        raise RunLost(answer["outcome"], answer["reason"])

    def _line(self) -> bytes:
        until = time.monotonic() + ANSWER_TIMEOUT_S
        while b"\n" not in self._pending:
            self._wanted()
            left = until - time.monotonic()
            if left <= 0:
                raise ChildTimeoutError
            if not select.select([self._replies], [], [], min(POLL_S, left))[0]:
                continue
            part = os.read(self._replies, 1 << 16)
            if not part:
                raise ChildDiedError(self._how_it_ended())
            self._pending += part
        line, _, self._pending = self._pending.partition(b"\n")
        return line

    def _how_it_ended(self) -> str:
        code = self._process.wait()
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        printed = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        last = next((line for line in reversed(printed) if line.strip()), "")
        return f"the training process ended with {how}" + (f": {last[:300]}" if last else "")

    def close(self) -> None:
        """End the process and what it started, and free the descriptors."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if self._process.stdin is not None:
            # closing flushes what a dead process did not read
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        os.close(self._replies)


@dataclass
class _Seat:
    """An arm at its turn: where its run stands, and how often its process died there."""

    arm: TrainedArm
    seed: int
    step: int = 0
    ended: bool = False
    furthest: int = 0
    deaths: int = 0
    """Since it last went further than ever before."""


class Training:
    """Carries out a plan; use as a context manager."""

    def __init__(
        self,
        plan: TrainingPlan,
        environments: Environments,
        device: Environment,
        gpu: int | None = None,
        progress: Progress = lambda *_: None,
        told: tuple[Recorder | None, Callable[[], None]] = (None, _wanted),
    ) -> None:
        """`told`: who keeps what happens, and a check that raises where nobody wants it more."""
        self.plan, self._environments, self._device = plan, environments, device
        self._gpu, self._progress = gpu, progress
        self._recorder, self._wanted = told
        self.processes: dict[str, TrainingProcess] = {}

    def __enter__(self) -> "Training":
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self.processes):
            self.processes.pop(name).close()

    def run(self) -> TrainingOutcome:
        """Train what has not ended yet.

        Raises InvalidRequestError for a text that cannot be used or a folder of other settings;
        WorkerError where the reference itself cannot be trained.
        """
        agree_on_settings(self.plan.out, self._shared({}))
        outcome = TrainingOutcome()
        for number, seed in enumerate(self.plan.seeds):
            waiting = []
            for arm in [arm for arm in self.plan.arms if arm.name not in self.plan.done]:
                record = read_result(run_folder(self.plan.out, arm.name, seed))
                if record is not None:
                    outcome.records[arm.name, seed] = record
                    if self._recorder is not None:
                        self._recorder.found(arm.name, run_folder(self.plan.out, arm.name, seed))
                    self._progress(arm.name, seed, self.plan.settings.steps, record.final_loss)
                elif arm.name not in outcome.lost:
                    waiting.append(_Seat(arm, seed))
            self._train(_rotated(waiting, number), outcome)
        return outcome

    def _train(self, seats: Sequence[_Seat], outcome: TrainingOutcome) -> None:
        """One seed: open all, take turns until all have ended, finish all."""
        seats = [seat for seat in seats if self._guarded(seat, self._open, outcome)]
        turn = 0
        while open_seats := [seat for seat in seats if not seat.ended]:
            turn += 1
            for seat in _rotated(open_seats, turn):
                if not self._guarded(seat, self._advance, outcome):
                    seats.remove(seat)
        for seat in seats:
            self._guarded(seat, lambda each: self._finish(each, outcome), outcome)

    def _guarded(self, seat: _Seat, act: Callable[[_Seat], None], outcome: TrainingOutcome) -> bool:
        """Do it, again after a death of the process; False where the arm is lost."""
        while True:
            try:
                act(seat)
            except RunLost as lost:
                self._give_up(seat, lost, outcome)
                return False
            except (ChildDiedError, ChildTimeoutError) as error:
                self._discard(seat.arm)
                seat.deaths += 1
                if seat.deaths >= MOST_DEATHS or isinstance(error, ChildTimeoutError):
                    self._give_up(seat, RunLost("failed", error.message), outcome)
                    return False
                if act != self._open and not self._guarded(seat, self._open, outcome):
                    return False
                continue
            if seat.step > seat.furthest:
                seat.furthest, seat.deaths = seat.step, 0
            return True

    def _give_up(self, seat: _Seat, lost: RunLost, outcome: TrainingOutcome) -> None:
        self._discard(seat.arm)
        if seat.arm == self.plan.arms[0]:
            raise WorkerError(f"the reference {seat.arm.name}, seed {seat.seed}: {lost.reason}")
        outcome.lost[seat.arm.name] = lost

    def _discard(self, arm: TrainedArm) -> None:
        process = self.processes.pop(arm.name, None)
        if process is not None:
            process.close()

    def _process(self, arm: TrainedArm) -> TrainingProcess:
        if arm.name not in self.processes:
            try:
                environment = self._environments.of(arm.contender)
            except UnsupportedHere as error:
                raise RunLost("unsupported", error.reason) from error
            except InstallError as error:
                raise RunLost("failed", error.message) from error
            log = arm_folder(self.plan.out, arm.name) / LOG
            # Triton's interpreter would take hours: without a GPU only plain torch is trained
            environment = replace(environment, interpreted=False)
            self.processes[arm.name] = TrainingProcess(environment, log, self._gpu, self._wanted)
        return self.processes[arm.name]

    def _open(self, seat: _Seat) -> None:
        folder = run_folder(self.plan.out, seat.arm.name, seat.seed)
        found = self._process(seat.arm).ask(
            {
                "do": "open",
                "settings": self.plan.settings.as_json(),
                "contender": seat.arm.contender.text,
                "arm": seat.arm.name,
                "reordered": seat.arm.reordered,
                "seed": seat.seed,
                "folder": str(folder),
            }
        )
        seat.step, seat.ended = int(found["step"]), bool(found["ended"])
        keep_settings(self.plan.out, self._shared(found))
        if self._recorder is not None:
            self._recorder.opened(seat.arm.name, seat.step, folder, found)
        self._progress(seat.arm.name, seat.seed, seat.step, None)

    def _shared(self, opened: Mapping[str, Any]) -> dict[str, Any]:
        """What every run of the folder must agree on."""
        text = {key: opened[key] for key in opened if key.startswith(("text_", "training_"))}
        return {
            **self.plan.settings.as_json(),
            **text,
            "device": self._device.device_name,
            "torch": self._device.facts.get("torch"),
        }

    def _advance(self, seat: _Seat) -> None:
        process = self._process(seat.arm)
        found = process.ask({"do": "advance", "to": seat.step + TURN_STEPS})
        seat.step, seat.ended = int(found["step"]), bool(found["ended"])
        if self._recorder is not None:
            steps = [StepRecord.from_json(each) for each in found["steps"]]
            self._recorder.advanced(seat.arm.name, steps)
        self._progress(seat.arm.name, seat.seed, seat.step, found["last"].get("loss"))

    def _finish(self, seat: _Seat, outcome: TrainingOutcome) -> None:
        found = self._process(seat.arm).ask({"do": "finish"})
        outcome.records[seat.arm.name, seat.seed] = RunRecord.from_json(found["record"])
        self._progress(
            seat.arm.name, seat.seed, self.plan.settings.steps, found["record"]["final_loss"]
        )


def _rotated(seats: Sequence[_Seat], by: int) -> list[_Seat]:
    """The same, another one first."""
    by = by % len(seats) if seats else 0
    return [*seats[by:], *seats[:by]]
