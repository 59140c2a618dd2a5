"""The tables of alerts: what changed, its cases, and which jobs were looked through for changes."""

from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column, relationship

from ..contract.alert import AlertDirection, AlertKind, AlertMetric, AlertState
from ..contract.words import Pass
from .base import AutoId, Base, one_of


class AlertRow(Base):
    """One alert. `key` says what it is about, so that it comes once."""

    __tablename__ = "alerts"
    __table_args__ = (
        one_of("kind", AlertKind, "kind"),
        one_of("state", AlertState, "state"),
        sa.UniqueConstraint("key"),
        sa.CheckConstraint("cases_total >= 0", name="cases_total"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    key: Mapped[str]
    kind: Mapped[str]
    state: Mapped[str]
    title: Mapped[str]
    kernel: Mapped[str | None]
    before_version: Mapped[str | None]
    after_version: Mapped[str | None]
    worse: Mapped[list[Any]]
    better: Mapped[list[Any]]
    cases_total: Mapped[int]
    job_ids: Mapped[list[Any]]
    owner: Mapped[str | None]
    note: Mapped[str | None]
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime]
    explain: Mapped[dict[str, Any]] = mapped_column(deferred=True)

    cases: Mapped[list["AlertCaseRow"]] = relationship(
        order_by="AlertCaseRow.id", cascade="all, delete-orphan", back_populates="alert"
    )


class AlertCaseRow(Base):
    """A metric of one contender on one case, pass and device that changed."""

    __tablename__ = "alert_cases"
    __table_args__ = (
        one_of("metric", AlertMetric, "metric"),
        one_of("direction", AlertDirection, "direction"),
        one_of("pass", Pass, "pass"),
        # a name of its own: PostgreSQL cuts names at 63 letters
        sa.UniqueConstraint(
            "alert_id",
            "metric",
            "params",
            "case_text",
            "pass",
            "device_name",
            name="uq_alert_cases_place",
        ),
        # cases that an invalidated result takes away
        sa.Index("ix_alert_cases_before_result_id", "before_result_id"),
        sa.Index("ix_alert_cases_after_result_id", "after_result_id"),
    )

    id: Mapped[int] = mapped_column(AutoId, primary_key=True, autoincrement=True)
    alert_id: Mapped[str] = mapped_column(sa.ForeignKey("alerts.id"))
    metric: Mapped[str]
    direction: Mapped[str]
    params: Mapped[str]
    case_text: Mapped[str]
    pass_: Mapped[str] = mapped_column("pass")
    device_name: Mapped[str]
    before_version: Mapped[str]
    after_version: Mapped[str]
    before: Mapped[str]
    after: Mapped[str]
    ratio: Mapped[float | None]
    ratio_low: Mapped[float | None]
    ratio_high: Mapped[float | None]
    p_value: Mapped[float | None]
    adjusted_p_value: Mapped[float | None]
    before_result_id: Mapped[str | None] = mapped_column(sa.ForeignKey("runs.id"))
    after_result_id: Mapped[str | None] = mapped_column(sa.ForeignKey("runs.id"))
    environments_differ: Mapped[bool]
    confirmed: Mapped[bool | None]
    comparison_id: Mapped[str | None] = mapped_column(sa.ForeignKey("comparisons.id"))

    alert: Mapped[AlertRow] = relationship(back_populates="cases")


class AlertScanRow(Base):
    """A job whose results were looked through for changes."""

    __tablename__ = "alert_scans"

    job_id: Mapped[str] = mapped_column(sa.ForeignKey("jobs.id"), primary_key=True)
    scanned_at: Mapped[datetime]
