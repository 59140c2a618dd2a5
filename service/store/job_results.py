"""Results and cells of jobs for pages and lists: plain rows, no ORM objects."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from ..contract.result import CellView, OutputErrorView, Result
from .models import CellRow, EnvironmentRow, OutputErrorRow, RunRow
from .views import cell_view

_AT_ONCE = 500
_CELL = [
    getattr(CellRow, name)
    for name in (
        "position",
        "contender",
        "case_text",
        "pass_",
        "state",
        "outcome",
        "reason",
        "reused",
        "attempt",
        "visits_done",
        "visits_total",
        "run_id",
        "started_at",
        "ended_at",
    )
]
_ELSEWHERE: dict[str, Any] = {
    "case": RunRow.case_text,
    "device_name": EnvironmentRow.device_name,
    "device_type": EnvironmentRow.device_type,
}
_RESULT: dict[str, Any] = {
    field.serialization_alias or name: _ELSEWHERE.get(name) or getattr(RunRow, name)
    for name, field in Result.model_fields.items()
    if name != "errors"
}
"""Columns of a result by their names in the API, in its order."""
_BEFORE_ERRORS = list(Result.model_fields).index("errors")
_ERROR = {name: getattr(OutputErrorRow, name) for name in OutputErrorView.model_fields}


Place = tuple[str, str]
"""A case and a pass: what contenders are compared on."""


def places_of_job(session: Session, job_id: str) -> list[Place]:
    """Cases and passes of a job, in its order."""
    query = (
        sa.select(CellRow.case_text, CellRow.pass_)
        .where(CellRow.job_id == job_id)
        .group_by(CellRow.case_text, CellRow.pass_)
        .order_by(sa.func.min(CellRow.position))
    )
    return [(case, pass_) for case, pass_ in session.execute(query)]


def contenders_of_job(session: Session, job_id: str) -> list[str]:
    """Contenders of a job, in its order."""
    query = (
        sa.select(CellRow.contender)
        .where(CellRow.job_id == job_id)
        .group_by(CellRow.contender)
        .order_by(sa.func.min(CellRow.position))
    )
    return list(session.scalars(query))


def cells_of_job(
    session: Session, job_id: str, places: Sequence[Place] | None = None
) -> list[CellView]:
    """Cells of a job in order: every one, or those of some places."""
    columns: Sequence[Any] = _CELL
    query = sa.select(*columns).where(CellRow.job_id == job_id).order_by(CellRow.position)
    if places is not None:
        query = query.where(sa.tuple_(CellRow.case_text, CellRow.pass_).in_(places))
    rows: Sequence[Any] = session.execute(query).all()
    return [cell_view(row) for row in rows]


def results_of_job(
    session: Session, job_id: str, places: Sequence[Place] | None = None
) -> list[tuple[CellView, Result | None]]:
    """Cells of a job in order, every one or those of some places, with results where there are."""
    cells = cells_of_job(session, job_id, places)
    found = results_by_id(session, [cell.result_id for cell in cells if cell.result_id])
    return [(cell, found.get(cell.result_id or "")) for cell in cells]


def results_by_id(session: Session, run_ids: Iterable[str]) -> dict[str, Result]:
    """Results by id, with their errors."""
    found = result_fields(session, run_ids)
    return {run_id: Result.model_validate(fields) for run_id, fields in found.items()}


RESULT_FIELDS = (*list(_RESULT)[:_BEFORE_ERRORS], "errors", *list(_RESULT)[_BEFORE_ERRORS:])
"""Names of all fields of a result in the API, `id` first."""


def result_fields(
    session: Session, run_ids: Iterable[str], only: Collection[str] = ()
) -> dict[str, dict[str, Any]]:
    """Fields of results by id, as the API names and orders them: nothing that JSON would change.

    `only`: these fields and the id; all where it is empty.
    """
    wanted = sorted(set(run_ids))
    names = [name for name in RESULT_FIELDS if not only or name in only or name == "id"]
    plain = [name for name in names if name != "errors"]
    columns: Sequence[Any] = [_RESULT[name] for name in plain]
    found: dict[str, dict[str, Any]] = {}
    for start in range(0, len(wanted), _AT_ONCE):
        some = wanted[start : start + _AT_ONCE]
        errors = _errors(session, some) if len(plain) < len(names) else {}
        query = sa.select(*columns).join(EnvironmentRow, EnvironmentRow.id == RunRow.environment_id)
        for row in session.execute(query.where(RunRow.id.in_(some))):
            values: list[Any] = list(row)
            if len(plain) < len(names):
                values.insert(names.index("errors"), errors.get(values[0], []))
            found[values[0]] = dict(zip(names, values, strict=True))
    return found


def _errors(session: Session, run_ids: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    columns: Sequence[Any] = list(_ERROR.values())
    query = (
        sa.select(OutputErrorRow.run_id, *columns)
        .where(OutputErrorRow.run_id.in_(run_ids))
        .order_by(OutputErrorRow.run_id, OutputErrorRow.output)
    )
    found: dict[str, list[dict[str, Any]]] = {}
    for run_id, *values in session.execute(query):
        found.setdefault(run_id, []).append(dict(zip(_ERROR, values, strict=True)))
    return found
