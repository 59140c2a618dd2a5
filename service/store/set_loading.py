"""From a set to a database. Records keep id, times, environment and worker, and name their set.

An id is never given twice (its last 40 bits are random), so a record whose id is there already is
the same record and is left alone: the same set loaded again changes nothing, and a set loaded where
it was made neither.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import sqlalchemy as sa
from pydantic import BaseModel, ValidationError
from sqlalchemy.orm import Session

from ..contract.case import Case
from ..contract.check import CheckRecord
from ..contract.errors import InvalidRequestError
from ..contract.result_set import (
    ResultSet,
    SetCell,
    SetCheck,
    SetComparison,
    SetHeader,
    SetJob,
    SetRun,
    SetSamples,
)
from ..contract.run import RunRecord, SampleBlock
from .checks import insert_check
from .database import Database
from .evidence_models import CheckRow, ComparisonRow
from .models import CellRow, JobRow, RunRow
from .run_rows import NewRun, insert_environment, insert_runs
from .set_files import misfit, read_set, shipped_sets, unpack_float32

_AT_ONCE = 500
MARK = "set"
"""Key in `details` of a run or check, and label of a job: the name of the set it came with."""

M = TypeVar("M", bound=BaseModel)


class Loaded(NamedTuple):
    """What a set brought, by kind of record."""

    name: str
    new: dict[str, int]
    known: dict[str, int]
    """Records that were there already."""


def load_set(database: Database, found: ResultSet) -> Loaded:
    """Store what is not there yet, in one transaction. Raises InvalidRequestError."""
    try:
        with database.transaction() as session:
            return _Loader(session, found).load()
    except sa.exc.IntegrityError as error:
        raise InvalidRequestError(
            f"set {found.header.name}: its records do not fit together ({error.orig})"
        ) from error


def load_shipped(database: Database) -> list[Loaded]:
    """Load every set of the package."""
    return [load_set(database, read_set(path)) for path in shipped_sets()]


class _Loader:
    def __init__(self, session: Session, found: ResultSet) -> None:
        self._session = session
        self._lines = found.lines
        self._header: SetHeader = found.header
        self._samples = [line for line in found.lines if isinstance(line, SetSamples)]
        self._new: Counter[str] = Counter()
        self._known: Counter[str] = Counter()

    def load(self) -> Loaded:
        try:
            runs = [line for line in self._lines if isinstance(line, SetRun)]
            insert_runs(
                self._session, [self._new_run(run) for run in self._unknown("runs", RunRow, runs)]
            )
            checks = [line for line in self._lines if isinstance(line, SetCheck)]
            for check in self._unknown("checks", CheckRow, checks):
                self._add_check(check)
        except (IndexError, KeyError, TypeError, ValueError) as error:
            raise self._broken(error) from error
        jobs = self._unknown("jobs", JobRow, self._header.jobs)
        self._session.add_all([self._job_row(job) for job in jobs])
        self._session.flush()
        added = {job.id for job in jobs}
        cells = [line for line in self._lines if isinstance(line, SetCell) and line.job in added]
        self._session.add_all([_cell_row(cell) for cell in cells])
        self._session.flush()
        compared = [line for line in self._lines if isinstance(line, SetComparison)]
        for comparison in self._unknown("comparisons", ComparisonRow, compared):
            self._add_comparison(comparison)
        return Loaded(self._header.name, dict(self._new), dict(self._known))

    def _unknown(self, word: str, table: Any, records: Sequence[Any]) -> list[Any]:
        """Those of the records whose id the table does not hold."""
        ids = [record.id for record in records]
        known: set[str] = set()
        for start in range(0, len(ids), _AT_ONCE):
            some = sa.select(table.id).where(table.id.in_(ids[start : start + _AT_ONCE]))
            known.update(self._session.scalars(some))
        fresh = [record for record in records if record.id not in known]
        if records:
            self._new[word] += len(fresh)
            self._known[word] += len(records) - len(fresh)
        return fresh

    def _broken(self, error: Exception) -> InvalidRequestError:
        return InvalidRequestError(f"set {self._header.name}: a record cannot be read: {error}")

    def _whole(self, model: type[M], line_id: str, fields: dict[str, Any]) -> M:
        fields["details"] = {MARK: self._header.name, **fields.get("details", {})}
        try:
            return model.model_validate(fields)
        except ValidationError as error:
            raise misfit(f"set {self._header.name}", line_id, self._header, error) from error

    def _new_run(self, line: SetRun) -> NewRun:
        fields = {**line.record, "environment": self._header.environments[line.environment]}
        cell = line.record["cell"]
        fields["cell"] = {**cell, "case": Case.parse(cell["case"])}
        if fields.get("measurement"):
            blocks = [self._block(arm, self._samples[place]) for arm, place in line.samples]
            fields["measurement"] = {**fields["measurement"], "samples": blocks}
        record = self._whole(RunRecord, line.id, fields)
        return NewRun(record, line.imported, line.id, line.invalidated_at, line.invalid_reason)

    @staticmethod
    def _block(arm: str, line: SetSamples) -> SampleBlock:
        return SampleBlock.model_validate(
            {
                "arm": arm,
                "process": line.process,
                "latency_ms": unpack_float32(line.latency_ms),
                "visit_sizes": line.visit_sizes,
            }
        )

    def _add_check(self, line: SetCheck) -> None:
        fields = {**line.record, "environment": self._header.environments[line.environment]}
        insert_check(self._session, self._whole(CheckRecord, line.id, fields), line.id)

    def _job_row(self, job: SetJob) -> JobRow:
        fields = job.model_dump(mode="python", exclude={"kind", "state", "labels"})
        labels = {MARK: self._header.name, **job.labels}
        return JobRow(kind=job.kind.value, state=job.state.value, labels=labels, **fields)

    def _add_comparison(self, line: SetComparison) -> None:
        environment = insert_environment(self._session, self._header.environments[line.environment])
        left_out = {"kind", "environment", "job", "case", "verdict", "pass_"}
        fields = line.model_dump(exclude={*left_out, "base_run", "candidate_run", "log_ratios"})
        row = ComparisonRow(
            **fields,
            job_id=line.job,
            case_text=line.case,
            pass_=line.pass_.value,
            verdict=line.verdict.value,
            log_ratios=list(line.log_ratios),
            base_run_id=line.base_run,
            candidate_run_id=line.candidate_run,
            environment_id=environment,
        )
        self._session.add(row)
        self._session.flush()


def _cell_row(cell: SetCell) -> CellRow:
    return CellRow(
        job_id=cell.job,
        position=cell.position,
        case_index=cell.case_index,
        contender=cell.contender,
        case_text=cell.case,
        pass_=cell.pass_.value,
        cell_key=cell.cell_key,
        state=cell.state.value,
        outcome=cell.outcome.value if cell.outcome else None,
        reason=cell.reason,
        reused=cell.reused,
        run_id=cell.run,
        started_at=cell.started_at,
        ended_at=cell.ended_at,
    )


def summary(loaded: Iterable[Loaded]) -> list[str]:
    """A line for each set: `h200-checks: 35 checks new, 0 there already`."""
    lines = []
    for entry in loaded:
        words = (f"{n} {word} new, {entry.known[word]} known" for word, n in entry.new.items())
        lines.append(f"set {entry.name}: {'; '.join(words) or 'empty'}")
    return lines
