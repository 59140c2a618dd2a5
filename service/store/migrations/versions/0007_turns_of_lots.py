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
    # which lots wait in a queue, and who is next
    op.create_index("ix_lots_queue_state_turn", "lots", ["queue", "state", "turn"])


def downgrade() -> None:
    op.drop_index("ix_lots_queue_state_turn", "lots")
    op.drop_column("lots", "turn")
