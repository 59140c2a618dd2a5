"""Alerts: what changed from one version of a kernel to the next, and what became of it."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from .run import Record
from .words import Pass


class AlertState(StrEnum):
    """What is known of an alert."""

    CANDIDATE = "candidate"
    """Seen in stored results, not yet measured again."""
    CONFIRMED = "confirmed"
    """Measured again head to head; or exact, as memory and error grades are."""
    DISMISSED = "dismissed"
    """Not seen again, or set aside by a person."""
    FIXED = "fixed"
    """A later version undoes it."""


class AlertKind(StrEnum):
    """What an alert is about."""

    CHANGE = "change"
    """One version of a kernel against the version before."""
    ENVIRONMENT = "environment"
    """A note: every history moved together, so no kernel's code did."""
    BASELINE = "baseline"
    """A note: the baseline alone moved."""
    SAME_CODE = "same_code"
    """A note: a history moved between two points of one code."""
    SILENT = "silent"
    """A history has had no new result for three of its usual intervals."""
    STUCK_QUEUE = "stuck_queue"
    """Lots wait, and no live worker takes them."""


class AlertMetric(StrEnum):
    """What changed."""

    TIME = "time"
    MEMORY = "memory"
    ERROR = "error"


class AlertDirection(StrEnum):
    """Whether users of the kernel lose or gain."""

    WORSE = "worse"
    BETTER = "better"


class AlertCase(Record):
    """One case of an alert: a metric of one contender on one case, pass and device.

    `ratio` is after over before, of times with its 95 % interval, of memory exact; errors have
    none. `p_value` and `adjusted_p_value` are of the search among stored results, the second over
    its whole batch. Once measured again, `confirmed` says whether it was seen, and `comparison_id`
    by which comparison.
    """

    metric: AlertMetric
    direction: AlertDirection
    params: str
    case: str
    pass_: Annotated[Pass, Field(alias="pass", serialization_alias="pass")]
    device_name: str
    before_version: str
    after_version: str
    before: str
    """As text with its unit: `0.812×` the baseline, `1.25 GiB`, `exact`."""
    after: str
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    p_value: float | None
    adjusted_p_value: float | None
    before_result_id: str | None
    after_result_id: str | None
    environments_differ: bool
    confirmed: bool | None
    comparison_id: str | None


class AlertView(Record):
    """An alert without its cases: all changes from one version of a kernel to the next are one.

    `title` says it in a sentence. `job_ids` are the jobs that measure or measured it again.
    """

    id: str
    kind: AlertKind
    state: AlertState
    title: str
    kernel: str | None
    before_version: str | None
    after_version: str | None
    worse: tuple[AlertMetric, ...]
    better: tuple[AlertMetric, ...]
    cases_total: int
    job_ids: tuple[str, ...]
    owner: str | None
    note: str | None
    created_at: datetime
    updated_at: datetime


class AlertDetail(AlertView):
    """An alert with its cases, and what the decision rests on.

    `explain` has the inputs of the decision, `same_today` whether today's code decides alike.
    """

    cases: tuple[AlertCase, ...]
    explain: dict[str, Any]
    same_today: bool | None


class AlertPatch(BaseModel):
    """What a person may change of an alert: fields that are not given stay."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    state: AlertState | None = None
    owner: Annotated[str | None, Field(max_length=100)] = None
    note: Annotated[str | None, Field(max_length=2000)] = None
