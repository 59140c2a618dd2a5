"""Tallies of results, and the indices of lists"""

import sqlalchemy as sa
from alembic import op

import lossbench.service.store.models

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

# (table, columns); an index is named after them
GONE: list[tuple[str, list[str]]] = [
    ("checks", ["kernel"]),
    ("device_proofs", ["device_uuid_hash", "measured_at"]),
    ("environments", ["hardware_fingerprint"]),
    ("imported_rows", ["kernel", "id"]),
    ("imported_rows", ["run_id"]),
    ("jobs", ["created_at"]),
    ("jobs", ["state"]),
    ("runs", ["case_text"]),
    ("runs", ["kernel", "version"]),
]
NEW: list[tuple[str, list[str]]] = [
    ("imported_rows", ["imported_at", "id"]),
    ("imported_rows", ["kernel", "imported_at", "id"]),
    ("job_cells", ["job_id", "state", "outcome"]),
    ("jobs", ["token_id", "created_at"]),
    ("runs", ["kernel", "id"]),
    ("runs", ["kernel", "version", "id"]),
    ("runs", ["case_text", "id"]),
    ("runs", ["environment_id", "id"]),
    ("runs", ["outcome", "id"]),
    ("runs", ["started_at", "id"]),
    ("runs", ["latency_ms", "id"]),
    ("runs", ["workspace_bytes", "id"]),
    ("runs", ["ratio_to_baseline", "id"]),
    ("runs", ["floor_ratio", "id"]),
    ("runs", ["tokens_per_s", "id"]),
    ("runs", ["tokens", "id"]),
    ("runs", ["hidden", "id"]),
    ("runs", ["vocab", "id"]),
]
NEWEST = ["kernel", "params", "case_text", "pass", "environment_id", "version", "imported"]
COUNT = """
INSERT INTO run_tallies
    (kernel, version, outcome, environment_id, imported, invalid, results, first_at, last_at)
SELECT kernel, coalesce(version, ''), outcome, environment_id, imported,
    invalidated_at IS NOT NULL, count(*), min(started_at), max(started_at)
FROM runs
GROUP BY 1, 2, 3, 4, 5, 6
"""


def upgrade() -> None:
    """Apply; what is stored already is counted once."""
    moment = lossbench.service.store.models.UtcDateTime(timezone=True)
    op.create_table(
        "run_tallies",
        sa.Column("kernel", sa.Text(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("environment_id", sa.Text(), nullable=False),
        sa.Column("imported", sa.Boolean(), nullable=False),
        sa.Column("invalid", sa.Boolean(), nullable=False),
        sa.Column("results", sa.BigInteger(), nullable=False),
        sa.Column("first_at", moment, nullable=False),
        sa.Column("last_at", moment, nullable=False),
        sa.CheckConstraint("results >= 0", name=op.f("ck_run_tallies_results")),
        sa.ForeignKeyConstraint(
            ["environment_id"], ["environments.id"], name=op.f("fk_run_tallies_environment_id")
        ),
        sa.PrimaryKeyConstraint(
            "kernel",
            "version",
            "outcome",
            "environment_id",
            "imported",
            "invalid",
            name=op.f("pk_run_tallies"),
        ),
    )
    op.execute(COUNT)
    for table, columns in GONE:
        op.drop_index(_name(table, columns), table)
    for table, columns in NEW:
        op.create_index(_name(table, columns), table, columns)
    op.create_index("ix_runs_newest", "runs", [*NEWEST, "invalidated_at", "id"])
    op.create_index(
        "ix_runs_imported_id",
        "runs",
        ["id"],
        sqlite_where=sa.text("imported IS 1"),
        postgresql_where=sa.text("imported IS true"),
    )


def _name(table: str, columns: list[str]) -> str:
    return f"ix_{table}_{'_'.join(columns)}"


def downgrade() -> None:
    """Revert."""
    op.drop_index("ix_runs_imported_id", "runs")
    op.drop_index("ix_runs_newest", "runs")
    for table, columns in NEW:
        op.drop_index(_name(table, columns), table)
    for table, columns in GONE:
        op.create_index(_name(table, columns), table, columns)
    op.drop_table("run_tallies")
