"""A stored result as the API serves it and as plots and pages read it: flat, units in the names."""

from datetime import datetime
from typing import Annotated, Any

from pydantic import Field

from .run import Record
from .words import CellState, Dtype, Flag, Grade, JobKind, JobState, Outcome, Pass, Recipe


class OutputErrorView(Record):
    """Error of one output (loss, dx, dw, db) of a result."""

    output: str
    relative_l2: float | None
    ratio: float | None
    max_abs: float | None
    detail: dict[str, Any] = {}


class Result(Record):
    """One run of one cell. Numbers that could not be taken are null; `reason` says why."""

    id: str
    contender: str
    kernel: str
    version: str | None
    params: str
    case: str
    tokens: int
    hidden: int
    vocab: int
    dtype: Dtype
    recipe: Recipe
    pass_: Annotated[Pass, Field(alias="pass", serialization_alias="pass")]
    outcome: Outcome
    reason: str | None
    baseline: str
    device_name: str
    device_type: str
    environment_id: str
    worker_id: str
    processes: int
    protocol_version: int
    latency_ms: float | None
    latency_low_ms: float | None
    latency_high_ms: float | None
    samples: int | None
    baseline_ms: float | None
    floor_ms: float | None
    ratio_to_baseline: float | None
    ratio_low: float | None
    ratio_high: float | None
    floor_ratio: float | None
    tokens_per_s: float | None
    compile_s: float | None
    peak_forward_bytes: int | None
    held_bytes: int | None
    peak_backward_bytes: int | None
    outputs_bytes: int | None
    workspace_bytes: int | None
    grade: Grade | None
    errors: tuple[OutputErrorView, ...]
    flags: tuple[Flag, ...]
    imported: bool
    invalidated_at: datetime | None
    invalid_reason: str | None
    started_at: datetime
    ended_at: datetime

    @property
    def label(self) -> str:
        """The contender with the version that ran, as plots and tables name it."""
        params = f"[{self.params}]" if self.params else ""
        version = f"@{self.version}" if self.version else ""
        return f"{self.kernel}{version}{params}"

    @property
    def worst_output(self) -> str | None:
        """Output that the grade comes from: the one with the largest error over the yardstick."""
        rated = [error for error in self.errors if error.ratio is not None]
        if self.grade is None or not rated:
            return None
        return max(rated, key=lambda error: error.ratio or 0.0).output

    def error_of(self, output: str) -> OutputErrorView | None:
        """Error of one output, or None where it was not measured."""
        return next((error for error in self.errors if error.output == output), None)


class CellView(Record):
    """One cell of a job: progress, and the id of the result that answers it."""

    position: int
    contender: str
    case: str
    pass_: Annotated[Pass, Field(alias="pass", serialization_alias="pass")]
    state: CellState
    outcome: Outcome | None
    reason: str | None
    reused: bool
    attempt: int
    visits_done: int
    visits_total: int
    result_id: str | None
    started_at: datetime | None
    ended_at: datetime | None


class JobView(Record):
    """A job: state, counts, place in the queue, estimate."""

    id: str
    kind: JobKind
    state: JobState
    reason: str | None
    request: dict[str, Any]
    labels: dict[str, str]
    accelerator: str
    priority: int
    cells_total: int
    cells_queued: int
    cells_running: int
    cells_done: int
    progress: float
    """Share of the work that is done, 0 .. 1: a running cell counts by its visits."""
    outcomes: dict[Outcome, int]
    queue_position: int
    waits_for: str | None = None
    """Queue that a queued job waits on and that no live worker takes; else null."""
    estimated_s: float
    remaining_s: float | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
