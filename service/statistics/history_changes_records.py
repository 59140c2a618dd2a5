"""What goes into the search for changes in many histories, and what comes out of it."""

import math
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from ..contract.words import Grade


class Metric(StrEnum):
    """What changed."""

    TIME = "time"
    """Ratio of times to the baseline of the same process."""
    MEMORY = "memory"
    """Workspace in bytes."""
    ERROR = "error"
    """Grade of the numerical error."""


@dataclass(frozen=True, order=True)
class HistoryKey:
    """One lineage on one case and pass, on one model of accelerator."""

    kernel: str
    case: str
    pass_: str
    accelerator: str
    params: str = ""


@dataclass(frozen=True)
class HistoryPoint:
    """One result. What was not measured is None."""

    version: str
    """Release or commit."""
    released_at: datetime
    """Of the release or commit: the order of the history. Aware of its zone, as all times."""
    measured_at: datetime
    environment: str
    """Hardware and software fingerprint."""
    code_hash: str | None = None
    """Releases of one hash run the same code."""
    ratio_to_baseline: float | None = None
    baseline_ms: float | None = None
    """The baseline's own time, in the same processes."""
    floor_ms: float | None = None
    """The floor's, or a control kernel's, own time, in the same processes."""
    workspace_bytes: int | None = None
    grade: Grade | None = None


@dataclass(frozen=True)
class History:
    """The points of one key, in any order."""

    key: HistoryKey
    points: tuple[HistoryPoint, ...]


@dataclass(frozen=True)
class Candidate:
    """A change of one history that only its code explains; to be confirmed head to head."""

    key: HistoryKey
    metric: Metric
    index_before: int
    """Of the last point before, in the ordered points of the key; of the drift's beginning."""
    index_after: int
    before: HistoryPoint
    after: HistoryPoint
    change: float
    """Time: log of the ratio after over that before. Memory: bytes. Error: grades."""
    low: float
    """95 % interval of the change; the change itself where it is exact."""
    high: float
    p_value: float
    """Share of clean histories with a step as strong; 0 where it is exact."""
    gradual: bool = False
    at_environment_change: bool = False
    """The environment changed in the same place: only the confirmation can tell them apart."""


class NoteKind(StrEnum):
    """What moved, where no kernel's code did."""

    ENVIRONMENT = "environment"
    """Everything moved: a driver, a clock, a machine."""
    BASELINE = "baseline"
    """The baseline moved against the floor; the ratios to it moved, the contenders did not."""
    SAME_CODE = "same_code"
    """A history moved between two points of the same code."""


@dataclass(frozen=True)
class Note:
    """One movement, told once for all histories that show it."""

    kind: NoteKind
    metric: Metric
    accelerator: str
    since: datetime
    """Measured before the movement, and after it: it lies between the two."""
    until: datetime
    change: float
    """Median over `keys`, in the unit of `Candidate.change`. Of `BASELINE`: its own time. Of
    `ENVIRONMENT`: every time or, where only ratios moved, the ratios."""
    keys: tuple[HistoryKey, ...]
    new_environment: bool = False
    """The fingerprint changed in the same place."""

    @property
    def sentence(self) -> str:
        """The note in words."""
        size = f"{self.change:+.0f}"
        if self.metric is Metric.TIME:
            size = f"{100 * math.expm1(self.change):+.1f} %"
        elif self.metric is Metric.MEMORY:
            size = f"{self.change / 1024**2:+.1f} MiB"
        count = len(self.keys)
        many = f"{count} {'history' if count == 1 else 'histories'} on {self.accelerator}"
        day = f"{self.until:%Y-%m-%d}"
        if self.kind is NoteKind.BASELINE:
            return f"The baseline alone moved by {size} on {day}: no change of {many}."
        if self.kind is NoteKind.ENVIRONMENT:
            return f"Environment step of {size} in {self.metric} on {day}, in {many}."
        return f"{self.metric} moved by {size} on {day} without a change of code: {many}."


@dataclass(frozen=True)
class Silence:
    """A history that is overdue."""

    key: HistoryKey
    last_measured_at: datetime
    usual_interval: timedelta
    """Median time between two days with points."""


@dataclass(frozen=True)
class HistoryChanges:
    """What became of many histories."""

    candidates: tuple[Candidate, ...] = ()
    notes: tuple[Note, ...] = ()
    not_enough_data: tuple[HistoryKey, ...] = ()
    """Keys with too few points of time to look for changes in; exact metrics need no number."""
    silent: tuple[Silence, ...] = ()
    points: dict[HistoryKey, tuple[HistoryPoint, ...]] = field(default_factory=dict)
    """The ordered points of each key, under the kernel's name of today."""
