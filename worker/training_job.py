"""A job's training on this worker: one seed in turns, kept step by step, resumed at a checkpoint.

Checkpoints lie under the data directory, in training/JOB/seed-N, until the runs are stored. Who
takes over a seed and finds none there begins its runs anew, and the job's log says so.
"""

import math
import os
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lossbench.kernels.training.record import RunRecord, StepRecord, TrainingSettings
from lossbench.service.contract.errors import (
    InvalidRequestError,
    LotLostError,
    SetupError,
    WorkerError,
)
from lossbench.service.contract.job import JobRequest
from lossbench.service.contract.run import Environment, TrainingWork
from lossbench.service.contract.training import TrainingArm, TrainingSpec, arms_of
from lossbench.service.contract.words import Outcome
from lossbench.service.statistics.training_points import BLOCK, window_means
from lossbench.service.store.training_runs import (
    NewTrainingRun,
    Stretch,
    TrainingEnd,
    TrainingRuns,
)
from lossbench.service.store.work import LOG_BYTES, CaseTask, CellAnswer, OpenCell, Work

from .environments import Environments
from .training import RunLost, TrainedArm, Training, TrainingOutcome, TrainingPlan
from .training_files import (
    LOG,
    SETTINGS,
    arm_folder,
    read_steps,
    run_folder,
    take_folder,
)

STORE_S = 2.0
"""Between two writes of steps."""
KEPT_DAYS = 14
"""Checkpoints of seeds that nobody came back to."""
RECORD_COLUMNS = (
    "parameters",
    "tokens_per_s",
    "loss_share",
    "peak_bytes",
    "workspace_bytes",
    "nonfinite_steps",
    "validation_loss",
    "perplexity",
    "final_loss",
    "resumed",
)


@dataclass
class Tape:
    """A run under way: its row, and the steps of its last block, stored or not."""

    run_id: str
    cell: OpenCell
    folder: Path
    block: int
    rows: list[list[float]] = field(default_factory=list)
    waits: bool = True
    """Whether something is not stored yet."""


class Seed(NamedTuple):
    """What one task trains."""

    task: CaseTask
    spec: TrainingSpec
    seed: int
    settings: TrainingSettings
    cells: Mapping[str, OpenCell]
    """Open cells by the name of their arm."""
    arms: tuple[TrainingArm, ...]


class TrainingStore:
    """Where a worker's training is kept, and the log of its job."""

    def __init__(self, work: Work, runs: TrainingRuns, environment: Environment) -> None:
        self.work, self.runs, self.environment = work, runs, environment


class Recording:
    """Keeps the steps of all runs of a seed; writes them every few seconds."""

    def __init__(self, store: TrainingStore, seed: Seed, provenance: Callable[[str], Any]) -> None:
        self._store, self._seed, self._provenance = store, seed, provenance
        self.tapes: dict[str, Tape] = {}
        self._written = time.monotonic()

    def opened(self, arm: str, step: int, folder: Path, facts: Mapping[str, Any]) -> None:
        """A run begins or goes on; what its folder has and the store has not is stored."""
        names = [each.text for each in self._seed.arms]
        told = {key: facts[key] for key in facts if key.startswith(("text_", "training_"))}
        new = NewTrainingRun(
            position=names.index(arm),
            arm=self._seed.arms[names.index(arm)],
            seed=self._seed.seed,
            step=step,
            steps_total=self._seed.settings.steps,
            settings={
                **self._seed.settings.as_json(),
                **told,
                "provenance": self._provenance(arm),
            },
        )
        run_id, before = self._store.runs.begin(self._seed.task, new, self._store.environment)
        self._say(arm, step, before)
        block = min(before, step) // BLOCK
        made = [each for each in read_steps(folder) if block * BLOCK < each.step <= step]
        rows = [_row(each) for each in made]
        self.tapes[arm] = Tape(run_id, self._seed.cells[arm], folder, block, rows, bool(rows))

    def _say(self, arm: str, step: int, before: int) -> None:
        if before and not step:
            line = f"{arm}, seed {self._seed.seed}: there is no checkpoint here, it begins anew"
        elif before:
            line = f"{arm}, seed {self._seed.seed}: goes on at step {step} of its checkpoint"
        else:
            return
        self._store.work.note(self._seed.task, line)

    def advanced(self, arm: str, steps: Sequence[StepRecord]) -> None:
        """Steps were made; now and then all that is new is stored."""
        tape = self.tapes[arm]
        tape.rows += [_row(each) for each in steps]
        tape.waits = tape.waits or bool(steps)
        if time.monotonic() - self._written >= STORE_S:
            self.write()

    def found(self, arm: str, folder: Path) -> None:
        """A run had ended before this worker came to its seed."""
        self.opened(arm, len(read_steps(folder)), folder, {})

    def write(self) -> None:
        """Store what waits, and report how far the runs are."""
        waiting = [tape for tape in self.tapes.values() if tape.waits]
        stretches = [
            Stretch(tape.run_id, tape.block, np.asarray(tape.rows, dtype=np.float32))
            for tape in waiting
        ]
        if stretches:
            self._store.runs.store(self._seed.task, stretches)
        total = self._seed.settings.steps
        reached = {t.cell.id: (s.step, total) for t, s in zip(waiting, stretches, strict=True)}
        if reached:
            self._store.work.report_visits(self._seed.task, reached)
        for tape in waiting:
            whole = len(tape.rows) // BLOCK
            tape.block, tape.rows, tape.waits = (
                tape.block + whole,
                tape.rows[whole * BLOCK :],
                False,
            )
        self._written = time.monotonic()


def _row(step: StepRecord) -> list[float]:
    return [step.loss, step.gradient_norm, float(step.nonfinite), step.step_ms, step.loss_ms]


class Trainer:
    """Trains the seeds that this worker is given, one at a time."""

    def __init__(
        self,
        store: TrainingStore,
        environments: Environments,
        data_dir: Path,
        gpu: int | None,
    ) -> None:
        self._store, self._environments = store, environments
        self._folder, self._gpu = data_dir / "training", gpu
        self._stopping = threading.Event()

    def stop(self) -> None:
        """Leave the seed under way at once; its processes end with it."""
        self._stopping.set()

    def train(self, task: CaseTask, still_wanted: Callable[[], None]) -> list[CellAnswer]:
        """Train what is open of a seed; how each of its cells ended. Raises LotLostError."""

        def wanted() -> None:
            if self._stopping.is_set():
                raise LotLostError(f"lot {task.lot_id} is left: the worker stops")
            still_wanted()

        self._drop_old()
        seed = self._seed_of(task)
        out, lock = self._take(task, seed.seed)
        try:
            return self._trained(seed, out, wanted)
        finally:
            os.close(lock)

    def forget(self, task: CaseTask) -> None:
        """The runs of a seed are stored: its folder goes."""
        if isinstance(task.work, TrainingWork):
            job = self._folder / task.job_id
            for folder in job.glob(f"seed-{task.work.seed}*"):
                shutil.rmtree(folder, ignore_errors=True)
            if job.is_dir() and not any(job.iterdir()):
                job.rmdir()

    def _seed_of(self, task: CaseTask) -> Seed:
        if not isinstance(task.work, TrainingWork):
            raise TypeError(f"lot {task.lot_id} trains nothing")
        request = JobRequest.model_validate(task.request)
        spec = request.training or TrainingSpec()
        on_gpu = self._store.environment.device_type == "cuda"
        own = spec.settings("bfloat16" if on_gpu else "float32", len(os.sched_getaffinity(0)))
        return Seed(
            task=task,
            spec=spec,
            seed=task.work.seed,
            settings=TrainingSettings.from_json(own),
            cells={cell.contender: cell for cell in task.cells},
            arms=arms_of(list(request.contenders), spec.control),
        )

    def _take(self, task: CaseTask, seed: int) -> tuple[Path, int]:
        """The seed's folder and its lock; another one where a frozen process holds that."""
        out = self._folder / task.job_id / f"seed-{seed}"
        try:
            return out, take_folder(out)
        except SetupError:
            out = out.with_name(f"{out.name}-attempt-{task.attempt}")
            return out, take_folder(out)

    def _trained(self, seed: Seed, out: Path, wanted: Callable[[], None]) -> list[CellAnswer]:
        had_settings = (out / SETTINGS).exists()
        try:
            return self._train_in(seed, out, wanted)
        except InvalidRequestError as error:
            if not had_settings:
                return _all_failed(seed, error.message)
        line = f"seed {seed.seed}: its checkpoints are of another device or torch, it begins anew"
        self._store.work.note(seed.task, line)
        (out / SETTINGS).unlink()
        shutil.rmtree(out / "runs", ignore_errors=True)
        return self._train_in(seed, out, wanted)

    def _train_in(self, seed: Seed, out: Path, wanted: Callable[[], None]) -> list[CellAnswer]:
        arms = tuple(TrainedArm(each.contender, each.reordered) for each in seed.arms)
        done = frozenset(arm.name for arm in arms if arm.name not in seed.cells)
        plan = TrainingPlan(seed.settings, arms, (seed.seed,), out, done)
        by_name = {arm.name: arm for arm in arms}
        recording = Recording(
            self._store,
            seed,
            lambda name: dict(self._environments.of(by_name[name].contender).provenance),
        )
        training = Training(
            plan,
            self._environments,
            self._store.environment,
            self._gpu,
            told=(recording, wanted),
        )
        lost_all: WorkerError | None = None
        outcome = TrainingOutcome()
        with training:
            try:
                outcome = training.run()
            except LotLostError:
                raise
            except WorkerError as error:
                lost_all = error
        recording.write()
        return self._ended(seed, out, recording, _settled(seed, outcome, lost_all))

    def _ended(
        self,
        seed: Seed,
        out: Path,
        recording: Recording,
        settled: Mapping[str, "RunRecord | RunLost"],
    ) -> list[CellAnswer]:
        """Store how the runs ended; the answers of their cells."""
        ends, answers = [], []
        for arm, end in settled.items():
            tape, cell = recording.tapes.get(arm), seed.cells[arm]
            run_id = tape.run_id if tape is not None else None
            if isinstance(end, RunLost):
                log = _last_of(arm_folder(out, arm) / LOG)
                answers.append(CellAnswer(cell.id, Outcome(end.outcome), end.reason, None, log))
                if run_id is not None:
                    ends.append(TrainingEnd(run_id, end.outcome, end.reason, {}, None))
            elif run_id is not None:
                reason = f"diverged at step {end.steps}" if end.outcome == "diverged" else None
                losses = [each.loss for each in read_steps(run_folder(out, arm, seed.seed))]
                windows = window_means(losses, seed.settings.steps)
                numbers = {name: getattr(end, name) for name in RECORD_COLUMNS}
                ends.append(TrainingEnd(run_id, end.outcome, reason, numbers, windows))
                answer = CellAnswer(cell.id, Outcome.OK, reason, None, "", run_id)
                answers.append(answer)
        self._store.runs.end(seed.task, ends)
        return answers

    def _drop_old(self) -> None:
        """Drop checkpoints that nobody came back to."""
        least = time.time() - KEPT_DAYS * 86_400
        for folder in self._folder.glob("*/seed-*"):
            newest = max((each.stat().st_mtime for each in folder.rglob("*")), default=math.inf)
            if newest < least:
                shutil.rmtree(folder, ignore_errors=True)


def _settled(
    seed: Seed, outcome: TrainingOutcome, lost_all: WorkerError | None
) -> dict[str, RunRecord | RunLost]:
    """How each open arm ended, by name."""
    found: dict[str, RunRecord | RunLost] = {}
    for arm in seed.cells:
        record = outcome.records.get((arm, seed.seed))
        if record is not None:
            found[arm] = record
        elif arm in outcome.lost:
            found[arm] = outcome.lost[arm]
        else:
            why = lost_all.message if lost_all is not None else "it was not trained"
            found[arm] = RunLost(Outcome.FAILED.value, why)
    return found


def _all_failed(seed: Seed, reason: str) -> list[CellAnswer]:
    return [CellAnswer(cell.id, Outcome.FAILED, reason, None, "") for cell in seed.cells.values()]


def _last_of(log: Path) -> str:
    """The last part of what the contender's process printed."""
    if not log.exists():
        return ""
    return log.read_bytes()[-LOG_BYTES:].decode("utf-8", errors="replace")
