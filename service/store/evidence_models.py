"""Tables of evidence beside the runs: checks, comparisons, and what a device can tell apart."""

from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column

from ..contract.words import Pass, Verdict
from .base import Base, one_of


class CheckRow(Base):
    """One check of a contender on a device: counts as columns, the whole record read on demand."""

    __tablename__ = "checks"
    __table_args__ = (
        sa.CheckConstraint("device_type IN ('cpu', 'cuda')", name="device_type"),
        sa.CheckConstraint("ended_at >= started_at", name="time_order"),
        sa.Index("ix_checks_kernel_version_started_at", "kernel", "version", "started_at"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    kernel: Mapped[str]
    version: Mapped[str | None]
    contender: Mapped[str]
    params_text: Mapped[str]
    device_type: Mapped[str]
    device_name: Mapped[str]
    hardware_fingerprint: Mapped[str]
    software_fingerprint: Mapped[str]
    interpreted: Mapped[bool]
    started_at: Mapped[datetime]
    ended_at: Mapped[datetime]
    counts: Mapped[dict[str, Any]]
    record: Mapped[dict[str, Any]] = mapped_column(deferred=True)


class ComparisonRow(Base):
    """Two contenders measured in turns on one case until a verdict; `ratio` is candidate / base."""

    __tablename__ = "comparisons"
    __table_args__ = (
        one_of("verdict", Verdict, "verdict"),
        one_of("pass", Pass, "pass"),
        sa.CheckConstraint("processes >= 1", name="processes"),
        sa.Index("ix_comparisons_base_candidate_case_text", "base", "candidate", "case_text"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    job_id: Mapped[str | None] = mapped_column(sa.ForeignKey("jobs.id"), index=True)
    base: Mapped[str]
    candidate: Mapped[str]
    case_text: Mapped[str]
    pass_: Mapped[str] = mapped_column("pass")
    verdict: Mapped[str]
    reason: Mapped[str | None]
    ratio: Mapped[float | None]
    ratio_low: Mapped[float | None]
    ratio_high: Mapped[float | None]
    detectable_effect: Mapped[float | None]
    processes: Mapped[int]
    looks: Mapped[int]
    log_ratios: Mapped[list[Any]]
    base_run_id: Mapped[str | None] = mapped_column(sa.ForeignKey("runs.id"))
    candidate_run_id: Mapped[str | None] = mapped_column(sa.ForeignKey("runs.id"))
    environment_id: Mapped[str] = mapped_column(sa.ForeignKey("environments.id"))
    protocol_version: Mapped[int]
    measured_at: Mapped[datetime]


class DeviceProofRow(Base):
    """What a device showed that it can tell apart: at a start, by `doctor --measure`, or a pool."""

    __tablename__ = "device_proofs"
    __table_args__ = (sa.CheckConstraint("kind IN ('self_test', 'doctor', 'pool')", name="kind"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    kind: Mapped[str]
    device_name: Mapped[str]
    device_uuid_hash: Mapped[str]
    environment_id: Mapped[str] = mapped_column(sa.ForeignKey("environments.id"))
    passed: Mapped[bool]
    measured_at: Mapped[datetime]
    record: Mapped[dict[str, Any]]
