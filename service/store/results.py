"""Results: find runs by filters, read samples, invalidate. Units are in the names."""

import operator
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from pydantic import BaseModel, ConfigDict
from sqlalchemy.orm import Session, selectinload

from ..contract.errors import NotFoundError
from ..contract.machine import Machine
from ..contract.run import PROTOCOL_VERSION, SampleBlock
from ..contract.words import RETRIED, Outcome
from .events import now
from .known import KnownRun
from .models import CellRow, EnvironmentRow, JobRow, RunRow, SampleRow
from .run_rows import (
    finite,
    finite_json,
    insert_environment,
    insert_run,
    pack_samples,
    unpack_samples,
    unstored_run,
)
from .tallies import key_of_row, recount

__all__ = [
    "ResultFilter",
    "carry_labels",
    "filtered",
    "finite",
    "finite_json",
    "get_run",
    "get_samples",
    "insert_environment",
    "insert_run",
    "invalidate_run",
    "known_runs",
    "list_runs",
    "pack_samples",
    "unpack_samples",
    "unstored_run",
]


class ResultFilter(BaseModel):
    """Filters of the results list; lists are alternatives, all fields together narrow."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kernel: list[str] = []
    version: list[str] = []
    params: list[str] = []
    tokens: list[int] = []
    hidden: list[int] = []
    vocab: list[int] = []
    dtype: list[str] = []
    pass_: list[str] = []
    recipe: list[str] = []
    outcome: list[str] = []
    gpu: list[str] = []
    job: list[str] = []
    label: list[str] = []
    case: list[str] = []
    contender: list[str] = []
    since: datetime | None = None
    until: datetime | None = None
    tokens_gte: int | None = None
    tokens_lte: int | None = None
    hidden_gte: int | None = None
    hidden_lte: int | None = None
    vocab_gte: int | None = None
    vocab_lte: int | None = None
    include_invalid: bool = False
    imported: bool | None = None


_EQUAL = {
    "kernel": RunRow.kernel,
    "version": RunRow.version,
    "params": RunRow.params,
    "tokens": RunRow.tokens,
    "hidden": RunRow.hidden,
    "vocab": RunRow.vocab,
    "dtype": RunRow.dtype,
    "pass_": RunRow.pass_,
    "recipe": RunRow.recipe,
    "outcome": RunRow.outcome,
    "case": RunRow.case_text,
    "contender": RunRow.contender,
}

_BOUNDS: dict[str, tuple[Any, Callable[[Any, Any], Any]]] = {
    "since": (RunRow.started_at, operator.ge),
    "until": (RunRow.started_at, operator.lt),
    "tokens_gte": (RunRow.tokens, operator.ge),
    "tokens_lte": (RunRow.tokens, operator.le),
    "hidden_gte": (RunRow.hidden, operator.ge),
    "hidden_lte": (RunRow.hidden, operator.le),
    "vocab_gte": (RunRow.vocab, operator.ge),
    "vocab_lte": (RunRow.vocab, operator.le),
}


def filtered(query: sa.Select[Any], wanted: ResultFilter, walking: bool = False) -> sa.Select[Any]:
    """Narrow a query over `RunRow` to the wanted results.

    `walking`: the query goes along an index of its own, and no filter may bring another one in.
    """
    for name, column in _EQUAL.items():
        values = getattr(wanted, name)
        if values:
            # imported results are few, and stand in an index of their own
            bare = walking or (wanted.imported is True and name != "case")
            query = query.where((_bare(column) if bare else column).in_(values))
    if wanted.gpu:
        environments = sa.select(EnvironmentRow.id).where(
            EnvironmentRow.device_name.in_(wanted.gpu)
        )
        # its index would collect and sort all results of a GPU's environments
        query = query.where(_bare(RunRow.environment_id).in_(environments))
    if wanted.job:
        of_jobs = sa.select(CellRow.run_id).where(
            CellRow.job_id.in_(wanted.job), CellRow.run_id.is_not(None)
        )
        query = query.where(RunRow.id.in_(of_jobs))
    if wanted.label:
        query = query.where(RunRow.id.in_(_of_labels(wanted.label)))
    for name, (column, holds) in _BOUNDS.items():
        bound = getattr(wanted, name)
        if bound is not None:
            query = query.where(holds(column, bound))
    if wanted.imported is not None:
        # said outright, not as a parameter: the index of imported results is a partial one
        query = query.where(RunRow.imported.is_(wanted.imported))
    if not wanted.include_invalid:
        query = query.where(RunRow.invalidated_at.is_(None))
    return query


def _bare(column: Any) -> Any:
    """The same value as an expression, which no index of the column serves."""
    return column.concat("") if isinstance(column.type, sa.Text) else column + 0


def carry_labels(labels: Sequence[str]) -> sa.ColumnElement[bool]:
    """Whether a job carries one of the labels, each written `name=value`."""
    pairs = [label.partition("=") for label in labels]
    return sa.or_(*(JobRow.labels[name].as_string() == value for name, _, value in pairs))


def _of_labels(labels: Sequence[str]) -> sa.Select[Any]:
    """Ids of results in jobs that carry one of the labels."""
    return (
        sa.select(CellRow.run_id)
        .join(JobRow, JobRow.id == CellRow.job_id)
        .where(carry_labels(labels), CellRow.run_id.is_not(None))
    )


_WHOLE = (selectinload(RunRow.environment), selectinload(RunRow.output_errors))


def list_runs(
    session: Session, wanted: ResultFilter, before: str | None = None, limit: int = 100
) -> list[RunRow]:
    """Results, newest first, with environment and errors; `before` is the last id seen."""
    query = filtered(sa.select(RunRow), wanted).order_by(RunRow.id.desc()).limit(limit)
    if before:
        query = query.where(RunRow.id < before)
    return list(session.scalars(query.options(*_WHOLE)))


def get_run(session: Session, run_id: str) -> RunRow:
    """One result. Raises NotFoundError."""
    run = session.scalar(sa.select(RunRow).where(RunRow.id == run_id).options(*_WHOLE))
    if run is None:
        raise NotFoundError(f"there is no result {run_id!r}")
    return run


def get_samples(session: Session, run_id: str) -> list[SampleBlock]:
    """Raw samples of a result, by arm and process."""
    rows = session.scalars(
        sa.select(SampleRow)
        .where(SampleRow.run_id == run_id)
        .order_by(SampleRow.arm, SampleRow.process)
    )
    return [
        SampleBlock.model_validate(
            {
                "arm": row.arm,
                "process": row.process,
                "latency_ms": unpack_samples(row.latency_ms),
                "visit_sizes": row.visit_sizes,
            }
        )
        for row in rows
    ]


def invalidate_run(session: Session, run_id: str, reason: str) -> RunRow:
    """Mark a result as not to be used, with the reason; nothing is deleted."""
    run = get_run(session, run_id)
    run.invalidated_at, run.invalid_reason = now(), reason
    session.flush()
    recount(session, key_of_row(run))
    return run


def known_runs(
    session: Session,
    keys: Iterable[str],
    machines: Sequence[Machine],
    processes: int,
    baseline: str | None = None,
) -> dict[str, KnownRun]:
    """The newest stored results that answer these cells in the same environment, by cell key.

    `baseline` None takes results with any; a ratio to another baseline answers another question.
    Empty without live machines: what was measured elsewhere does not answer for this device.
    """
    environments = [f"{m.hardware_fingerprint}-{m.software_fingerprint}" for m in machines]
    wanted = list(keys)
    same_base = sa.true() if baseline is None else RunRow.baseline == baseline
    found: dict[str, KnownRun] = {}
    for start in range(0, len(wanted), 500):
        rows = session.execute(
            sa.select(RunRow.cell_key, RunRow.id, RunRow.outcome, RunRow.reason).where(
                RunRow.cell_key.in_(wanted[start : start + 500]),
                _bare(RunRow.environment_id).in_(environments),
                RunRow.protocol_version == PROTOCOL_VERSION,
                RunRow.processes >= processes,
                same_base,
                RunRow.invalidated_at.is_(None),
                RunRow.imported.is_(False),
                RunRow.outcome.not_in([Outcome(outcome).value for outcome in RETRIED]),
            )
        )
        # sorted here: for an order by id SQLite would read all that was measured in an environment
        for key, run_id, outcome, reason in sorted(rows, key=lambda row: row[1]):
            found[key] = KnownRun(run_id, outcome, reason)
    return found
