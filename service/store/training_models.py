"""Tables of trainings: a row for each contender and seed, and its steps in packed blocks."""

from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column

from .base import Base


class TrainingRunRow(Base):
    """One contender trained under one seed, from its first step on.

    `outcome` is that of the cell, or `diverged`. `resumed` is the step of the last checkpoint that
    it went on from. `windows` holds the mean loss of each twentieth of the steps, once it ended.
    """

    __tablename__ = "training_runs"
    __table_args__ = (
        sa.CheckConstraint("state IN ('running', 'done')", name="state"),
        sa.CheckConstraint("(state = 'done') = (outcome IS NOT NULL)", name="done_has_outcome"),
        sa.CheckConstraint("steps_done >= 0 AND steps_done <= steps_total", name="steps_done"),
        sa.UniqueConstraint("job_id", "position", "seed"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    job_id: Mapped[str] = mapped_column(sa.ForeignKey("jobs.id"))
    position: Mapped[int]
    """Of the contender: 0 is the reference."""
    contender: Mapped[str]
    kernel: Mapped[str]
    reordered: Mapped[bool]
    seed: Mapped[int]
    state: Mapped[str]
    outcome: Mapped[str | None]
    reason: Mapped[str | None]
    steps_done: Mapped[int]
    steps_total: Mapped[int]
    resumed: Mapped[int]
    parameters: Mapped[int | None]
    tokens_per_s: Mapped[float | None]
    loss_share: Mapped[float | None]
    peak_bytes: Mapped[int | None]
    workspace_bytes: Mapped[int | None]
    nonfinite_steps: Mapped[int | None]
    validation_loss: Mapped[float | None]
    perplexity: Mapped[float | None]
    final_loss: Mapped[float | None]
    windows: Mapped[list[Any] | None]
    settings: Mapped[dict[str, Any]]
    environment_id: Mapped[str] = mapped_column(sa.ForeignKey("environments.id"))
    worker_id: Mapped[str]
    started_at: Mapped[datetime]
    updated_at: Mapped[datetime]
    ended_at: Mapped[datetime | None]


class TrainingPointsRow(Base):
    """One metric of up to 10,000 steps of a run; `training_points.py` packs and reads them."""

    __tablename__ = "training_points"
    __table_args__ = (sa.CheckConstraint("count >= 1", name="count"),)

    run_id: Mapped[str] = mapped_column(sa.ForeignKey("training_runs.id"), primary_key=True)
    metric: Mapped[str] = mapped_column(primary_key=True)
    block: Mapped[int] = mapped_column(primary_key=True)
    count: Mapped[int]
    data: Mapped[bytes] = mapped_column(sa.LargeBinary)
    summary: Mapped[bytes] = mapped_column(sa.LargeBinary)
