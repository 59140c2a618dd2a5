"""Permalinks"""

import sqlalchemy as sa
from alembic import op

import lossbench.service.store.models

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "permalinks",
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("query", sa.JSON(), nullable=False),
        sa.Column("highest_result_id", sa.Text(), nullable=True),
        sa.Column("results", sa.BigInteger(), nullable=False),
        sa.Column(
            "created_at", lossbench.service.store.models.UtcDateTime(timezone=True), nullable=False
        ),
        sa.CheckConstraint("results >= 0", name=op.f("ck_permalinks_results")),
        sa.PrimaryKeyConstraint("hash", name=op.f("pk_permalinks")),
    )


def downgrade() -> None:
    """Revert."""
    op.drop_table("permalinks")
