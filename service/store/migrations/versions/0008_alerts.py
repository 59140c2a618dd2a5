"""Alerts: changes between versions, their cases, and jobs looked through"""

import sqlalchemy as sa
from alembic import op

from lossbench.service.store.base import UtcDateTime

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    _make_alerts()
    _make_cases()
    op.create_table(
        "alert_scans",
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("scanned_at", UtcDateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_alert_scans_job_id"),
        sa.PrimaryKeyConstraint("job_id", name="pk_alert_scans"),
    )
    # what was measured before is no news
    op.execute(
        "INSERT INTO alert_scans (job_id, scanned_at) SELECT id, CURRENT_TIMESTAMP FROM jobs "
        "WHERE state IN ('done', 'cancelled')"
    )


def _make_alerts() -> None:
    texts = {"id": False, "key": False, "kind": False, "state": False, "title": False}
    texts |= dict.fromkeys(("kernel", "before_version", "after_version", "owner", "note"), True)
    op.create_table(
        "alerts",
        *(sa.Column(name, sa.Text(), nullable=empty) for name, empty in texts.items()),
        *(
            sa.Column(name, sa.JSON(), nullable=False)
            for name in ("worse", "better", "job_ids", "explain")
        ),
        sa.Column("cases_total", sa.BigInteger(), nullable=False),
        *(
            sa.Column(name, UtcDateTime(timezone=True), nullable=False)
            for name in ("created_at", "updated_at")
        ),
        sa.CheckConstraint(
            "kind IN ('change', 'environment', 'baseline', 'same_code', 'silent', 'stuck_queue')",
            name=op.f("ck_alerts_kind"),
        ),
        sa.CheckConstraint(
            "state IN ('candidate', 'confirmed', 'dismissed', 'fixed')",
            name=op.f("ck_alerts_state"),
        ),
        sa.CheckConstraint("cases_total >= 0", name=op.f("ck_alerts_cases_total")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_alerts")),
        sa.UniqueConstraint("key", name=op.f("uq_alerts_key")),
    )


def _make_cases() -> None:
    texts: tuple[str, ...] = (
        "alert_id",
        "metric",
        "direction",
        "params",
        "case_text",
        "pass",
        "device_name",
    )
    texts += ("before_version", "after_version", "before", "after")
    numbers = ("ratio", "ratio_low", "ratio_high", "p_value", "adjusted_p_value")
    tables = {
        "alert_id": "alerts",
        "before_result_id": "runs",
        "after_result_id": "runs",
        "comparison_id": "comparisons",
    }
    number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "alert_cases",
        sa.Column("id", number, autoincrement=True, nullable=False),
        *(sa.Column(name, sa.Text(), nullable=False) for name in texts),
        *(sa.Column(name, sa.Double(), nullable=True) for name in numbers),
        *(sa.Column(name, sa.Text(), nullable=True) for name in tables if name != "alert_id"),
        sa.Column("environments_differ", sa.Boolean(), nullable=False),
        sa.Column("confirmed", sa.Boolean(), nullable=True),
        sa.CheckConstraint(
            "direction IN ('worse', 'better')", name=op.f("ck_alert_cases_direction")
        ),
        sa.CheckConstraint(
            "metric IN ('time', 'memory', 'error')", name=op.f("ck_alert_cases_metric")
        ),
        sa.CheckConstraint(
            "pass IN ('forward', 'backward', 'forward_backward')", name=op.f("ck_alert_cases_pass")
        ),
        *(
            sa.ForeignKeyConstraint([name], [f"{table}.id"], name=op.f(f"fk_alert_cases_{name}"))
            for name, table in tables.items()
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_alert_cases")),
        sa.UniqueConstraint(
            "alert_id", "metric", "params", "case_text", "pass", "device_name",
            name=op.f("uq_alert_cases_place"),
        ),
    )  # fmt: skip
    for name in ("after_result_id", "before_result_id"):
        op.create_index(f"ix_alert_cases_{name}", "alert_cases", [name])


def downgrade() -> None:
    """Take back."""
    for name in ("before_result_id", "after_result_id"):
        op.drop_index(f"ix_alert_cases_{name}", "alert_cases")
    for table in ("alert_cases", "alert_scans", "alerts"):
        op.drop_table(table)
