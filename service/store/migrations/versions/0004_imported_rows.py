"""Imported rows"""

import sqlalchemy as sa
from alembic import op

import lossbench.service.store.models

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    moment = lossbench.service.store.models.UtcDateTime(timezone=True)
    op.create_table(
        "imported_rows",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("format", sa.Text(), nullable=False),
        sa.Column("kernel", sa.Text(), nullable=False),
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("version", sa.Text(), nullable=True),
        sa.Column("commit_name", sa.Text(), nullable=True),
        sa.Column("gpu", sa.Text(), nullable=True),
        sa.Column("measured_at", moment, nullable=True),
        sa.Column("filename", sa.Text(), nullable=True),
        sa.Column("fields", sa.JSON(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=True),
        sa.Column("imported_at", moment, nullable=False),
        sa.CheckConstraint(
            "format IN ('liger', 'tritonbench', 'cce', 'pytorch-lce')",
            name=op.f("ck_imported_rows_format"),
        ),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_imported_rows_run_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_imported_rows")),
    )
    with op.batch_alter_table("imported_rows", schema=None) as batch_op:
        batch_op.create_index("ix_imported_rows_kernel_id", ["kernel", "id"], unique=False)
        batch_op.create_index(batch_op.f("ix_imported_rows_run_id"), ["run_id"], unique=False)


def downgrade() -> None:
    """Revert."""
    op.drop_table("imported_rows")
