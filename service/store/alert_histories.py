"""Histories as the store has them: the results of a contender on one case, pass and device."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any

import sqlalchemy as sa
from packaging.version import InvalidVersion, Version
from sqlalchemy.orm import Session

from ..contract.catalogue import Catalogue
from ..contract.lineage import current_name, names_of
from ..contract.words import Flag, Grade, Outcome
from ..statistics.release_steps import MeasuredRatio
from .models import CellRow, EnvironmentRow, RunRow
from .series import SeriesKey

MOST_POINTS = 400
"""Points read of one history, the newest."""
CASES_AT_ONCE = 50


@dataclass(frozen=True)
class StoredPoint:
    """A result of a history, as the store has it."""

    result_id: str
    version: str
    code: str
    """Version that stands for all with the same code."""
    is_release: bool
    started_at: datetime
    environment_id: str
    processes: int
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    baseline_ms: float | None
    floor_ms: float | None
    workspace_bytes: int | None
    grade: Grade | None

    @property
    def measured_ratio(self) -> MeasuredRatio | None:
        """Its ratio to the baseline; None without an interval over processes."""
        if self.ratio is None or self.ratio_low is None or self.ratio_high is None:
            return None
        found = MeasuredRatio(self.ratio, self.ratio_low, self.ratio_high, self.processes)
        return found if found.processes > 1 and 0 < found.low <= found.value <= found.high else None


Histories = Mapping[SeriesKey, Sequence[StoredPoint]]


def histories_of(session: Session, job_id: str, catalogue: Catalogue) -> Histories:
    """Every history that a job has valid results of its own in, with its newest points."""
    group = (RunRow.kernel, RunRow.params, RunRow.case_text, RunRow.pass_)
    query = (
        sa.select(*group, EnvironmentRow.device_name, sa.func.max(RunRow.protocol_version))
        .join(CellRow, CellRow.run_id == RunRow.id)
        .join(EnvironmentRow, EnvironmentRow.id == RunRow.environment_id)
        .where(CellRow.job_id == job_id, *_COUNTS)
        .group_by(*group, EnvironmentRow.device_name)
    )
    protocols: dict[SeriesKey, int] = {}
    for kernel, params, case, pass_, device, protocol in session.execute(query):
        protocols[SeriesKey(current_name(kernel, catalogue), params, case, pass_, device)] = (
            protocol
        )
    return read_histories(session, catalogue, protocols)


_COUNTS = (
    RunRow.outcome == Outcome.OK.value,
    RunRow.imported.is_(False),
    RunRow.invalidated_at.is_(None),
)
"""Which results are points of a history."""
_POINT: tuple[Any, ...] = (
    RunRow.id, RunRow.version, RunRow.started_at, RunRow.environment_id, RunRow.processes,
    RunRow.ratio_to_baseline, RunRow.ratio_low, RunRow.ratio_high, RunRow.baseline_ms,
    RunRow.latency_ms, RunRow.floor_ratio, RunRow.workspace_bytes, RunRow.grade,
)  # fmt: skip


def read_histories(
    session: Session, catalogue: Catalogue, protocols: Mapping[SeriesKey, int | None]
) -> Histories:
    """Points of these histories, of the protocol that each names or of any, the oldest first."""
    lines: dict[tuple[str, str], list[str]] = {}
    for key in protocols:
        lines.setdefault((key.kernel, key.params), []).append(key.case)
    found: dict[SeriesKey, list[StoredPoint]] = {key: [] for key in protocols}
    for (kernel, params), cases in lines.items():
        row = catalogue.kernels.get(kernel)
        twins = row.twins if row is not None else {}
        for some in _parts(sorted(set(cases))):
            query = (
                sa.select(
                    RunRow.case_text,
                    RunRow.pass_,
                    EnvironmentRow.device_name,
                    RunRow.protocol_version,
                    sa.cast(RunRow.flags, sa.Text),
                    *_POINT,
                )
                .join(EnvironmentRow, EnvironmentRow.id == RunRow.environment_id)
                .where(
                    RunRow.kernel.in_(names_of(kernel, catalogue)),
                    RunRow.params == params,
                    RunRow.case_text.in_(some),
                    *_COUNTS,
                )
            )
            # sorted here: asked for in order, SQLite would walk all results of the kernel
            rows = sorted(session.execute(query).all(), key=lambda row: str(row[5]), reverse=True)
            for case, pass_, device, protocol, flags, *values in rows:
                key = SeriesKey(kernel, params, case, pass_, device)
                points = found.get(key)
                wanted = protocols.get(key)
                if points is None or wanted not in (None, protocol) or _INTERPRETED in flags:
                    continue
                if len(points) < MOST_POINTS:
                    points.append(_point(values, twins))
    return {key: points[::-1] for key, points in found.items()}


def _parts(cases: Sequence[str]) -> Iterator[list[str]]:
    left = iter(cases)
    while part := list(islice(left, CASES_AT_ONCE)):
        yield part


_INTERPRETED = f'"{Flag.INTERPRETED.value}"'


def _point(values: Sequence[Any], twins: Mapping[str, str]) -> StoredPoint:
    run_id, version, started_at, environment, processes, *numbers = values
    ratio, low, high, baseline_ms, latency_ms, floor_ratio, workspace, grade = numbers
    return StoredPoint(
        result_id=run_id,
        version=version or "",
        code=twins.get(version or "", version or ""),
        is_release=_is_release(version or ""),
        started_at=started_at,
        environment_id=environment,
        processes=processes,
        ratio=ratio,
        ratio_low=low,
        ratio_high=high,
        baseline_ms=baseline_ms,
        floor_ms=latency_ms / floor_ratio if latency_ms and floor_ratio else None,
        workspace_bytes=workspace,
        grade=Grade(grade) if grade else None,
    )


def _is_release(version: str) -> bool:
    try:
        Version(version)
    except InvalidVersion:
        return False
    return True
