"""Every table. Enumerations and ranges are checked by the database, not only in Python.

DBOS keeps its own tables in the same database (schema `dbos` on PostgreSQL, plain names on SQLite);
none of ours may carry one of their names.
"""

from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column, relationship

from ..contract.words import CellState, Grade, JobKind, JobState, LotState, Outcome, Pass
from .alert_models import AlertCaseRow, AlertRow, AlertScanRow
from .base import AutoId, Base, UtcDateTime, one_of
from .evidence_models import CheckRow, ComparisonRow, DeviceProofRow
from .import_models import ImportedRow
from .permalink_models import PermalinkRow
from .tally_models import RunTallyRow
from .training_models import TrainingPointsRow, TrainingRunRow

__all__ = [
    "AlertCaseRow",
    "AlertRow",
    "AlertScanRow",
    "Base",
    "CellLogRow",
    "CellRow",
    "CheckRow",
    "ComparisonRow",
    "DeviceProofRow",
    "EnvironmentRow",
    "EventRow",
    "IdempotencyRow",
    "ImportedRow",
    "JobRow",
    "LotRow",
    "OutputErrorRow",
    "PermalinkRow",
    "RunRow",
    "RunTallyRow",
    "SampleRow",
    "TokenRow",
    "TrainingPointsRow",
    "TrainingRunRow",
    "UtcDateTime",
    "WorkerRow",
]


class JobRow(Base):
    """A request for cells."""

    __tablename__ = "jobs"
    __table_args__ = (
        one_of("kind", JobKind, "kind"),
        one_of("state", JobState, "state"),
        sa.CheckConstraint("priority BETWEEN 1 AND 9", name="priority"),
        sa.CheckConstraint("cells_total >= 0", name="cells_total"),
        sa.Index("ix_jobs_state_created_at", "state", "created_at"),
        # what a token's jobs of the last day were planned with
        sa.Index("ix_jobs_token_id_created_at", "token_id", "created_at"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    kind: Mapped[str]
    state: Mapped[str]
    reason: Mapped[str | None]
    request: Mapped[dict[str, Any]]
    labels: Mapped[dict[str, Any]]
    accelerator: Mapped[str]
    priority: Mapped[int]
    processes: Mapped[int]
    timeout_s: Mapped[float]
    deadline_at: Mapped[datetime | None]
    cells_total: Mapped[int]
    estimated_s: Mapped[float]
    token_id: Mapped[str | None] = mapped_column(sa.ForeignKey("tokens.id"))
    created_at: Mapped[datetime]
    started_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]

    lots: Mapped[list["LotRow"]] = relationship(back_populates="job", order_by="LotRow.position")


class LotRow(Base):
    """Part of a job that one worker takes at a time. `attempt` fences saves of older attempts."""

    __tablename__ = "lots"
    __table_args__ = (
        one_of("state", LotState, "state"),
        sa.UniqueConstraint("job_id", "position"),
        sa.CheckConstraint("attempt >= 1", name="attempt"),
        sa.Index("ix_lots_state_worker_id", "state", "worker_id"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    job_id: Mapped[str] = mapped_column(sa.ForeignKey("jobs.id"))
    position: Mapped[int]
    queue: Mapped[str]
    state: Mapped[str]
    attempt: Mapped[int] = mapped_column(default=1)
    worker_id: Mapped[str | None]
    cases: Mapped[list[Any]]
    estimated_s: Mapped[float]
    turn: Mapped[int] = mapped_column(default=0, server_default="0")
    """Place among lots of equal priority in the same queue; `turns.py` says which."""
    claimed_at: Mapped[datetime | None]

    job: Mapped[JobRow] = relationship(back_populates="lots")


class CellRow(Base):
    """One cell of one job: its place, its progress, and the run that answers it."""

    __tablename__ = "job_cells"
    __table_args__ = (
        one_of("state", CellState, "state"),
        one_of("outcome", Outcome, "outcome"),
        one_of("pass", Pass, "pass"),
        sa.UniqueConstraint("job_id", "position"),
        sa.CheckConstraint("(state = 'done') = (outcome IS NOT NULL)", name="done_has_outcome"),
        sa.CheckConstraint(
            "outcome <> 'ok' OR run_id IS NOT NULL OR training_run_id IS NOT NULL",
            name="ok_has_run",
        ),
        sa.CheckConstraint("coalesce(outcome, 'ok') = 'ok' OR reason IS NOT NULL", name="reason"),
        sa.Index("ix_job_cells_lot_id_case_index", "lot_id", "case_index"),
        # a failed cell has no result: claims find it by its key
        sa.Index(
            "ix_job_cells_failed",
            "cell_key",
            "id",
            sqlite_where=sa.text("outcome = 'failed'"),
            postgresql_where=sa.text("outcome = 'failed'"),
        ),
        # counts of a job's cells, from the index alone
        sa.Index("ix_job_cells_job_id_state_outcome", "job_id", "state", "outcome"),
    )

    id: Mapped[int] = mapped_column(AutoId, primary_key=True, autoincrement=True)
    job_id: Mapped[str] = mapped_column(sa.ForeignKey("jobs.id"))
    lot_id: Mapped[str | None] = mapped_column(sa.ForeignKey("lots.id"))
    position: Mapped[int]
    case_index: Mapped[int]
    contender: Mapped[str]
    case_text: Mapped[str]
    pass_: Mapped[str] = mapped_column("pass")
    cell_key: Mapped[str]
    state: Mapped[str]
    attempt: Mapped[int] = mapped_column(default=1)
    deaths: Mapped[int] = mapped_column(default=0)
    visits_done: Mapped[int] = mapped_column(default=0)
    visits_total: Mapped[int] = mapped_column(default=0)
    outcome: Mapped[str | None]
    reason: Mapped[str | None]
    reused: Mapped[bool] = mapped_column(default=False)
    run_id: Mapped[str | None] = mapped_column(sa.ForeignKey("runs.id"), index=True)
    training_run_id: Mapped[str | None]
    started_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]

    run: Mapped["RunRow | None"] = relationship()


class CellLogRow(Base):
    """The last part of what a cell's measuring process printed."""

    __tablename__ = "cell_logs"

    cell_id: Mapped[int] = mapped_column(AutoId, sa.ForeignKey("job_cells.id"), primary_key=True)
    text: Mapped[str]


class EnvironmentRow(Base):
    """One machine with one software stack."""

    __tablename__ = "environments"
    __table_args__ = (sa.CheckConstraint("device_type IN ('cpu', 'cuda')", name="device_type"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    device_type: Mapped[str]
    device_name: Mapped[str] = mapped_column(index=True)
    hardware_fingerprint: Mapped[str]
    software_fingerprint: Mapped[str]
    memory_bytes: Mapped[int]
    facts: Mapped[dict[str, Any]]
    first_seen_at: Mapped[datetime]


class RunRow(Base):
    """One result. Summaries are columns, so that pages never unpack samples."""

    __tablename__ = "runs"
    __table_args__ = (
        one_of("outcome", Outcome, "outcome"),
        one_of("pass", Pass, "pass"),
        one_of("grade", Grade, "grade"),
        sa.CheckConstraint("outcome = 'ok' OR reason IS NOT NULL", name="reason"),
        sa.CheckConstraint("latency_ms IS NULL OR latency_ms > 0", name="latency_ms"),
        sa.CheckConstraint("processes >= 1", name="processes"),
        sa.CheckConstraint("ended_at >= started_at", name="time_order"),
        sa.CheckConstraint("workspace_bytes IS NULL OR workspace_bytes >= 0", name="workspace"),
        sa.Index("ix_runs_cell_key_environment_id", "cell_key", "environment_id"),
        # lists: newest first under one filter each; `result_ids.py` says which leads
        sa.Index("ix_runs_kernel_id", "kernel", "id"),
        sa.Index("ix_runs_kernel_version_id", "kernel", "version", "id"),
        sa.Index("ix_runs_case_text_id", "case_text", "id"),
        sa.Index("ix_runs_environment_id_id", "environment_id", "id"),
        sa.Index("ix_runs_outcome_id", "outcome", "id"),
        sa.Index("ix_runs_started_at_id", "started_at", "id"),
        sa.Index(
            "ix_runs_imported_id",
            "id",
            sqlite_where=sa.text("imported IS 1"),
            postgresql_where=sa.text("imported IS true"),
        ),
        # filters and orders of lists
        *(
            sa.Index(f"ix_runs_{name}_id", name, "id")
            for name in (
                "latency_ms",
                "workspace_bytes",
                "ratio_to_baseline",
                "floor_ratio",
                "tokens_per_s",
                "tokens",
                "hidden",
                "vocab",
            )
        ),
        # the newest result of each case of a contender, from the index alone
        sa.Index(
            "ix_runs_newest",
            "kernel",
            "params",
            "case_text",
            "pass",
            "environment_id",
            "version",
            "imported",
            "invalidated_at",
            "id",
        ),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    cell_key: Mapped[str]
    contender: Mapped[str]
    kernel: Mapped[str]
    version: Mapped[str | None]
    params: Mapped[str]
    case_text: Mapped[str]
    tokens: Mapped[int]
    hidden: Mapped[int]
    vocab: Mapped[int]
    dtype: Mapped[str]
    recipe: Mapped[str]
    pass_: Mapped[str] = mapped_column("pass")
    outcome: Mapped[str]
    reason: Mapped[str | None]
    baseline: Mapped[str]
    environment_id: Mapped[str] = mapped_column(sa.ForeignKey("environments.id"))
    worker_id: Mapped[str]
    processes: Mapped[int]
    seed: Mapped[int]
    protocol_version: Mapped[int]
    latency_ms: Mapped[float | None]
    latency_low_ms: Mapped[float | None]
    latency_high_ms: Mapped[float | None]
    samples: Mapped[int | None]
    baseline_ms: Mapped[float | None]
    floor_ms: Mapped[float | None]
    ratio_to_baseline: Mapped[float | None]
    ratio_low: Mapped[float | None]
    ratio_high: Mapped[float | None]
    floor_ratio: Mapped[float | None]
    tokens_per_s: Mapped[float | None]
    compile_s: Mapped[float | None]
    peak_forward_bytes: Mapped[int | None]
    held_bytes: Mapped[int | None]
    peak_backward_bytes: Mapped[int | None]
    outputs_bytes: Mapped[int | None]
    workspace_bytes: Mapped[int | None]
    grade: Mapped[str | None]
    flags: Mapped[list[Any]]
    record: Mapped[dict[str, Any]]
    imported: Mapped[bool] = mapped_column(default=False)
    invalidated_at: Mapped[datetime | None]
    invalid_reason: Mapped[str | None]
    started_at: Mapped[datetime]
    ended_at: Mapped[datetime]

    environment: Mapped[EnvironmentRow] = relationship()
    output_errors: Mapped[list["OutputErrorRow"]] = relationship(order_by="OutputErrorRow.output")


class OutputErrorRow(Base):
    """Error of one output of a run."""

    __tablename__ = "output_errors"
    __table_args__ = (sa.CheckConstraint("output IN ('loss', 'dx', 'dw', 'db')", name="output"),)

    run_id: Mapped[str] = mapped_column(sa.ForeignKey("runs.id"), primary_key=True)
    output: Mapped[str] = mapped_column(primary_key=True)
    relative_l2: Mapped[float | None]
    ratio: Mapped[float | None]
    max_abs: Mapped[float | None]
    detail: Mapped[dict[str, Any]]


class SampleRow(Base):
    """Raw samples of one arm in one process: float32 little-endian milliseconds, zlib."""

    __tablename__ = "samples"
    __table_args__ = (
        sa.CheckConstraint("arm IN ('contender', 'baseline', 'floor')", name="arm"),
        sa.CheckConstraint("n >= 0", name="n"),
    )

    run_id: Mapped[str] = mapped_column(sa.ForeignKey("runs.id"), primary_key=True)
    arm: Mapped[str] = mapped_column(primary_key=True)
    process: Mapped[int] = mapped_column(primary_key=True)
    n: Mapped[int]
    visit_sizes: Mapped[list[Any]]
    latency_ms: Mapped[bytes] = mapped_column(sa.LargeBinary)


class WorkerRow(Base):
    """A worker process and its device. `beat` only ever grows while the worker lives."""

    __tablename__ = "workers"
    __table_args__ = (
        sa.CheckConstraint("state IN ('idle', 'busy', 'unhealthy', 'gone')", name="state"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    queues: Mapped[list[Any]]
    state: Mapped[str]
    note: Mapped[str | None]
    beat: Mapped[int]
    beat_at: Mapped[datetime]
    started_at: Mapped[datetime]
    lot_id: Mapped[str | None]
    environment_id: Mapped[str | None] = mapped_column(sa.ForeignKey("environments.id"))
    vitals: Mapped[dict[str, Any]]
    kernels: Mapped[dict[str, Any] | None]
    """Catalogue rows, by name, of what it offers beyond the shipped catalogue."""

    environment: Mapped[EnvironmentRow | None] = relationship()


class EventRow(Base):
    """What happened to a job, in order; server-sent events resume from `id`."""

    __tablename__ = "events"
    __table_args__ = (sa.Index("ix_events_job_id_id", "job_id", "id"),)

    id: Mapped[int] = mapped_column(AutoId, primary_key=True, autoincrement=True)
    job_id: Mapped[str] = mapped_column(sa.ForeignKey("jobs.id"))
    kind: Mapped[str]
    data: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]


class TokenRow(Base):
    """A token: stored hashed, shown once."""

    __tablename__ = "tokens"

    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    prefix: Mapped[str]
    secret_hash: Mapped[str] = mapped_column(unique=True)
    scopes: Mapped[list[Any]]
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None]


class IdempotencyRow(Base):
    """A stored answer to a POST, scoped to the token that sent it."""

    __tablename__ = "idempotency_keys"

    owner: Mapped[str] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    body_hash: Mapped[str]
    status: Mapped[int | None]
    answer: Mapped[dict[str, Any] | None]
    created_at: Mapped[datetime]
