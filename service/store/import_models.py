"""The table of what was imported from other benchmarks: every row, as it was written."""

from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column

from ..contract.peer_formats.rows import PeerFormat
from .base import Base, one_of


class ImportedRow(Base):
    """One row of a peer's table. Its id is a hash of what identifies it, so that it comes once.

    `run_id` is the result that was made of it; null for another operation or an unknown case.
    """

    __tablename__ = "imported_rows"
    __table_args__ = (
        one_of("format", PeerFormat, "format"),
        sa.Index("ix_imported_rows_imported_at_id", "imported_at", "id"),
        sa.Index("ix_imported_rows_kernel_imported_at_id", "kernel", "imported_at", "id"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    format: Mapped[str]
    kernel: Mapped[str]
    provider: Mapped[str]
    version: Mapped[str | None]
    commit_name: Mapped[str | None]
    gpu: Mapped[str | None]
    measured_at: Mapped[datetime | None]
    filename: Mapped[str | None]
    fields: Mapped[dict[str, Any]]
    run_id: Mapped[str | None] = mapped_column(sa.ForeignKey("runs.id"))
    imported_at: Mapped[datetime]
