"""A whole database into another one, SQLite or PostgreSQL: every row, then what was still open.

The source is read in one snapshot and stays as it is. The queue's own tables are not copied: lots
that were queued or running are put into the target's queue anew, so that an open job resumes there.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.orm import Session

from ..contract.errors import ConflictError, DatabaseError
from ..contract.words import CellState, LotState
from .database import Database, check_schema
from .events import add_event, now
from .jobs import UNROUTED
from .models import Base, CellRow, JobRow, LotRow, WorkerRow
from .queue import LotQueue
from .turns import place_of

AT_ONCE = 500
_OPEN = (LotState.QUEUED.value, LotState.RUNNING.value)


class TableContent(NamedTuple):
    """How many rows a table has, and a hash of all of them, in whatever order they lie."""

    rows: int
    sha256: str


class Copied(NamedTuple):
    """What a copy brought."""

    tables: dict[str, TableContent]
    lots_open: int
    """Lots of open jobs that wait for a worker of the target now."""


def content_of(session: Session) -> dict[str, TableContent]:
    """Rows and hash of every table of ours; equal on SQLite and PostgreSQL for equal rows."""
    found = {}
    for table in Base.metadata.sorted_tables:
        tally = _Tally()
        for batch in _batches(session, table):
            tally.add(batch)
        found[table.name] = tally.content
    return found


def copy_database(source: Database, target: Database, queue: LotQueue, quiet_s: float) -> Copied:
    """Copy every row of `source` into the empty `target`, whose queue is `queue`.

    A worker of the source must not have beaten for `quiet_s`. Raises ConflictError where one has,
    or where the target holds rows; DatabaseError where a schema is not current or the rows differ
    behind the copy. The target holds everything or nothing.
    """
    for database, word in ((source, "source"), (target, "target")):
        if not check_schema(database):
            raise DatabaseError(f"the {word}'s schema is not current; run `lossbench db upgrade`")
    with source.reading() as reading:
        _refuse_live_workers(reading, quiet_s)
        queues = _queues_of_open_lots(reading)
    for name in queues:
        queue.ensure(name)
    with target.transaction() as writing:
        _refuse_rows(writing)
        with source.reading() as reading:
            _begin_snapshot(reading)
            tables = {table.name: _copy(reading, writing, table) for table in _tables()}
        if content_of(writing) != tables:
            raise DatabaseError("the copy differs from its source; nothing was kept")
        _advance_counters(writing)
        lots = _resume(writing, queue)
    return Copied(tables, lots)


def _tables() -> Sequence[sa.Table]:
    return Base.metadata.sorted_tables


def _begin_snapshot(session: Session) -> None:
    """One state of the database for all reads; on SQLite a transaction sees no other."""
    if session.get_bind().dialect.name == "postgresql":
        session.connection(execution_options={"isolation_level": "REPEATABLE READ"})


def _refuse_live_workers(session: Session, quiet_s: float) -> None:
    since = now() - timedelta(seconds=quiet_s)
    live = sa.select(WorkerRow.id).where(WorkerRow.beat_at > since, WorkerRow.state != "gone")
    names = list(session.scalars(live.order_by(WorkerRow.id)))
    if names:
        raise ConflictError(
            f"worker {names[0]} is at work; stop the service and its workers, then wait "
            f"{quiet_s:g} s"
        )


def _refuse_rows(session: Session) -> None:
    for table in _tables():
        if session.execute(sa.select(sa.literal(1)).select_from(table).limit(1)).first():
            raise ConflictError(
                f"the target holds rows already, in {table.name}; take an empty one"
            )


def _batches(session: Session, table: sa.Table) -> Iterator[list[Mapping[str, Any]]]:
    order = table.primary_key.columns
    result = session.execute(
        sa.select(table).order_by(*order), execution_options={"yield_per": AT_ONCE}
    )
    for part in result.mappings().partitions():
        yield [dict(row) for row in part]


def _copy(source: Session, target: Session, table: sa.Table) -> TableContent:
    tally = _Tally()
    for batch in _batches(source, table):
        target.execute(sa.insert(table), batch)
        tally.add(batch)
    return tally.content


class _Tally:
    """Adds up hashes of rows: the sum does not depend on an engine's order of texts."""

    def __init__(self) -> None:
        self._rows, self._sum = 0, 0

    def add(self, batch: Sequence[Mapping[str, Any]]) -> None:
        for row in batch:
            text = json.dumps(row, sort_keys=True, default=_plain).encode()
            self._sum += int.from_bytes(hashlib.sha256(text).digest(), "big")
        self._rows += len(batch)

    @property
    def content(self) -> TableContent:
        return TableContent(self._rows, f"{self._sum % 2**256:064x}")


def _plain(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bytes | memoryview):
        return hashlib.sha256(value).hexdigest()
    raise TypeError(f"a column holds {type(value).__name__}")


def _advance_counters(session: Session) -> None:
    """Let PostgreSQL count on behind the numbers that were copied; SQLite does by itself."""
    if session.get_bind().dialect.name != "postgresql":
        return
    for table in _tables():
        column = table.autoincrement_column
        highest = session.scalar(sa.select(sa.func.max(column))) if column is not None else None
        if column is None or highest is None:
            continue
        sequence = sa.func.pg_get_serial_sequence(table.name, column.name)
        if session.scalar(sa.select(sequence)) is not None:
            session.execute(sa.select(sa.func.setval(sequence, highest)))


def _queues_of_open_lots(session: Session) -> list[str]:
    query = sa.select(LotRow.queue).join(JobRow, JobRow.id == LotRow.job_id).distinct()
    named = JobRow.accelerator != UNROUTED
    return list(session.scalars(query.where(LotRow.state.in_(_OPEN), named)))


def _resume(session: Session, queue: LotQueue) -> int:
    """Queue the open lots for their next attempt; the source's workers are gone. How many."""
    note = "of the database that this one was copied from"
    session.execute(sa.update(WorkerRow).values(state="gone", note=note, lot_id=None))
    lots = list(session.scalars(sa.select(LotRow).where(LotRow.state.in_(_OPEN))))
    for lot in lots:
        job = session.get_one(JobRow, lot.job_id)
        lot.attempt += 1
        lot.state, lot.worker_id = LotState.QUEUED.value, None
        mine = CellRow.lot_id == lot.id
        session.execute(sa.update(CellRow).where(mine).values(attempt=lot.attempt))
        running = sa.and_(mine, CellRow.state == CellState.RUNNING.value)
        session.execute(sa.update(CellRow).where(running).values(state=CellState.QUEUED.value))
        line = f"lot {lot.position}: the database was copied; queued again"
        add_event(session, job.id, "log", {"line": line})
        if job.accelerator == UNROUTED:
            # the reaper sends it to the first worker that comes
            lot.queue = UNROUTED
        else:
            queue.enqueue(session, lot.id, lot.attempt, place_of(job, lot))
    session.flush()
    return len(lots)
