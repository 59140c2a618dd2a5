"""What a machine's page reads: its environments, newest results, proofs, comparisons."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.orm import Session

from lossbench.service.contract.errors import NotFoundError
from lossbench.service.contract.words import Pass
from lossbench.service.plots.diverging import PASS_SIGNS
from lossbench.service.plots.drift import LEAST_TIMES, BaselineTime, DriftLine, Seen
from lossbench.service.store.models import (
    ComparisonRow,
    DeviceProofRow,
    EnvironmentRow,
    RunRow,
    WorkerRow,
)
from lossbench.service.store.proofs import ProofKind, proofs_page
from lossbench.service.store.workers import get_worker

MOST_RESULTS = 600
"""Newest results of a machine that are looked at."""
MOST_ENVIRONMENTS = 12
MOST_LINES = 4
MOST_COMPARISONS = 200


class MachineRun(NamedTuple):
    """What is read of a result, in the order of `_COLUMNS`."""

    id: str
    contender: str
    version: str | None
    case: str
    pass_: str
    outcome: str
    flags: list[str]
    baseline: str
    baseline_ms: float | None
    environment_id: str
    started_at: datetime


_COLUMNS = (
    RunRow.id,
    RunRow.contender,
    RunRow.version,
    RunRow.case_text,
    RunRow.pass_,
    RunRow.outcome,
    RunRow.flags,
    RunRow.baseline,
    RunRow.baseline_ms,
    RunRow.environment_id,
    RunRow.started_at,
)


@dataclass(frozen=True)
class MachinePage:
    """Everything a machine's page shows."""

    worker: WorkerRow | None
    environments: Sequence[EnvironmentRow]
    """Of the same hardware, the newest first; empty where a worker never said what it has."""
    runs: Sequence[MachineRun]
    """The newest, oldest first."""
    self_tests: Sequence[DeviceProofRow]
    proof: DeviceProofRow | None
    """The newest one that says what the device can tell apart."""
    seen: Sequence[Seen]

    @property
    def device_name(self) -> str:
        """Name of the device."""
        return self.environments[0].device_name if self.environments else "no device"

    @property
    def flags(self) -> list[tuple[str, int]]:
        """Flags of the newest results with their counts, the most frequent first."""
        return Counter(flag for run in self.runs for flag in run.flags).most_common()

    @property
    def outcomes(self) -> list[tuple[str, int]]:
        """Outcomes of the newest results with their counts."""
        return Counter(run.outcome for run in self.runs).most_common()

    @property
    def drift(self) -> list[DriftLine]:
        """Baselines timed most often, at most `MOST_LINES` of them, each on one case and pass."""
        found: dict[tuple[str, str, str], list[BaselineTime]] = {}
        for run in self.runs:
            if run.baseline_ms is not None:
                time = BaselineTime(run.started_at, run.baseline_ms, run.id, run.environment_id)
                found.setdefault((run.baseline, run.case, run.pass_), []).append(time)
        ranked = sorted(found, key=lambda key: (-len(found[key]), key))[:MOST_LINES]
        return [
            DriftLine(f"{key[0]} {key[1]} {PASS_SIGNS[Pass(key[2])]}", found[key])
            for key in ranked
            if len(found[key]) >= LEAST_TIMES
        ]


def machine_page(session: Session, machine_id: str) -> MachinePage:
    """A machine by the id of a worker, or of an environment that results came from.

    Raises NotFoundError.
    """
    worker, environments = _found(session, machine_id)
    hardware = environments[0].hardware_fingerprint if environments else None
    proofs = [
        proof
        for kind in (ProofKind.DOCTOR, ProofKind.POOL)
        if hardware
        for proof in proofs_page(session, kind, hardware, limit=1)
    ]
    return MachinePage(
        worker=worker,
        environments=environments,
        runs=_newest(session, environments),
        self_tests=proofs_page(session, ProofKind.SELF_TEST, hardware, limit=10)
        if hardware
        else [],
        proof=max(proofs, key=lambda proof: proof.measured_at, default=None),
        seen=_seen(session, environments),
    )


def _found(session: Session, machine_id: str) -> tuple[WorkerRow | None, list[EnvironmentRow]]:
    environment = session.get(EnvironmentRow, machine_id)
    worker = None
    if environment is None:
        worker = get_worker(session, machine_id)
        environment = worker.environment
    if environment is None:
        return worker, []
    if environment.hardware_fingerprint.startswith("imported"):
        raise NotFoundError(f"{machine_id!r} names an imported table: it is no machine of ours")
    query = (
        sa.select(EnvironmentRow)
        .where(EnvironmentRow.hardware_fingerprint == environment.hardware_fingerprint)
        .order_by(EnvironmentRow.first_seen_at.desc(), EnvironmentRow.id)
        .limit(MOST_ENVIRONMENTS)
    )
    return worker, list(session.scalars(query))


def _newest(session: Session, environments: Sequence[EnvironmentRow]) -> list[MachineRun]:
    """The newest results, environment by environment: each lies in order in an index."""
    found: list[MachineRun] = []
    for environment in environments:
        query = (
            sa.select(*_COLUMNS)
            .where(
                RunRow.environment_id == environment.id,
                RunRow.imported.is_(False),
                RunRow.invalidated_at.is_(None),
            )
            .order_by(RunRow.id.desc())
            .limit(MOST_RESULTS - len(found))
        )
        found += [MachineRun._make(row) for row in session.execute(query)]
        if len(found) >= MOST_RESULTS:
            break
    return sorted(found, key=lambda run: run.started_at)


def _seen(session: Session, environments: Sequence[EnvironmentRow]) -> list[Seen]:
    query = (
        sa.select(
            ComparisonRow.detectable_effect,
            ComparisonRow.processes,
            ComparisonRow.case_text,
            ComparisonRow.measured_at,
        )
        .where(
            ComparisonRow.environment_id.in_([row.id for row in environments]),
            ComparisonRow.detectable_effect.is_not(None),
        )
        .order_by(ComparisonRow.id.desc())
        .limit(MOST_COMPARISONS)
    )
    return [Seen._make(row) for row in session.execute(query)]


class Device(NamedTuple):
    """A device that results came from: one environment of it, and when it last measured."""

    id: str
    device_name: str
    facts: Mapping[str, Any]
    newest_at: datetime


def measured_on(session: Session) -> list[Device]:
    """Hardware that results came from, the latest used first."""
    newest = (
        sa.select(sa.func.max(RunRow.id))
        .where(RunRow.environment_id == EnvironmentRow.id)
        .scalar_subquery()
    )
    imported = EnvironmentRow.hardware_fingerprint.startswith("imported")
    found = session.execute(sa.select(EnvironmentRow, newest).where(~imported)).all()
    latest: dict[str, tuple[str, EnvironmentRow]] = {}
    for row, run_id in found:
        if run_id is not None and run_id > latest.get(row.hardware_fingerprint, ("",))[0]:
            latest[row.hardware_fingerprint] = (run_id, row)
    ids = [run_id for run_id, _ in latest.values()]
    ended = sa.select(RunRow.id, RunRow.ended_at).where(RunRow.id.in_(ids))
    moments = {run_id: moment for run_id, moment in session.execute(ended)}
    order = sorted(latest.values(), key=lambda pair: pair[0], reverse=True)
    return [Device(row.id, row.device_name, row.facts, moments[run_id]) for run_id, row in order]
