"""What one run of a cell leaves behind: frozen records, stored whole and never changed.

History of PROTOCOL_VERSION: 1 = visits in turns with lead-in, baseline and floor in the same
process, memory and errors from calls of their own. 2 = the arm that goes first alternates over
processes, too; warm-up until power, clock and temperature are steady. 3 = products of our own run
before each call on a GPU, so that the time the host takes to launch the first kernels is not in it.
"""

import math
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from .case import Case
from .contender import Contender
from .words import Arm, Flag, Grade, Outcome, Pass

PROTOCOL_VERSION = 3


def _nan_of_null(value: object) -> object:
    return math.nan if value is None else value


OrNan = Annotated[float, BeforeValidator(_nan_of_null)]
"""NaN where the number is not known, as in imported results; JSON, which has no NaN, holds null."""


class Record(BaseModel):
    """Base of the stored records: immutable, nothing extra."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Cell(Record):
    """One contender on one case and pass: the unit of work, progress, retry and result."""

    contender: Contender
    case: Case
    pass_: Annotated[Pass, Field(alias="pass")]

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    @property
    def key(self) -> str:
        """Identity of the cell over jobs."""
        return f"{self.contender.text} | {self.case.text} | {self.pass_}"


class CaseWork(Record):
    """A case of a lot with its cells: what a worker measures in one step."""

    case: Case
    contenders: tuple[Contender, ...]
    passes: tuple[Pass, ...]
    is_comparison: bool = False
    """Whether its two contenders, base and candidate, are measured until there is a verdict."""


class TrainingWork(Record):
    """The runs of one seed, which a worker trains in turns in one step."""

    seed: int
    contenders: tuple[Contender, ...]


class Lot(Record):
    """Part of a job that one worker takes at a time: consecutive cases, all their contenders."""

    index: int
    queue: str
    cases: tuple[CaseWork | TrainingWork, ...]
    estimated_s: float


class Environment(Record):
    """Where a run happened. The two fingerprints decide which runs may be compared."""

    device_type: Literal["cpu", "cuda"]
    device_name: str
    device_uuid_hash: str
    memory_bytes: int
    facts: dict[str, str | int | float | bool | None]
    """Everything else, by name: driver, CUDA, torch, triton, SM count, L2, power limit ..."""
    hardware_fingerprint: str
    software_fingerprint: str


class LatencySummary(Record):
    """Summary of the samples of one arm, in milliseconds, over all processes of the run."""

    n: int
    median_ms: OrNan
    mean_ms: OrNan
    minimum_ms: OrNan
    q1_ms: OrNan
    q3_ms: OrNan
    p95_ms: OrNan
    mad_ms: OrNan
    outliers: int
    host_launch_median_ms: float | None = None


class SampleBlock(Record):
    """Raw samples of one arm in one process, visit after visit, lead-in left out.

    `latency_ms` in the order measured; `visit_sizes` says how many belong to each visit.
    """

    arm: Arm
    process: int
    latency_ms: tuple[float, ...]
    visit_sizes: tuple[int, ...]


class Interval(Record):
    """An estimate with its 95 % interval; the bounds are null where one process cannot give any."""

    value: float
    low: float | None = None
    high: float | None = None
    processes: int = 1


class Measurement(Record):
    """Timing of a cell: the contender, its baseline and its floor, taken in turns."""

    latency: LatencySummary
    baseline: LatencySummary | None = None
    floor: LatencySummary | None = None
    ratio_to_baseline: Interval | None = None
    floor_ratio: Interval | None = None
    compile_s: OrNan = 0.0
    first_call_s: OrNan = 0.0
    recompiles: int = 0
    autotune: str | None = None
    tokens_per_s: float | None = None
    clock_mhz: Interval | None = None
    power_w: Interval | None = None
    temperature_c: Interval | None = None
    samples: tuple[SampleBlock, ...] = ()


class MemoryReport(Record):
    """Bytes over the base (inputs, weights): forward peak, held, backward peak, workspace.

    `workspace_bytes` = the larger peak - base - outputs: what the contender needs to do its work.
    `held_bytes` stays allocated between forward and backward.
    """

    base_bytes: int
    peak_forward_bytes: int
    held_bytes: int
    peak_backward_bytes: int
    outputs_bytes: int
    workspace_bytes: int
    reserved_bytes: int | None = None
    alloc_retries: int = 0
    repeats_equal: bool = True


class OutputError(Record):
    """Error of one output against the float64 reference; `ratio` divides by the yardstick's own."""

    output: Literal["loss", "dx", "dw", "db"]
    relative_l2: float | None
    yardstick_relative_l2: float | None = None
    ratio: float | None = None
    max_abs: float | None = None
    cosine_distance: float | None = None
    bias: float | None = None
    best_fit_scale: float | None = None
    zero_share: float | None = None
    ulp_p50: float | None = None
    ulp_p99: float | None = None
    not_finite: int = 0


class ErrorReport(Record):
    """Errors of every output, the grade they give, and whether the bits repeat."""

    outputs: tuple[OutputError, ...]
    grade: Grade | None = None
    worst_output: str | None = None
    deterministic_in_process: bool | None = None
    deterministic_across: bool | None = None
    checksum: str | None = None
    notes: tuple[str, ...] = ()


class RunRecord(Record):
    """One execution of a cell, in one environment, by one worker, over P processes."""

    cell: Cell
    version: str | None = None
    """Version that ran: the contender's, or torch's for kernels built into torch."""
    outcome: Outcome
    reason: str | None = None
    baseline: Contender
    environment: Environment
    processes: int
    seed: int
    protocol_version: int = PROTOCOL_VERSION
    measurement: Measurement | None = None
    memory: MemoryReport | None = None
    errors: ErrorReport | None = None
    flags: tuple[Flag, ...] = ()
    details: dict[str, Any] = {}
    """Facts of this run only: package version and source hash, profiler kernel names, log hints."""
    worker_id: str = ""
    started_at: datetime
    ended_at: datetime
