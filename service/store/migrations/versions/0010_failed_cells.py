"""Failed cells by their key: what failed leaves no result, and claims ask for it"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    failed = sa.text("outcome = 'failed'")
    op.create_index(
        op.f("ix_job_cells_failed"),
        "job_cells",
        ["cell_key", "id"],
        sqlite_where=failed,
        postgresql_where=failed,
    )


def downgrade() -> None:
    """Take back."""
    op.drop_index(op.f("ix_job_cells_failed"), "job_cells")
