"""What decides a claim: measured cells, comparisons, and the finding that they lead to."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated

from pydantic import Field

from .claim import ClaimVerdict
from .run import Record
from .words import Flag, Grade, Outcome, Pass


@dataclass(frozen=True)
class CellError:
    """Error of one output of a measured cell; `ratio` is over torch's own."""

    relative_l2: float | None = None
    ratio: float | None = None
    max_abs: float | None = None


@dataclass(frozen=True)
class MeasuredCell:
    """The newest valid result of a cell in one environment. None where a number was not taken.

    Times in ms, `floors_ms` one median for each process; `ratio` is time over the baseline's with
    its 95 % interval.
    """

    result_id: str
    """Empty for a cell that failed, which leaves no result: `job_id` says where it is told."""
    key: str
    contender: str
    case: str
    pass_: Pass
    environment_id: str
    device_name: str
    protocol_version: int
    outcome: Outcome
    measured_at: datetime
    reason: str | None = None
    flags: frozenset[Flag] = frozenset()
    grade: Grade | None = None
    baseline: str = "torch-naive"
    processes: int = 1
    latency_ms: float | None = None
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    floor_ms: float | None = None
    floors_ms: tuple[float, ...] = ()
    workspace_bytes: int | None = None
    peak_bytes: int | None = None
    errors: Mapping[str, CellError] = field(default_factory=dict)
    checksum: str | None = None
    repeats_bits: bool | None = None
    recompiles: int | None = None
    job_id: str | None = None


@dataclass(frozen=True)
class MetPair:
    """The newest comparison of two contenders head to head on a case, in one environment."""

    comparison_id: str
    base: str
    candidate: str
    case: str
    pass_: Pass
    environment_id: str
    protocol_version: int
    processes: int
    measured_at: datetime
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None


class Evidence(Record):
    """One result that a finding rests on; `value` in `unit`, as the rule read it.

    A cell that failed has no result: then `result_id` is null and `job_id` is the job that tells.
    """

    result_id: str | None
    job_id: str | None
    contender: str
    case: str
    pass_: Annotated[Pass, Field(alias="pass", serialization_alias="pass")]
    device_name: str
    environment_id: str
    outcome: Outcome
    value: float | str | None
    unit: str
    grade: Grade | None
    flags: tuple[Flag, ...]
    measured_at: datetime


class Finding(Record):
    """What one part of a rule came to; `reason` is the sentence of why.

    `value` with its 95 % interval where it has one: a ratio without unit, a difference in bytes, a
    count.
    """

    rule: str
    verdict: ClaimVerdict
    reason: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    unit: str = ""
    evidence: tuple[Evidence, ...] = ()
    comparison_id: str | None = None


class Decided(Record):
    """A claim's verdict with the findings of every part of its rule, in order."""

    verdict: ClaimVerdict
    reason: str
    findings: tuple[Finding, ...]
    measured_at: datetime | None = None
    """When the newest result was measured that it rests on."""
