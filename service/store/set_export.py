"""From a database to the lines of a set: ended jobs, their cells and results, and checks."""

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.orm import Session, undefer

from ..contract.errors import ConflictError
from ..contract.result_set import (
    SetCell,
    SetCheck,
    SetComparison,
    SetJob,
    SetLine,
    SetRun,
    SetSamples,
)
from ..contract.run import Environment, SampleBlock
from ..contract.words import JobKind, JobState
from .evidence_models import CheckRow, ComparisonRow
from .jobs import get_job
from .models import CellRow, EnvironmentRow, JobRow, RunRow
from .results import ResultFilter, filtered, get_samples
from .set_files import pack_float32

_SAME_OF_JOB = tuple(SetJob.model_fields)
_SAME_OF_CELL = (
    "position",
    "case_index",
    "contender",
    "cell_key",
    "state",
    "outcome",
    "reason",
    "reused",
    "started_at",
    "ended_at",
)
_SAME_OF_COMPARISON = (
    "id",
    "base",
    "candidate",
    "verdict",
    "reason",
    "ratio",
    "ratio_low",
    "ratio_high",
    "detectable_effect",
    "processes",
    "looks",
    "log_ratios",
    "protocol_version",
    "measured_at",
)


class Wanted(NamedTuple):
    """What a set shall hold; jobs, labels and devices narrow together, repeated ones widen."""

    jobs: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    results: bool = True
    checks: bool = False


class SetParts(NamedTuple):
    """What `set_files.write_set` writes."""

    jobs: tuple[SetJob, ...]
    environments: tuple[Environment, ...]
    lines: tuple[SetLine, ...]


class _Collector:
    """Lines so far; environments and samples that repeat are kept once."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.environments: list[Environment] = []
        self.lines: list[SetLine] = []
        self.runs: set[str] = set()
        self._place: dict[str, int] = {}
        self._samples: dict[str, int] = {}

    def environment(self, environment: Environment) -> int:
        """Its place in the header."""
        environment = publishable(environment)
        key = environment.model_dump_json()
        if key not in self._place:
            self._place[key] = len(self.environments)
            self.environments.append(environment)
        return self._place[key]

    def run(self, row: RunRow) -> None:
        """A result, and those of its samples that no earlier one has."""
        blocks = get_samples(self.session, row.id)
        record = {
            **row.record,
            "cell": {"contender": row.contender, "case": row.case_text, "pass": row.pass_},
        }
        places = tuple((block.arm, self._sample_place(block)) for block in blocks)
        self.runs.add(row.id)
        self.lines.append(
            SetRun(
                id=row.id,
                environment=self.environment(environment_of(row.environment)),
                samples=places,
                imported=row.imported,
                invalidated_at=row.invalidated_at,
                invalid_reason=row.invalid_reason,
                record=record,
            )
        )

    def _sample_place(self, block: SampleBlock) -> int:
        line = SetSamples(
            process=block.process,
            visit_sizes=block.visit_sizes,
            latency_ms=pack_float32(block.latency_ms),
        )
        key = line.model_dump_json()
        if key not in self._samples:
            self._samples[key] = len(self._samples)
            self.lines.append(line)
        return self._samples[key]

    def check(self, row: CheckRow) -> None:
        """A check, without its environment."""
        record: dict[str, Any] = dict(row.record)
        environment = Environment.model_validate(record.pop("environment"))
        place = self.environment(environment)
        self.lines.append(SetCheck(id=row.id, environment=place, record=record))

    def cell(self, row: CellRow) -> None:
        """A cell of an ended job."""
        same = {name: getattr(row, name) for name in _SAME_OF_CELL}
        self.lines.append(
            SetCell.model_validate(
                {
                    **same,
                    "job": row.job_id,
                    "case": row.case_text,
                    "pass": row.pass_,
                    "run": row.run_id,
                }
            )
        )

    def comparison(self, row: ComparisonRow, jobs: set[str]) -> None:
        """A comparison; it names only jobs and runs that the set holds."""
        same = {name: getattr(row, name) for name in _SAME_OF_COMPARISON}
        environment = self.session.get_one(EnvironmentRow, row.environment_id)
        self.lines.append(
            SetComparison.model_validate(
                {
                    **same,
                    "case": row.case_text,
                    "pass": row.pass_,
                    "environment": self.environment(environment_of(environment)),
                    "job": row.job_id if row.job_id in jobs else None,
                    "base_run": row.base_run_id if row.base_run_id in self.runs else None,
                    "candidate_run": (
                        row.candidate_run_id if row.candidate_run_id in self.runs else None
                    ),
                }
            )
        )


def publishable(environment: Environment) -> Environment:
    """The environment without what names the machine: host, build of its kernel, its folders."""
    facts = {name: value for name, value in environment.facts.items() if name != "hostname_hash"}
    if isinstance(system := facts.get("os"), str):
        facts["os"] = system.partition("-")[0]
    if isinstance(variables := facts.get("variables"), str):
        kept = {
            name: "(a path)" if "/" in str(value) else value
            for name, value in json.loads(variables).items()
        }
        facts["variables"] = json.dumps(kept)
    return environment.model_copy(update={"facts": facts})


def environment_of(row: EnvironmentRow) -> Environment:
    """The environment of a row, which does not keep the hash of the device's UUID."""
    names = set(Environment.model_fields) - {"device_uuid_hash"}
    return Environment(device_uuid_hash="", **{name: getattr(row, name) for name in names})


def collect_set(session: Session, wanted: Wanted) -> SetParts:
    """Everything wanted, trainings left out. Raises NotFoundError for an unknown job.

    ConflictError for one that runs, or that trains.

    Results taken out of use come along, marked so: a job without them would be another job.
    """
    collector = _Collector(session)
    jobs = list(_jobs(session, wanted)) if wanted.results else []
    ids = {job.id for job in jobs}
    if wanted.results:
        narrow = ResultFilter(
            job=list(wanted.jobs),
            label=list(wanted.labels),
            gpu=list(wanted.devices),
            include_invalid=True,
        )
        for run in session.scalars(filtered(sa.select(RunRow), narrow).order_by(RunRow.id)):
            collector.run(run)
        for job in jobs:
            cells = sa.select(CellRow).where(CellRow.job_id == job.id).order_by(CellRow.position)
            for cell in session.scalars(cells):
                collector.cell(cell)
        for comparison in _comparisons(session, wanted, ids):
            collector.comparison(comparison, ids)
    if wanted.checks:
        for check in _checks(session, wanted):
            collector.check(check)
    shown = tuple(
        SetJob.model_validate({name: getattr(job, name) for name in _SAME_OF_JOB}) for job in jobs
    )
    return SetParts(shown, tuple(collector.environments), tuple(collector.lines))


def _jobs(session: Session, wanted: Wanted) -> Iterable[JobRow]:
    for job_id in wanted.jobs:
        job = get_job(session, job_id)
        if not JobState(job.state).ended:
            raise ConflictError(f"job {job_id} has not ended; a set holds only what is done")
        if job.kind == JobKind.TRAIN:
            raise ConflictError(
                f"job {job_id} trains; a set holds results and checks and no trainings, which "
                "`lossbench db copy` moves with everything else"
            )
    if wanted.devices:
        # a job without the results of its other devices would be another job
        return
    query = sa.select(JobRow).where(JobRow.kind != JobKind.TRAIN.value).order_by(JobRow.id)
    if wanted.jobs:
        query = query.where(JobRow.id.in_(wanted.jobs))
    if wanted.labels:
        pairs = [label.partition("=") for label in wanted.labels]
        query = query.where(
            sa.or_(*(JobRow.labels[name].as_string() == value for name, _, value in pairs))
        )
    yield from (job for job in session.scalars(query) if JobState(job.state).ended)


def _comparisons(session: Session, wanted: Wanted, jobs: set[str]) -> Iterable[ComparisonRow]:
    query = sa.select(ComparisonRow).order_by(ComparisonRow.id)
    if wanted.jobs or wanted.labels:
        query = query.where(ComparisonRow.job_id.in_(jobs))
    if wanted.devices:
        here = sa.select(EnvironmentRow.id).where(EnvironmentRow.device_name.in_(wanted.devices))
        query = query.where(ComparisonRow.environment_id.in_(here))
    return session.scalars(query)


def _checks(session: Session, wanted: Wanted) -> Iterable[CheckRow]:
    query = sa.select(CheckRow).order_by(CheckRow.id).options(undefer(CheckRow.record))
    if wanted.devices:
        query = query.where(CheckRow.device_name.in_(wanted.devices))
    return session.scalars(query)
