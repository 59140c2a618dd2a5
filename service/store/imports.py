"""Imports: store a peer's table once, however often it is sent; make results of what is a cell.

A row is known by a hash of its identity (the commit included) and of what was given with the
table. Results made of rows are marked `imported`: no verdict, mean, plot or reuse takes them.
"""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.orm import Session

from ..contract.contender import Contender
from ..contract.peer_formats.rows import Given, LineFault, PeerFormat, PeerRow
from ..contract.peer_formats.tables import PeerTable
from ..contract.run import Cell, Environment, LatencySummary, Measurement, RunRecord
from ..contract.words import Outcome
from .database import Database
from .events import now
from .import_models import ImportedRow
from .models import RunRow
from .run_rows import NewRun, insert_runs

NOT_OUR_PROTOCOL = 0
"""`protocol_version` of imported results: they were not measured by any of ours."""
UNKNOWN_GPU = "unknown GPU"
_BASELINE = Contender(kernel="torch-naive")
_AT_ONCE = 500


class Imported(NamedTuple):
    """What an import did, in rows: each is added, known already, or refused."""

    format: PeerFormat
    added: int
    known: int
    refused: int
    results_added: int
    without_result: int
    """Added rows that are no result: other operations, or a case the table does not say whole."""
    faults: tuple[LineFault, ...]


def import_table(
    database: Database, table: PeerTable, given: Given, filename: str | None
) -> Imported:
    """Store what is not there yet, in one transaction."""
    try:
        with database.transaction() as session:
            return _Importer(session, table, given, filename).store()
    except sa.exc.IntegrityError:
        # another import of the same rows came first; now they are known
        with database.transaction() as session:
            return _Importer(session, table, given, filename).store()


class _Importer:
    def __init__(
        self, session: Session, table: PeerTable, given: Given, filename: str | None
    ) -> None:
        self._session = session
        self._table = table
        self._given = given.model_dump(mode="json", exclude_none=True)
        self._filename = filename
        self._moment = now()
        self._environments: dict[tuple[str | None, ...], Environment] = {}

    def store(self) -> Imported:
        rows, faults = self._distinct()
        known = self._stored(ImportedRow.id, rows)
        fresh = {row_id: row for row_id, row in rows.items() if row_id not in known}
        results, run_ids = self._add_results(fresh)
        values = [self._values(row_id, row, run_ids.get(row_id)) for row_id, row in fresh.items()]
        for start in range(0, len(values), _AT_ONCE):
            self._session.execute(sa.insert(ImportedRow), values[start : start + _AT_ONCE])
        every_fault = sorted([*self._table.faults, *faults], key=lambda fault: fault.line)
        return Imported(
            format=self._table.format,
            added=len(fresh),
            known=len(self._table.rows) - len(faults) - len(fresh),
            refused=len(every_fault),
            results_added=results,
            without_result=len(fresh) - len(run_ids),
            faults=tuple(every_fault),
        )

    def _distinct(self) -> tuple[dict[str, PeerRow], list[LineFault]]:
        """Rows by id. A second row of one identity is a fault if it found something else."""
        rows: dict[str, PeerRow] = {}
        faults: list[LineFault] = []
        for row in self._table.rows:
            first = rows.setdefault(self._hash("row", row.identity), row)
            if first is not row and first.fields != row.fields:
                message = f"the same measurement as line {first.line}, with other numbers"
                faults.append(LineFault(line=row.line, column="", value="", message=message))
        return rows, faults

    def _hash(self, prefix: str, identity: Mapping[str, str]) -> str:
        """An id of 96 bits. Those of one commit begin alike and so lie together in every index."""
        # 400 ids at random places of an index would each have cost a page of it
        said = [self._table.format.value, sorted(self._given.items())]
        together = _digest([*said, identity.get("commit", "")], 8)
        return f"{prefix}-{together}{_digest([*said, sorted(identity.items())], 16)}"

    def _stored(self, column: Any, ids: Iterable[str]) -> set[str]:
        wanted, found = list(ids), set[str]()
        for start in range(0, len(wanted), _AT_ONCE):
            some = sa.select(column).where(column.in_(wanted[start : start + _AT_ONCE]))
            found.update(self._session.scalars(some))
        return found

    def _add_results(self, fresh: Mapping[str, PeerRow]) -> tuple[int, dict[str, str]]:
        """How many results were added, and the result of each row that has one."""
        run_ids = {
            row_id: self._hash("imp", row.merge_key)
            for row_id, row in fresh.items()
            if row.cell is not None
        }
        parts: dict[str, list[PeerRow]] = {}
        for row_id, run_id in run_ids.items():
            parts.setdefault(run_id, []).append(fresh[row_id])
        # a row that comes later than the rest of its result leaves the result as it is
        known = self._stored(RunRow.id, parts)
        added = [run_id for run_id in parts if run_id not in known]
        insert_runs(
            self._session,
            [NewRun(self._record(parts[run_id]), imported=True, run_id=run_id) for run_id in added],
        )
        return len(added), run_ids

    def _values(self, row_id: str, row: PeerRow, run_id: str | None) -> dict[str, Any]:
        return {
            "id": row_id,
            "format": self._table.format.value,
            "kernel": row.kernel,
            "provider": row.provider,
            "version": row.version,
            "commit_name": row.commit,
            "gpu": row.gpu,
            "measured_at": row.measured_at,
            "filename": self._filename,
            "fields": dict(row.fields),
            "run_id": run_id,
            "imported_at": self._moment,
        }

    def _record(self, rows: Sequence[PeerRow]) -> RunRecord:
        first = rows[0]
        if first.cell is None:
            raise ValueError("a row without a cell is no result")
        times = [row.measured_at for row in rows if row.measured_at is not None]
        latency = next((row.latency_ms for row in rows if row.latency_ms is not None), None)
        outcome = next((row.outcome for row in rows if row.outcome is not Outcome.OK), Outcome.OK)
        source = self._table.format.value
        return RunRecord(
            cell=first.cell,
            version=first.cell.contender.version,
            outcome=outcome,
            reason=None if outcome is Outcome.OK else f"so the {source} table says",
            baseline=_BASELINE,
            environment=self._environment(source, first),
            processes=1,
            seed=0,
            protocol_version=NOT_OUR_PROTOCOL,
            measurement=_measurement(first.cell, latency) if latency is not None else None,
            details={"import": self._facts(rows, bool(times))},
            worker_id=f"import-{source}",
            started_at=min(times, default=self._moment),
            ended_at=max(times, default=self._moment),
        )

    def _environment(self, source: str, row: PeerRow) -> Environment:
        """That of the row; a table has few."""
        place = (source, row.gpu, row.version, row.commit)
        if place not in self._environments:
            self._environments[place] = environment_of_import(source, row)
        return self._environments[place]

    def _facts(self, rows: Sequence[PeerRow], has_time: bool) -> dict[str, Any]:
        first = rows[0]
        return {
            "format": self._table.format.value,
            "filename": self._filename,
            "kernel": first.kernel,
            "provider": first.provider,
            "version": first.version,
            "commit": first.commit,
            "given": self._given,
            "assumed": list(first.assumed),
            "time_is_of_import": not has_time,
            "numbers": {name: value for row in rows for name, value in row.numbers.items()},
        }


def _digest(said: list[Any], digits: int) -> str:
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()[:digits]


def _measurement(cell: Cell, median_ms: float) -> Measurement:
    """The one number a peer's table has of a time; what it does not have is NaN, stored as null."""
    unknown = ("mean", "minimum", "q1", "q3", "p95", "mad")
    latency = LatencySummary(
        n=0, median_ms=median_ms, outliers=0, **{f"{name}_ms": math.nan for name in unknown}
    )
    return Measurement(
        latency=latency,
        compile_s=math.nan,
        first_call_s=math.nan,
        tokens_per_s=cell.case.max_tokens / median_ms * 1000,
    )


def environment_of_import(source: str, row: PeerRow) -> Environment:
    """Where a peer measured, as far as its table says; never that of a machine of ours."""
    gpu = row.gpu or UNKNOWN_GPU
    software = {"source": source, "version": row.version, "commit": row.commit}
    return Environment(
        device_type="cuda",
        device_name=gpu,
        device_uuid_hash="",
        memory_bytes=0,
        facts={"imported_from": source},
        hardware_fingerprint=f"imported{_short(gpu)}",
        software_fingerprint=f"imported{_short(json.dumps(software))}",
    )


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def imported_rows_page(
    session: Session, narrow: Mapping[str, str], before: tuple[datetime, str] | None, limit: int
) -> list[ImportedRow]:
    """Imported rows, the newest import first; `narrow` holds columns and the values they must have.

    `before` is the time and id of the last row seen.
    """
    query = sa.select(ImportedRow).limit(limit)
    for name, value in narrow.items():
        query = query.where(getattr(ImportedRow, name) == value)
    if before is not None:
        older = ImportedRow.imported_at < before[0]
        same = sa.and_(ImportedRow.imported_at == before[0], ImportedRow.id < before[1])
        query = query.where(sa.or_(older, same))
    order = (ImportedRow.imported_at.desc(), ImportedRow.id.desc())
    return list(session.scalars(query.order_by(*order)))
