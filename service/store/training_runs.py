"""What a worker stores of a training while it runs: every write is fenced by its lot."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray
from sqlalchemy.orm import Session

from ..contract.ids import new_id
from ..contract.run import Environment
from ..contract.training import TrainingArm
from ..statistics.training_points import BLOCK, pack, summary_of
from .database import Database
from .events import now
from .persistence import persistently
from .run_rows import finite, finite_json, insert_environment
from .tallies import insert_of
from .training_models import TrainingPointsRow, TrainingRunRow
from .work import CaseTask, Work

METRICS = ("loss", "gradient_norm", "nonfinite", "step_ms", "loss_ms")
"""Of a step, in the order of the columns of the rows that are stored."""

Rows = NDArray[np.float32]
"""(steps, metrics)"""


class NewTrainingRun(NamedTuple):
    """A run that begins or goes on: what is trained, where, and from which step."""

    position: int
    arm: TrainingArm
    seed: int
    step: int
    steps_total: int
    settings: Mapping[str, Any]


class Stretch(NamedTuple):
    """Steps of a run to store: whole blocks, the last may be short. `step` is the last one."""

    run_id: str
    block: int
    rows: Rows

    @property
    def step(self) -> int:
        """The last step, from 1."""
        return self.block * BLOCK + len(self.rows)


class TrainingEnd(NamedTuple):
    """How a run ended: an outcome, a reason where it is not `ok`, and its numbers by column."""

    run_id: str
    outcome: str
    reason: str | None
    numbers: Mapping[str, Any]
    windows: Sequence[float] | None


class TrainingRuns:
    """The worker's writes; while the database is away they wait for it. All raise LotLostError."""

    def __init__(self, database: Database, work: Work, worker_id: str) -> None:
        self._database, self._work, self._worker_id = database, work, worker_id

    def begin(
        self, task: CaseTask, run: NewTrainingRun, environment: Environment
    ) -> tuple[str, int]:
        """Begin a run, or go on with it at a step; its id, and the step that was stored before.

        Stored steps behind the block of `run.step` are dropped: they are trained again.
        """
        return persistently(lambda _: self._begin(task, run, environment), "begin of a training")

    def _begin(
        self, task: CaseTask, run: NewTrainingRun, environment: Environment
    ) -> tuple[str, int]:
        with self._database.transaction() as session:
            self._work.require_held(session, task)
            place = insert_environment(session, environment)
            row = _find(session, task.job_id, run)
            before = 0 if row is None else row.steps_done
            if row is None:
                row = TrainingRunRow(id=new_id("trn"), job_id=task.job_id, started_at=now())
                session.add(row)
            row.position, row.contender, row.seed = run.position, run.arm.text, run.seed
            row.kernel, row.reordered = run.arm.contender.kernel, run.arm.reordered
            row.state, row.outcome, row.reason, row.ended_at = "running", None, None, None
            row.steps_done, row.steps_total, row.resumed = run.step, run.steps_total, run.step
            row.settings = finite_json(dict(run.settings))
            row.environment_id, row.worker_id, row.updated_at = place, self._worker_id, now()
            session.flush()
            session.execute(
                sa.delete(TrainingPointsRow).where(
                    TrainingPointsRow.run_id == row.id,
                    TrainingPointsRow.block >= math.ceil(run.step / BLOCK),
                )
            )
            return row.id, before

    def store(self, task: CaseTask, stretches: Sequence[Stretch]) -> None:
        """Store steps; blocks that are there already are replaced."""
        persistently(lambda _: self._store(task, stretches), "steps of a training")

    def _store(self, task: CaseTask, stretches: Sequence[Stretch]) -> None:
        with self._database.transaction() as session:
            self._work.require_held(session, task)
            for stretch in stretches:
                for offset in range(0, len(stretch.rows), BLOCK):
                    part = stretch.rows[offset : offset + BLOCK]
                    put_block(session, stretch.run_id, stretch.block + offset // BLOCK, part)
                session.execute(
                    sa.update(TrainingRunRow)
                    .where(TrainingRunRow.id == stretch.run_id)
                    .values(steps_done=stretch.step, updated_at=now())
                )

    def end(self, task: CaseTask, ends: Sequence[TrainingEnd]) -> None:
        """Store how runs ended."""
        persistently(lambda _: self._end(task, ends), "end of a training")

    def _end(self, task: CaseTask, ends: Sequence[TrainingEnd]) -> None:
        with self._database.transaction() as session:
            self._work.require_held(session, task)
            for end in ends:
                row = session.get_one(TrainingRunRow, end.run_id)
                row.state, row.outcome, row.reason = "done", end.outcome, end.reason
                row.ended_at = row.updated_at = now()
                for name, value in end.numbers.items():
                    setattr(row, name, finite(value) if isinstance(value, float) else value)
                row.windows = None if end.windows is None else finite_json(list(end.windows))


def _find(session: Session, job_id: str, run: NewTrainingRun) -> TrainingRunRow | None:
    return session.scalar(
        sa.select(TrainingRunRow).where(
            TrainingRunRow.job_id == job_id,
            TrainingRunRow.position == run.position,
            TrainingRunRow.seed == run.seed,
        )
    )


def put_block(session: Session, run_id: str, block: int, rows: Rows) -> None:
    """One block of every metric, in place of what is there."""
    insert = insert_of(session)
    values = [
        {
            "run_id": run_id,
            "metric": metric,
            "block": block,
            "count": len(rows),
            "data": pack(rows[:, column]),
            "summary": summary_of(rows[:, column]),
        }
        for column, metric in enumerate(METRICS)
    ]
    put = insert(TrainingPointsRow).values(values)
    kept = {name: put.excluded[name] for name in ("count", "data", "summary")}
    session.execute(
        put.on_conflict_do_update(index_elements=["run_id", "metric", "block"], set_=kept)
    )
