"""Training runs, their steps, and cells that one of them answers"""

import sqlalchemy as sa
from alembic import op

from lossbench.service.store.base import UtcDateTime

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

BEFORE = "outcome <> 'ok' OR run_id IS NOT NULL"
AFTER = f"{BEFORE} OR training_run_id IS NOT NULL"


def upgrade() -> None:
    """Apply."""
    _make_runs()
    op.create_table(
        "training_points",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("metric", sa.Text(), nullable=False),
        sa.Column("block", sa.BigInteger(), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.Column("summary", sa.LargeBinary(), nullable=False),
        sa.CheckConstraint("count >= 1", name=op.f("ck_training_points_count")),
        sa.ForeignKeyConstraint(
            ["run_id"], ["training_runs.id"], name=op.f("fk_training_points_run_id")
        ),
        sa.PrimaryKeyConstraint("run_id", "metric", "block", name=op.f("pk_training_points")),
    )
    # without a foreign key: SQLite could not take such a column away again
    op.execute("ALTER TABLE job_cells ADD COLUMN training_run_id TEXT")
    _swap_check(BEFORE, AFTER)


def _make_runs() -> None:
    integers = {"position": False, "seed": False, "steps_done": False, "steps_total": False}
    integers |= {"resumed": False, "parameters": True, "peak_bytes": True}
    integers |= {"workspace_bytes": True, "nonfinite_steps": True}
    numbers = ("tokens_per_s", "loss_share", "validation_loss", "perplexity", "final_loss")
    texts = {"id": False, "job_id": False, "contender": False, "kernel": False, "state": False}
    texts |= {"outcome": True, "reason": True, "environment_id": False, "worker_id": False}
    moments = {"started_at": False, "updated_at": False, "ended_at": True}
    op.create_table(
        "training_runs",
        *(sa.Column(name, sa.Text(), nullable=empty) for name, empty in texts.items()),
        *(sa.Column(name, sa.BigInteger(), nullable=empty) for name, empty in integers.items()),
        *(sa.Column(name, sa.Double(), nullable=True) for name in numbers),
        sa.Column("reordered", sa.Boolean(), nullable=False),
        sa.Column("windows", sa.JSON(), nullable=True),
        sa.Column("settings", sa.JSON(), nullable=False),
        *(
            sa.Column(name, UtcDateTime(timezone=True), nullable=empty)
            for name, empty in moments.items()
        ),
        sa.CheckConstraint("state IN ('running', 'done')", name=op.f("ck_training_runs_state")),
        sa.CheckConstraint(
            "(state = 'done') = (outcome IS NOT NULL)",
            name=op.f("ck_training_runs_done_has_outcome"),
        ),
        sa.CheckConstraint(
            "steps_done >= 0 AND steps_done <= steps_total",
            name=op.f("ck_training_runs_steps_done"),
        ),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_training_runs_job_id")),
        sa.ForeignKeyConstraint(
            ["environment_id"], ["environments.id"], name=op.f("fk_training_runs_environment_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_training_runs")),
        sa.UniqueConstraint(
            "job_id", "position", "seed", name=op.f("uq_training_runs_job_id_position_seed")
        ),
    )


def _swap_check(old: str, new: str) -> None:
    """Another condition for `ok` cells, without a copy of a table that may have millions of rows.

    SQLite has no statement for it; its manual's way is to change the text of the table.
    """
    name = "ck_job_cells_ok_has_run"
    connection = op.get_bind()
    if connection.dialect.name == "postgresql":
        op.drop_constraint(op.f(name), "job_cells")
        op.create_check_constraint(op.f(name), "job_cells", new)
        return
    version = connection.exec_driver_sql("PRAGMA schema_version").scalar_one()
    connection.exec_driver_sql("PRAGMA writable_schema = ON")
    changed = connection.exec_driver_sql(
        "UPDATE sqlite_master SET sql = replace(sql, ?, ?) WHERE name = 'job_cells' AND sql LIKE ?",
        (f"({old})", f"({new})", f"%{name} CHECK ({old})%"),
    )
    if changed.rowcount != 1:
        raise RuntimeError(f"{name} is not as it was made: the schema was changed by hand")
    connection.exec_driver_sql(f"PRAGMA schema_version = {int(version) + 1}")
    connection.exec_driver_sql("PRAGMA writable_schema = OFF")


def downgrade() -> None:
    """Take back. Cells of trainings are left without their runs."""
    op.execute("UPDATE job_cells SET outcome = 'cancelled', reason = 'trainings were taken back' "
               "WHERE training_run_id IS NOT NULL")  # fmt: skip
    _swap_check(AFTER, BEFORE)
    op.execute("ALTER TABLE job_cells DROP COLUMN training_run_id")
    op.drop_table("training_points")
    op.drop_table("training_runs")
