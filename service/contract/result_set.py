"""A set of results in one file: who made it, and every record with its raw samples.

A gzip of JSON lines. Line 1 is a `SetHeader`; each line after it is one of the records below, told
apart by `kind`. What a line refers to (samples, runs) stands before it. docs/reference/set-files.md
describes the format for readers in other languages.
"""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter

from .run import Environment, Record
from .words import Arm, CellState, JobKind, JobState, Outcome, Pass, Verdict

FORMAT_VERSION = 1
"""Changes when an older reader would misread a file; new fields of records do not change it."""
SUFFIX = ".jsonl.gz"

SetName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]*$", max_length=64)]
RecordId = Annotated[str, Field(min_length=1)]
"""Never blank: a record without an id would be another one at each loading."""


class SetJob(Record):
    """An ended job, as it was asked for."""

    id: RecordId
    kind: JobKind
    state: JobState
    reason: str | None
    request: dict[str, Any]
    labels: dict[str, str]
    accelerator: str
    priority: int
    processes: int
    timeout_s: float
    cells_total: int
    estimated_s: float
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None


class SetHeader(Record):
    """Where a set comes from, and the SHA-256 of every byte behind the first line."""

    format: Literal["lossbench-set"] = "lossbench-set"
    format_version: int = FORMAT_VERSION
    lossbench_version: str
    name: SetName
    exported_at: datetime
    jobs: tuple[SetJob, ...]
    environments: tuple[Environment, ...]
    """Referred to by their place. Those of runs have no hash of the device's UUID."""
    counts: dict[str, int]
    """Lines of each kind."""
    body_sha256: str


class SetSamples(Record):
    """Raw samples of one arm in one process; several runs may refer to the same."""

    kind: Literal["samples"] = "samples"
    process: int
    visit_sizes: tuple[int, ...]
    latency_ms: str
    """float32 little-endian milliseconds by byte planes (all first bytes, then all second ...), in
    base64: neighbours that resemble each other compress better."""


class SetRun(Record):
    """One result: a RunRecord without environment and samples, which stand elsewhere."""

    kind: Literal["run"] = "run"
    id: RecordId
    environment: int
    samples: tuple[tuple[Arm, int], ...]
    """Arm, and the place of its samples among the lines of kind `samples`."""
    imported: bool
    invalidated_at: datetime | None
    invalid_reason: str | None
    record: dict[str, Any]


class SetCheck(Record):
    """One check: a CheckRecord without its environment."""

    kind: Literal["check"] = "check"
    id: RecordId
    environment: int
    record: dict[str, Any]


class SetCell(Record):
    """A cell of a job of the set, and the run that answers it."""

    kind: Literal["cell"] = "cell"
    job: str
    position: int
    case_index: int
    contender: str
    case: str
    pass_: Annotated[Pass, Field(alias="pass")]
    cell_key: str
    state: CellState
    outcome: Outcome | None
    reason: str | None
    reused: bool
    run: str | None
    started_at: datetime | None
    ended_at: datetime | None

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class SetComparison(Record):
    """A verdict between two contenders; times in the log ratios are candidate over base."""

    kind: Literal["comparison"] = "comparison"
    id: RecordId
    environment: int
    job: str | None
    base: str
    candidate: str
    case: str
    pass_: Annotated[Pass, Field(alias="pass")]
    verdict: Verdict
    reason: str | None
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    detectable_effect: float | None
    processes: int
    looks: int
    log_ratios: tuple[Any, ...]
    base_run: str | None
    candidate_run: str | None
    protocol_version: int
    measured_at: datetime

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


SetLine = SetSamples | SetRun | SetCheck | SetCell | SetComparison
READ_LINE: TypeAdapter[SetLine] = TypeAdapter(Annotated[SetLine, Field(discriminator="kind")])


class ResultSet(Record):
    """A set that was read: its header, and its lines in order."""

    header: SetHeader
    lines: tuple[SetLine, ...]
