"""The table of permalinks: what a page showed, so that it can be shown again."""

from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column

from .base import Base


class PermalinkRow(Base):
    """A view of results as of a moment. Its hash is made of path, query and highest result.

    `query` holds the parameters by name, each a list of texts, contenders with their versions.
    `highest_result_id` is null where nothing was stored yet; `results` is how many results the
    filters of the query held then, up to a limit.
    """

    __tablename__ = "permalinks"
    __table_args__ = (sa.CheckConstraint("results >= 0", name="results"),)

    hash: Mapped[str] = mapped_column(primary_key=True)
    path: Mapped[str]
    query: Mapped[dict[str, Any]]
    highest_result_id: Mapped[str | None]
    results: Mapped[int]
    created_at: Mapped[datetime]
