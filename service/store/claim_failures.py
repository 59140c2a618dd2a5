"""Cells that failed: they leave no result, so a claim about a failure rests on a job's cell."""

from collections.abc import Collection, Iterator
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy.orm import Session, aliased

from ..contract.claim_evidence import MeasuredCell
from ..contract.machine import accelerator_name
from ..contract.words import Outcome, Pass
from .models import CellRow, EnvironmentRow, LotRow, RunRow, WorkerRow

MOST_FAILURES = 40
"""The newest failed cells that are looked at, of all keys together."""
_NEAR = 600
"""Cells of one case stand together: 200 contenders with 3 passes at most."""


class FailedCell(NamedTuple):
    """A failed cell, and the accelerator that it failed on."""

    cell: MeasuredCell
    accelerator: str


def failed_cells(session: Session, keys: Collection[str]) -> Iterator[FailedCell]:
    """The newest failed cells of these keys whose place is known.

    The place is that of the worker which took its lot, else, as in a loaded set, of another cell of
    the same job and case that was measured.
    """
    if not keys:
        return
    newest = _newest(keys)
    query = sa.select(newest, EnvironmentRow.device_name).join(
        EnvironmentRow, EnvironmentRow.id == newest.c.place
    )
    for row in session.execute(query):
        if row.ended_at is None:
            continue
        cell = MeasuredCell(
            result_id="",
            job_id=row.job_id,
            key=row.cell_key,
            contender=row.contender,
            case=row.case_text,
            pass_=Pass(row.pass_),
            environment_id=row.place,
            device_name=row.device_name,
            protocol_version=0,
            outcome=Outcome.FAILED,
            measured_at=row.ended_at,
            reason=row.reason,
        )
        yield FailedCell(cell, accelerator_name(row.device_name))


def _newest(keys: Collection[str]) -> sa.Subquery:
    """Failed cells of these keys with their place, the newest first."""
    beside = aliased(CellRow)
    neighbour = (
        sa.select(sa.func.max(RunRow.environment_id))
        .join(beside, beside.run_id == RunRow.id)
        .where(
            beside.job_id == CellRow.job_id,
            beside.position.between(CellRow.position - _NEAR, CellRow.position + _NEAR),
            beside.case_text == CellRow.case_text,
        )
        .correlate(CellRow)
        .scalar_subquery()
    )
    place = sa.func.coalesce(WorkerRow.environment_id, neighbour).label("place")
    return (
        sa.select(
            CellRow.job_id,
            CellRow.cell_key,
            CellRow.contender,
            CellRow.case_text,
            CellRow.pass_.label("pass_"),
            CellRow.reason,
            CellRow.ended_at,
            place,
        )
        .outerjoin(LotRow, LotRow.id == CellRow.lot_id)
        .outerjoin(WorkerRow, WorkerRow.id == LotRow.worker_id)
        # said outright, not as a parameter: the index of failed cells is a partial one
        .where(CellRow.cell_key.in_(sorted(keys)), sa.text("job_cells.outcome = 'failed'"))
        .order_by(CellRow.id.desc())
        .limit(MOST_FAILURES)
        .subquery()
    )
