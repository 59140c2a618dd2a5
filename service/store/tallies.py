"""How many results there are, by kernel, version, outcome and environment: kept, not counted.

Whoever stores runs calls `count_in`, whoever takes one out of use calls `recount`, both in the same
transaction. Keys are written in one order, so that two saves on PostgreSQL cannot deadlock.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.orm import Session

from .models import RunRow, RunTallyRow


class TallyKey(NamedTuple):
    """What results are counted by."""

    kernel: str
    version: str
    outcome: str
    environment_id: str
    imported: bool
    invalid: bool


def insert_of(session: Session) -> Callable[..., Any]:
    """The dialect's INSERT, which knows ON CONFLICT."""
    return sqlite_insert if session.get_bind().dialect.name == "sqlite" else postgresql_insert


def key_of_row(run: RunRow) -> TallyKey:
    """The key of a stored run."""
    names = ("kernel", "version", "outcome", "environment_id", "imported", "invalidated_at")
    return key_of({name: getattr(run, name) for name in names})


def key_of(run: Mapping[str, Any]) -> TallyKey:
    """The key of a run given by its columns."""
    return TallyKey(
        run["kernel"],
        run["version"] or "",
        run["outcome"],
        run["environment_id"],
        run["imported"],
        run["invalidated_at"] is not None,
    )


def count_in(session: Session, runs: Sequence[Mapping[str, Any]]) -> None:
    """Add stored runs, given by their columns."""
    grouped: dict[TallyKey, list[Any]] = {}
    for run in runs:
        grouped.setdefault(key_of(run), []).append(run["started_at"])
    for key in sorted(grouped):
        times = grouped[key]
        _add(session, key, len(times), min(times), max(times))


def _add(session: Session, key: TallyKey, results: int, first_at: Any, last_at: Any) -> None:
    row = RunTallyRow
    add = insert_of(session)(row).values(
        **key._asdict(), results=results, first_at=first_at, last_at=last_at
    )
    new = add.excluded
    session.execute(
        add.on_conflict_do_update(
            index_elements=list(TallyKey._fields),
            set_={
                "results": row.results + new.results,
                "first_at": sa.case(
                    (new.first_at < row.first_at, new.first_at), else_=row.first_at
                ),
                "last_at": sa.case((new.last_at > row.last_at, new.last_at), else_=row.last_at),
            },
        )
    )


def recount(session: Session, key: TallyKey) -> None:
    """Count the runs of a key anew, valid and invalidated ones, after one has changed sides."""
    sides = [key._replace(invalid=invalid) for invalid in (False, True)]
    # a save that has counted in but not committed must come first, or be waited for
    for side in sides:
        session.execute(sa.select(RunTallyRow).filter_by(**side._asdict()).with_for_update())
    moment = RunRow.started_at.type
    for side in sides:
        number, first_at, last_at = session.execute(
            sa.select(
                sa.func.count(),
                sa.func.min(RunRow.started_at, type_=moment),
                sa.func.max(RunRow.started_at, type_=moment),
            ).where(*_counted_by(side))
        ).one()
        session.execute(sa.delete(RunTallyRow).filter_by(**side._asdict()))
        if number:
            _add(session, side, number, first_at, last_at)


def _counted_by(key: TallyKey) -> list[sa.ColumnElement[bool]]:
    invalid = RunRow.invalidated_at.is_not(None)
    return [
        RunRow.kernel == key.kernel,
        RunRow.version == key.version if key.version else RunRow.version.is_(None),
        RunRow.outcome == key.outcome,
        RunRow.environment_id == key.environment_id,
        RunRow.imported.is_(key.imported),
        invalid if key.invalid else sa.not_(invalid),
    ]


COUNT_ALL = """
INSERT INTO run_tallies
    (kernel, version, outcome, environment_id, imported, invalid, results, first_at, last_at)
SELECT kernel, coalesce(version, ''), outcome, environment_id, imported,
    invalidated_at IS NOT NULL, count(*), min(started_at), max(started_at)
FROM runs
GROUP BY 1, 2, 3, 4, 5, 6
"""
"""Fills an empty table of tallies from the runs: for data that came in past `insert_runs`."""


def results_total(session: Session) -> int:
    """How many results are stored, imported and invalidated ones too."""
    return int(session.scalar(sa.select(sa.func.sum(RunTallyRow.results))) or 0)
