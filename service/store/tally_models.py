"""The table of how many results there are: kept with every save, so that nothing counts rows."""

from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column

from .base import Base


class RunTallyRow(Base):
    """Results of one version of a kernel in one environment, by outcome.

    `version` is empty where a run has none. The times are of the first and the last start.
    """

    __tablename__ = "run_tallies"
    __table_args__ = (sa.CheckConstraint("results >= 0", name="results"),)

    kernel: Mapped[str] = mapped_column(primary_key=True)
    version: Mapped[str] = mapped_column(primary_key=True)
    outcome: Mapped[str] = mapped_column(primary_key=True)
    environment_id: Mapped[str] = mapped_column(sa.ForeignKey("environments.id"), primary_key=True)
    imported: Mapped[bool] = mapped_column(primary_key=True)
    invalid: Mapped[bool] = mapped_column(primary_key=True)
    results: Mapped[int]
    first_at: Mapped[datetime]
    last_at: Mapped[datetime]
