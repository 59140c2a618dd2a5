"""Turns of lots: the fair share between tokens"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("lots", sa.Column("turn", sa.BigInteger(), nullable=False, server_default="0"))
    op.execute("UPDATE lots SET turn = position")


def downgrade() -> None:
    op.drop_column("lots", "turn")
