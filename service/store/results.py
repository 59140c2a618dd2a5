"""Results: insert a run, find runs by filters, read samples, invalidate. Units are in the names."""

import math
import operator
import zlib
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any

import numpy as np
import sqlalchemy as sa
from pydantic import BaseModel, ConfigDict
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.orm import Session, selectinload

from ..contract.errors import NotFoundError
from ..contract.ids import new_id
from ..contract.machine import Machine
from ..contract.run import (
    PROTOCOL_VERSION,
    Environment,
    ErrorReport,
    LatencySummary,
    Measurement,
    MemoryReport,
    RunRecord,
    SampleBlock,
)
from ..contract.words import RETRIED, Outcome
from .events import now
from .known import KnownRun
from .models import CellRow, EnvironmentRow, JobRow, OutputErrorRow, RunRow, SampleRow


def finite(value: float | None) -> float | None:
    """The value, or None where it is NaN or infinite: JSON has neither."""
    return value if value is not None and math.isfinite(value) else None


def finite_json(data: Any) -> Any:
    """JSON data with null for every NaN and infinity: PostgreSQL refuses them, so do browsers."""
    if isinstance(data, dict):
        return {key: finite_json(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [finite_json(value) for value in data]
    return finite(data) if isinstance(data, float) else data


def pack_samples(latency_ms: Sequence[float]) -> bytes:
    """float32 little-endian milliseconds, zlib."""
    return zlib.compress(np.asarray(latency_ms, dtype="<f4").tobytes())


def unpack_samples(blob: bytes) -> list[float]:
    """Inverse of `pack_samples`, at float32 precision."""
    return [float(value) for value in np.frombuffer(zlib.decompress(blob), dtype="<f4")]


def _environment_columns(environment: Environment) -> dict[str, Any]:
    return {
        "id": f"{environment.hardware_fingerprint}-{environment.software_fingerprint}",
        "first_seen_at": now(),
        **finite_json(environment.model_dump(exclude={"device_uuid_hash"})),
    }


def insert_environment(session: Session, environment: Environment) -> str:
    """Store an environment once; returns its id."""
    row = _environment_columns(environment)
    # two workers of one machine may store it at the same moment
    insert = sqlite_insert if session.get_bind().dialect.name == "sqlite" else postgresql_insert
    session.execute(insert(EnvironmentRow).values(row).on_conflict_do_nothing())
    return str(row["id"])


def insert_run(
    session: Session, record: RunRecord, imported: bool = False, run_id: str | None = None
) -> str:
    """Store a run with its errors and samples; returns its id, a new one unless given."""
    run_id = run_id or new_id("run")
    row = _run_row(run_id, record, insert_environment(session, record.environment))
    row.imported = imported
    session.add(row)
    session.flush()
    session.add_all(_error_rows(run_id, record.errors))
    session.add_all(_sample_rows(run_id, record.measurement))
    return run_id


def unstored_run(record: RunRecord) -> RunRow:
    """The row that `insert_run` would store, for reports of runs without a server."""
    environment = EnvironmentRow(**_environment_columns(record.environment))
    row = _run_row("local", record, environment.id)
    row.imported = False
    row.environment = environment
    row.output_errors = list(_error_rows("local", record.errors))
    return row


def _run_row(run_id: str, record: RunRecord, environment_id: str) -> RunRow:
    cell = record.cell
    return RunRow(
        id=run_id,
        cell_key=cell.key,
        contender=cell.contender.text,
        kernel=cell.contender.kernel,
        version=record.version,
        params=cell.contender.params_text,
        case_text=cell.case.text,
        tokens=cell.case.max_tokens,
        hidden=cell.case.hidden,
        vocab=cell.case.vocab,
        dtype=cell.case.dtype.value,
        recipe=cell.case.recipe.value,
        pass_=cell.pass_.value,
        outcome=record.outcome.value,
        reason=record.reason,
        baseline=record.baseline.text,
        environment_id=environment_id,
        worker_id=record.worker_id,
        processes=record.processes,
        seed=record.seed,
        protocol_version=record.protocol_version,
        flags=[flag.value for flag in record.flags],
        started_at=record.started_at,
        ended_at=record.ended_at,
        record=_record_json(record),
        **_timing_columns(record.measurement),
        **_memory_columns(record.memory),
        grade=record.errors.grade.value if record.errors and record.errors.grade else None,
    )


def _record_json(record: RunRecord) -> dict[str, Any]:
    """The whole record but raw samples and what has columns of its own; NaN becomes null."""
    left_out: dict[str, Any] = {"environment": True, "cell": True, "measurement": {"samples"}}
    dumped: dict[str, Any] = finite_json(record.model_dump(mode="json", exclude=left_out))
    return dumped


def _timing_columns(timing: Measurement | None) -> dict[str, Any]:
    if timing is None:
        return {}
    ratio, floor = timing.ratio_to_baseline, timing.floor_ratio
    latency: LatencySummary = timing.latency
    return {
        "latency_ms": finite(latency.median_ms),
        "latency_low_ms": finite(latency.q1_ms),
        "latency_high_ms": finite(latency.q3_ms),
        "samples": latency.n,
        "baseline_ms": finite(timing.baseline.median_ms) if timing.baseline else None,
        "floor_ms": finite(timing.floor.median_ms) if timing.floor else None,
        "ratio_to_baseline": finite(ratio.value) if ratio else None,
        "ratio_low": finite(ratio.low) if ratio else None,
        "ratio_high": finite(ratio.high) if ratio else None,
        "floor_ratio": finite(floor.value) if floor else None,
        "tokens_per_s": finite(timing.tokens_per_s),
        "compile_s": finite(timing.compile_s),
    }


def _memory_columns(memory: MemoryReport | None) -> dict[str, Any]:
    names = (
        "peak_forward_bytes",
        "held_bytes",
        "peak_backward_bytes",
        "outputs_bytes",
        "workspace_bytes",
    )
    return {name: getattr(memory, name) for name in names} if memory else {}


def _error_rows(run_id: str, errors: ErrorReport | None) -> Iterable[OutputErrorRow]:
    for output in errors.outputs if errors else ():
        detail = {
            name: finite(value) if isinstance(value, float) else value
            for name, value in output.model_dump(exclude={"output"}).items()
        }
        yield OutputErrorRow(
            run_id=run_id,
            output=output.output,
            relative_l2=finite(output.relative_l2),
            ratio=finite(output.ratio),
            max_abs=finite(output.max_abs),
            detail=detail,
        )


def _sample_rows(run_id: str, timing: Measurement | None) -> Iterable[SampleRow]:
    for block in timing.samples if timing else ():
        yield SampleRow(
            run_id=run_id,
            arm=block.arm.value,
            process=block.process,
            n=len(block.latency_ms),
            visit_sizes=list(block.visit_sizes),
            latency_ms=pack_samples(block.latency_ms),
        )


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
    "imported": (RunRow.imported, operator.eq),
}


def filtered(query: sa.Select[Any], wanted: ResultFilter) -> sa.Select[Any]:
    """Narrow a query over `RunRow` to the wanted results."""
    for name, column in _EQUAL.items():
        values = getattr(wanted, name)
        if values:
            query = query.where(column.in_(values))
    if wanted.gpu:
        environments = sa.select(EnvironmentRow.id).where(
            EnvironmentRow.device_name.in_(wanted.gpu)
        )
        query = query.where(RunRow.environment_id.in_(environments))
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
    if not wanted.include_invalid:
        query = query.where(RunRow.invalidated_at.is_(None))
    return query


def _of_labels(labels: Sequence[str]) -> sa.Select[Any]:
    """Ids of results in jobs that carry one of the labels, each written `name=value`."""
    pairs = [label.partition("=") for label in labels]
    carries = sa.or_(*(JobRow.labels[name].as_string() == value for name, _, value in pairs))
    return (
        sa.select(CellRow.run_id)
        .join(JobRow, JobRow.id == CellRow.job_id)
        .where(carries, CellRow.run_id.is_not(None))
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


def runs_of_job(session: Session, job_id: str) -> list[tuple[CellRow, RunRow | None]]:
    """Every cell of a job in order, with its result where it has one."""
    cells = session.scalars(
        sa.select(CellRow)
        .where(CellRow.job_id == job_id)
        .order_by(CellRow.position)
        .options(
            selectinload(CellRow.run).selectinload(RunRow.environment),
            selectinload(CellRow.run).selectinload(RunRow.output_errors),
        )
    )
    return [(cell, cell.run) for cell in cells]


def invalidate_run(session: Session, run_id: str, reason: str) -> RunRow:
    """Mark a result as not to be used, with the reason; nothing is deleted."""
    run = get_run(session, run_id)
    run.invalidated_at, run.invalid_reason = now(), reason
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
            sa.select(RunRow.cell_key, RunRow.id, RunRow.outcome, RunRow.reason)
            .where(
                RunRow.cell_key.in_(wanted[start : start + 500]),
                RunRow.environment_id.in_(environments),
                RunRow.protocol_version == PROTOCOL_VERSION,
                RunRow.processes >= processes,
                same_base,
                RunRow.invalidated_at.is_(None),
                RunRow.imported.is_(False),
                RunRow.outcome.not_in([Outcome(outcome).value for outcome in RETRIED]),
            )
            .order_by(RunRow.id)
        )
        for key, run_id, outcome, reason in rows:
            found[key] = KnownRun(run_id, outcome, reason)
    return found
