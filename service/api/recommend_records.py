"""Bodies of a recommendation."""

from datetime import datetime
from typing import Annotated

from pydantic import Field

from ..contract.run import Record
from ..contract.words import Flag, Grade, Outcome, Pass


class Evidence(Record):
    """A contender with the result that speaks for it."""

    contender: str
    kernel: str
    version: str | None
    params: str
    result_id: str
    latency_ms: float | None
    latency_low_ms: float | None
    latency_high_ms: float | None
    baseline: str
    ratio_to_baseline: float
    ratio_low: float | None
    ratio_high: float | None
    floor_ratio: float | None
    workspace_bytes: int | None
    grade: Grade
    worst_output: str | None
    worst_error_ratio: float | None
    flags: tuple[Flag, ...]
    environment_id: str
    measured_at: datetime


class Choice(Evidence):
    """A contender to use, with the lines that call it."""

    snippet: str


class LeftOut(Record):
    """A contender that was measured on this case and does not count, and why."""

    contender: str
    result_id: str
    outcome: Outcome
    reason: str


class NotMeasured(Record):
    """A kernel of the catalogue without a result on this case."""

    contender: str
    reason: str


class Recommendation(Record):
    """Which contender to use for a case on a device, and what that rests on."""

    asked_case: str
    case: str | None
    """The case that the evidence is of; null where nothing comparable was measured."""
    exact: bool
    """Whether `case` is the case that was asked for."""
    shape_note: str | None
    """Says how `case` differs from the one asked for, or that nothing is near."""
    pass_: Annotated[Pass, Field(alias="pass", serialization_alias="pass")]
    device_name: str | None
    sentence: str
    use: Choice | None
    runner_up: Choice | None
    told_apart: bool | None
    """Whether the first is faster than the runner-up beyond both intervals, or by a verdict."""
    comparison_id: str | None
    """The comparison head to head that decided between the two, where there is one."""
    evidence: tuple[Evidence, ...]
    """Everything that counts, the fastest first, at most 50."""
    evidence_total: int
    left_out: tuple[LeftOut, ...]
    left_out_total: int
    not_measured: tuple[NotMeasured, ...]
    measure_command: str | None
    """Measures what is missing; null where nothing is."""
