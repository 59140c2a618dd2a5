"""Newest results as plain rows, for aggregates: no ORM objects, one query, a bound on both ends."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.orm import Session

from ..contract.words import Flag, Grade, Outcome
from .models import EnvironmentRow, OutputErrorRow, RunRow
from .results import ResultFilter, filtered

MOST_READ = 3_000
"""Results that one aggregate reads, the newest first."""


class Ratio(NamedTuple):
    """A ratio of times with its 95 % interval where it has one."""

    value: float
    low: float | None = None
    high: float | None = None

    def is_below(self, other: "Ratio") -> bool | None:
        """Whether its whole interval lies below the other's; None where one has no interval."""
        if self.high is None or other.low is None:
            return None
        return self.high < other.low


class Brief(NamedTuple):
    """What maps, fronts and recommendations need of a result; in the order of `_COLUMNS`."""

    id: str
    contender: str
    kernel: str
    version: str | None
    params: str
    case: str
    pass_: str
    tokens: int
    hidden: int
    vocab: int
    dtype: str
    device_name: str
    environment_id: str
    outcome: str
    reason: str | None
    grade: str | None
    flags: list[str]
    baseline: str
    latency_ms: float | None
    latency_low_ms: float | None
    latency_high_ms: float | None
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    floor_ratio: float | None
    workspace_bytes: int | None
    started_at: datetime

    @property
    def label(self) -> str:
        """The contender with the version that ran."""
        version = f"@{self.version}" if self.version else ""
        return f"{self.kernel}{version}{f'[{self.params}]' if self.params else ''}"

    @property
    def has_speed(self) -> bool:
        """Whether it has a time to chart: `ok` and not interpreted."""
        interpreted = Flag.INTERPRETED.value in self.flags
        return self.outcome == Outcome.OK.value and self.latency_ms is not None and not interpreted

    @property
    def may_win(self) -> bool:
        """Whether its time may count as a win: not below what the device can do (`suspect`)."""
        return self.has_speed and Flag.SUSPECT.value not in self.flags

    @property
    def over_baseline(self) -> Ratio | None:
        """Time over its baseline's; 1 for the baseline itself; None without a time or a ratio."""
        if not self.has_speed:
            return None
        if self.contender == self.baseline:
            return Ratio(1.0, 1.0, 1.0)
        if self.ratio is None or self.ratio <= 0:
            return None
        if self.ratio_low is None or self.ratio_high is None or self.ratio_low <= 0:
            return Ratio(self.ratio)
        return Ratio(self.ratio, self.ratio_low, self.ratio_high)


_COLUMNS = (
    RunRow.id,
    RunRow.contender,
    RunRow.kernel,
    RunRow.version,
    RunRow.params,
    RunRow.case_text,
    RunRow.pass_,
    RunRow.tokens,
    RunRow.hidden,
    RunRow.vocab,
    RunRow.dtype,
    EnvironmentRow.device_name,
    RunRow.environment_id,
    RunRow.outcome,
    RunRow.reason,
    RunRow.grade,
    RunRow.flags,
    RunRow.baseline,
    RunRow.latency_ms,
    RunRow.latency_low_ms,
    RunRow.latency_high_ms,
    RunRow.ratio_to_baseline,
    RunRow.ratio_low,
    RunRow.ratio_high,
    RunRow.floor_ratio,
    RunRow.workspace_bytes,
    RunRow.started_at,
)


class NewestKey(NamedTuple):
    """The newest result of a contender, version, case, pass and device, by what tells them apart.

    In the order of `_KEY_COLUMNS`.
    """

    id: str
    contender: str
    version: str | None
    case: str
    pass_: str
    device_name: str
    tokens: int
    hidden: int
    vocab: int


_KEY_COLUMNS = (
    RunRow.id,
    RunRow.contender,
    RunRow.version,
    RunRow.case_text,
    RunRow.pass_,
    EnvironmentRow.device_name,
    RunRow.tokens,
    RunRow.hidden,
    RunRow.vocab,
)


class Newest(NamedTuple):
    """The newest result of each contender, version, case, pass and device.

    `complete` is False where more than `MOST_READ` results match: older ones were not looked at.
    """

    keys: list[NewestKey]
    read: int
    complete: bool


def newest_keys(session: Session, wanted: ResultFilter, most: int = MOST_READ) -> Newest:
    """The newest measured results that match; imported ones are left out."""
    matching: Any = sa.select(*_KEY_COLUMNS)
    query = (
        filtered(matching, wanted)
        .join(EnvironmentRow, EnvironmentRow.id == RunRow.environment_id)
        .where(RunRow.imported.is_(False))
        .order_by(RunRow.id.desc())
        .limit(most + 1)
    )
    found = [NewestKey._make(row) for row in session.execute(query)]
    kept: dict[tuple[Any, ...], NewestKey] = {}
    for row in found[:most]:
        kept.setdefault(row[1:6], row)
    return Newest(list(kept.values()), min(len(found), most), len(found) <= most)


def briefs_of(session: Session, run_ids: Sequence[str]) -> list[Brief]:
    """These results, in the order asked for."""
    found: dict[str, Brief] = {}
    for start in range(0, len(run_ids), 500):
        query = (
            sa.select(*_COLUMNS)
            .join(EnvironmentRow, EnvironmentRow.id == RunRow.environment_id)
            .where(RunRow.id.in_(run_ids[start : start + 500]))
        )
        found |= {row[0]: Brief._make(row) for row in session.execute(query)}
    return [found[run_id] for run_id in run_ids if run_id in found]


def worst_errors(session: Session, run_ids: Sequence[str]) -> dict[str, tuple[str, float]]:
    """Output with the largest error over the yardstick, and that ratio, by result."""
    worst: dict[str, tuple[str, float]] = {}
    for start in range(0, len(run_ids), 500):
        query = sa.select(OutputErrorRow.run_id, OutputErrorRow.output, OutputErrorRow.ratio).where(
            OutputErrorRow.run_id.in_(run_ids[start : start + 500]),
            OutputErrorRow.ratio.is_not(None),
        )
        for run_id, output, ratio in session.execute(query):
            if ratio is not None and (run_id not in worst or ratio > worst[run_id][1]):
                worst[run_id] = (output, ratio)
    return worst


def device_names(session: Session) -> list[str]:
    """Names of all devices that have results; not of those that imports name.

    A worker that waits, checks or trains has an environment too, and no result of it.
    """
    measured = sa.select(RunRow.id).where(RunRow.environment_id == EnvironmentRow.id).exists()
    query = (
        sa.select(EnvironmentRow.device_name)
        .where(~EnvironmentRow.hardware_fingerprint.startswith("imported"), measured)
        .distinct()
        .order_by(EnvironmentRow.device_name)
    )
    return list(session.scalars(query))


def within_grade(grade: str | None, worst: Grade) -> bool:
    """Whether an error grade is at least as good; a result without a grade is not."""
    order = list(Grade)
    return grade is not None and order.index(Grade(grade)) <= order.index(worst)
