"""From table rows to the records that API, plots and pages share."""

from datetime import datetime

from sqlalchemy.orm import Session

from ..contract.result import CellView, JobView, OutputErrorView, Result
from ..contract.words import JobState
from .events import now
from .jobs import JobCounts, count_cells, queue_position
from .models import CellRow, JobRow, RunRow
from .workers import unserved_queues

SAME_COLUMNS = (
    "id",
    "contender",
    "kernel",
    "version",
    "params",
    "tokens",
    "hidden",
    "vocab",
    "dtype",
    "recipe",
    "outcome",
    "reason",
    "baseline",
    "environment_id",
    "worker_id",
    "processes",
    "protocol_version",
    "latency_ms",
    "latency_low_ms",
    "latency_high_ms",
    "samples",
    "baseline_ms",
    "floor_ms",
    "ratio_to_baseline",
    "ratio_low",
    "ratio_high",
    "floor_ratio",
    "tokens_per_s",
    "compile_s",
    "peak_forward_bytes",
    "held_bytes",
    "peak_backward_bytes",
    "outputs_bytes",
    "workspace_bytes",
    "grade",
    "flags",
    "imported",
    "invalidated_at",
    "invalid_reason",
    "started_at",
    "ended_at",
)
"""Columns of a run that a result carries under the same name, in the order of the API."""


def result_view(run: RunRow) -> Result:
    """A result with its errors; the row must carry environment and output errors."""
    errors = [
        OutputErrorView(
            output=row.output,
            relative_l2=row.relative_l2,
            ratio=row.ratio,
            max_abs=row.max_abs,
            detail=row.detail,
        )
        for row in run.output_errors
    ]
    return Result.model_validate(
        {
            **{name: getattr(run, name) for name in SAME_COLUMNS},
            "case": run.case_text,
            "pass": run.pass_,
            "device_name": run.environment.device_name,
            "device_type": run.environment.device_type,
            "errors": errors,
        }
    )


def cell_view(cell: CellRow) -> CellView:
    """One cell of a job."""
    return CellView.model_validate(
        {
            "position": cell.position,
            "contender": cell.contender,
            "case": cell.case_text,
            "pass": cell.pass_,
            "state": cell.state,
            "outcome": cell.outcome,
            "reason": cell.reason,
            "reused": cell.reused,
            "attempt": cell.attempt,
            "visits_done": cell.visits_done,
            "visits_total": cell.visits_total,
            "result_id": cell.run_id,
            "started_at": cell.started_at,
            "ended_at": cell.ended_at,
        }
    )


def job_views(session: Session, jobs: list[JobRow]) -> list[JobView]:
    """Jobs with their counts, in the order given."""
    counts = count_cells(session, [job.id for job in jobs])
    waits = unserved_queues(session, [job.id for job in jobs if job.state == JobState.QUEUED])
    return [_job_view(session, job, counts[job.id], waits.get(job.id)) for job in jobs]


def _job_view(session: Session, job: JobRow, counts: JobCounts, waits_for: str | None) -> JobView:
    remaining = None if waits_for else remaining_seconds(job, counts, now())
    return JobView.model_validate(
        {
            "id": job.id,
            "kind": job.kind,
            "state": job.state,
            "reason": job.reason,
            "request": job.request,
            "labels": job.labels,
            "accelerator": job.accelerator,
            "priority": job.priority,
            "cells_total": counts.total,
            "cells_queued": counts.queued,
            "cells_running": counts.running,
            "cells_done": counts.done,
            "progress": counts.visited / counts.total if counts.total else 1.0,
            "outcomes": counts.outcomes,
            "queue_position": queue_position(session, job),
            "waits_for": waits_for,
            "estimated_s": job.estimated_s,
            "remaining_s": remaining,
            "created_at": job.created_at,
            "started_at": job.started_at,
            "ended_at": job.ended_at,
        }
    )


EARLY_SHARE = 0.15
"""Below this share of the work the pace is that of installing and compiling, not of measuring."""


def remaining_seconds(job: JobRow, counts: JobCounts, moment: datetime) -> float | None:
    """Seconds to the end: the plan's estimate first, then the pace of the work done so far."""
    if JobState(job.state).ended:
        return 0.0
    if job.started_at is None:
        return job.estimated_s
    elapsed = (moment - job.started_at).total_seconds()
    if counts.visited < EARLY_SHARE * counts.total:
        return max(job.estimated_s - elapsed, 0.0)
    return elapsed / counts.visited * (counts.total - counts.visited)
