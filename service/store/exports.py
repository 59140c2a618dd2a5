"""Results as flat rows for files, batch after batch: memory does not grow with their number."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from .base import UtcDateTime
from .database import Database
from .models import EnvironmentRow, OutputErrorRow, RunRow
from .result_ids import Order, Place, page_ids
from .results import ResultFilter
from .views import SAME_COLUMNS

AT_ONCE = 1000
"""Results that one batch holds."""

_CASE = SAME_COLUMNS.index("tokens")
_OUTCOME = SAME_COLUMNS.index("outcome")
# as in a result of the API, with the case before its sizes and the pass before the outcome
_RUN_COLUMNS = (
    *SAME_COLUMNS[:_CASE],
    "case_text",
    *SAME_COLUMNS[_CASE:_OUTCOME],
    "pass_",
    *SAME_COLUMNS[_OUTCOME:],
)
_NAMES = {"case_text": "case", "pass_": "pass"}
_DEVICE_COLUMNS = ("device_name", "device_type")
_OUTPUTS = ("loss", "dx", "dw", "db")
_ERRORS = {"relative_l2": "relative_l2", "error_ratio": "ratio", "max_abs": "max_abs"}


def _kind(column: Any) -> type:
    if isinstance(column.type, UtcDateTime):
        return datetime
    kind: type = str if isinstance(column.type, sa.JSON) else column.type.python_type
    return kind


COLUMNS: dict[str, type] = {
    **{_NAMES.get(name, name): _kind(getattr(RunRow, name)) for name in _RUN_COLUMNS},
    **{name: str for name in _DEVICE_COLUMNS},
    **{f"{output}_{name}": float for output in _OUTPUTS for name in _ERRORS},
}
"""Columns of an exported result and their types; anything may be None. Flags are joined by `;`."""

Row = tuple[Any, ...]


def result_batches(
    database: Database, wanted: ResultFilter, at_once: int = AT_ONCE
) -> Iterator[list[Row]]:
    """Every result that matches, newest first, as rows in the order of COLUMNS; no batch is empty.

    Each batch is a read of its own: results stored meanwhile are not in it.
    """
    last: str | None = None
    while True:
        with database.reading() as session:
            rows = _batch(session, wanted, last, at_once)
        if rows:
            yield rows
            last = rows[-1][0]
        if len(rows) < at_once:
            return


def _batch(session: Session, wanted: ResultFilter, last: str | None, at_once: int) -> list[Row]:
    columns = [getattr(RunRow, name) for name in _RUN_COLUMNS]
    devices = [getattr(EnvironmentRow, name) for name in _DEVICE_COLUMNS]
    after = None if last is None else Place(None, last)
    ids = page_ids(session, wanted, Order(), after, at_once)
    query = (
        sa.select(*columns, *devices)
        .join(EnvironmentRow, EnvironmentRow.id == RunRow.environment_id)
        .where(RunRow.id.in_(ids))
        .order_by(RunRow.id.desc())
    )
    found = session.execute(query).all()
    errors = _errors(session, [row[0] for row in found])
    flags = _RUN_COLUMNS.index("flags")
    nothing = (None,) * (len(_OUTPUTS) * len(_ERRORS))
    return [
        (*row[:flags], ";".join(row[flags]), *row[flags + 1 :], *errors.get(row[0], nothing))
        for row in found
    ]


def _errors(session: Session, run_ids: list[str]) -> dict[str, Row]:
    """Errors of the results that have any, output after output."""
    names = list(_ERRORS.values())
    query = sa.select(
        OutputErrorRow.run_id,
        OutputErrorRow.output,
        *(getattr(OutputErrorRow, name) for name in names),
    ).where(OutputErrorRow.run_id.in_(run_ids))
    by_run: dict[str, dict[str, Row]] = {}
    for run_id, output, *values in session.execute(query):
        by_run.setdefault(run_id, {})[output] = tuple(values)
    missing = (None,) * len(names)
    return {
        run_id: tuple(value for output in _OUTPUTS for value in outputs.get(output, missing))
        for run_id, outputs in by_run.items()
    }
