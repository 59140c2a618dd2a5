"""A comparison: two contenders measured in turns on one case and pass until a verdict."""

from datetime import datetime
from typing import Annotated

from pydantic import ConfigDict, Field

from .case import Case
from .contender import Contender
from .run import PROTOCOL_VERSION, Environment, Record
from .words import Pass, Verdict


class ComparisonRecord(Record):
    """What one comparison leaves behind; `ratio` is the candidate's time over the base's.

    Without a verdict on the times (a side failed, or is wrong) there is no ratio, and `reason` says
    why. `log_ratios` has one value for each process (or pair of processes) that timed both sides.
    """

    base: Contender
    candidate: Contender
    case: Case
    pass_: Annotated[Pass, Field(alias="pass")]
    verdict: Verdict
    reason: str | None = None
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    minimum_detectable_effect: float | None = None
    processes: int
    looks: int
    log_ratios: tuple[float, ...]
    environment: Environment
    protocol_version: int = PROTOCOL_VERSION
    measured_at: datetime

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class ComparisonView(Record):
    """A stored comparison. `ratio` below 1: the candidate is faster; bounds are of 95 %.

    `minimum_detectable_effect` is the slowdown, as a fraction, that nine in ten such comparisons
    find. `reason` says why a verdict is `inconclusive`.
    """

    id: str
    job_id: str | None
    base: str
    candidate: str
    case: str
    pass_: Annotated[Pass, Field(alias="pass", serialization_alias="pass")]
    verdict: Verdict
    reason: str | None
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    minimum_detectable_effect: float | None
    processes: int
    looks: int
    """How often the processes so far were judged."""
    log_ratios: tuple[float, ...]
    base_result_id: str | None
    candidate_result_id: str | None
    device_name: str
    device_type: str
    environment_id: str
    protocol_version: int
    measured_at: datetime
