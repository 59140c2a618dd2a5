"""A run from its record to its rows, and the one way in which runs are stored: many at once."""

import json
import math
import zlib
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
import sqlalchemy as sa
from sqlalchemy.orm import Session

from ..contract.ids import new_id
from ..contract.run import (
    Environment,
    ErrorReport,
    LatencySummary,
    Measurement,
    MemoryReport,
    RunRecord,
)
from .events import now
from .models import Base, EnvironmentRow, OutputErrorRow, RunRow
from .tallies import count_in, insert_of


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


_NOTHING: dict[str, Any] = dict.fromkeys(Base.metadata.tables["runs"].columns.keys())
"""Rows that are inserted together have the same columns."""


def environment_id(environment: Environment) -> str:
    """Id of an environment: its two fingerprints."""
    return f"{environment.hardware_fingerprint}-{environment.software_fingerprint}"


def _environment_columns(environment: Environment) -> dict[str, Any]:
    return {
        "id": environment_id(environment),
        "first_seen_at": now(),
        **finite_json(environment.model_dump(exclude={"device_uuid_hash"})),
    }


def insert_environment(session: Session, environment: Environment) -> str:
    """Store an environment once; returns its id."""
    row = _environment_columns(environment)
    # two workers of one machine may store it at the same moment
    insert = insert_of(session)
    session.execute(insert(EnvironmentRow).values(row).on_conflict_do_nothing())
    return str(row["id"])


class NewRun(NamedTuple):
    """A run to store, under a new id unless one is given."""

    record: RunRecord
    imported: bool = False
    run_id: str | None = None
    invalidated_at: datetime | None = None
    invalid_reason: str | None = None


def insert_runs(session: Session, runs: Sequence[NewRun]) -> list[str]:
    """Store runs with their errors and samples, and count them in; returns their ids in order."""
    if not runs:
        return []
    places = set[str]()
    rows: list[dict[str, Any]] = []
    errors: list[dict[str, Any]] = []
    samples: list[dict[str, Any]] = []
    for run in runs:
        record, run_id = run.record, run.run_id or new_id("run")
        place = environment_id(record.environment)
        if place not in places:
            insert_environment(session, record.environment)
            places.add(place)
        row = {**_NOTHING, **_run_columns(run_id, record, place), "imported": run.imported}
        row["pass"] = row.pop("pass_")
        row["invalidated_at"], row["invalid_reason"] = run.invalidated_at, run.invalid_reason
        rows.append(row)
        errors.extend(_error_columns(run_id, record.errors))
        samples.extend(_sample_columns(run_id, record.measurement))
    # the tables themselves: the ORM would take as long again to look at each row
    for name, found in (("runs", rows), ("output_errors", errors), ("samples", samples)):
        if found:
            session.execute(sa.insert(Base.metadata.tables[name]), found)
    count_in(session, rows)
    return [row["id"] for row in rows]


def insert_run(
    session: Session, record: RunRecord, imported: bool = False, run_id: str | None = None
) -> str:
    """Store a run with its errors and samples; returns its id, a new one unless given."""
    return insert_runs(session, [NewRun(record, imported, run_id)])[0]


def unstored_run(record: RunRecord) -> RunRow:
    """The row that `insert_run` would store, for reports of runs without a server."""
    environment = EnvironmentRow(**_environment_columns(record.environment))
    row = RunRow(**_run_columns("local", record, environment.id))
    row.imported = False
    row.environment = environment
    row.output_errors = [OutputErrorRow(**each) for each in _error_columns("local", record.errors)]
    return row


def _run_columns(run_id: str, record: RunRecord, environment_id: str) -> dict[str, Any]:
    cell = record.cell
    return dict(
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
    # as text and back: pydantic writes null for NaN, and both ways are in compiled code
    dumped: dict[str, Any] = json.loads(record.model_dump_json(exclude=left_out))
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


def _error_columns(run_id: str, errors: ErrorReport | None) -> Iterator[dict[str, Any]]:
    for output in errors.outputs if errors else ():
        detail = {
            name: finite(value) if isinstance(value, float) else value
            for name, value in output.model_dump(exclude={"output"}).items()
        }
        yield dict(
            run_id=run_id,
            output=output.output,
            relative_l2=finite(output.relative_l2),
            ratio=finite(output.ratio),
            max_abs=finite(output.max_abs),
            detail=detail,
        )


def _sample_columns(run_id: str, timing: Measurement | None) -> Iterator[dict[str, Any]]:
    for block in timing.samples if timing else ():
        yield dict(
            run_id=run_id,
            arm=block.arm.value,
            process=block.process,
            n=len(block.latency_ms),
            visit_sizes=list(block.visit_sizes),
            latency_ms=pack_samples(block.latency_ms),
        )
