"""From a JobRequest to a stored job or a dry run: plan, reuse, route, idempotency."""

import math
import threading
from dataclasses import dataclass
from typing import Self

from ..contract.catalogue import Catalogue, with_offers
from ..contract.errors import Fault, JobTooLargeError, NotFoundError, TooManyRequestsError
from ..contract.ids import new_id
from ..contract.job import JobRequest
from ..contract.machine import Machine
from ..contract.plan import Plan, PlannedCell
from ..contract.result import JobView
from ..contract.training_plan import plan_any
from ..settings import Settings
from ..store.budgets import seconds_until_free, spent_by
from ..store.database import Database
from ..store.idempotency import Abandoned, IdempotencyKeys, StoredAnswer
from ..store.jobs import Jobs, get_job
from ..store.known import KnownRun
from ..store.results import known_runs
from ..store.views import job_views
from ..store.workers import live_machines, offered_kernels, route
from .records import DryRun, DryRunCell

ACCEPTED = 202


@dataclass(frozen=True)
class Prepared:
    """A planned job with what is known already and the queue it goes to."""

    plan: Plan
    known: dict[str, KnownRun]
    queue: str
    machines: tuple[Machine, ...]

    @property
    def seconds(self) -> float:
        """Estimated seconds of the cells that would run."""
        return sum(
            planned.estimated_s
            for planned in self.plan.cells
            if planned.outcome is None and planned.cell.key not in self.known
        )


@dataclass(frozen=True)
class Submitted:
    """The answer to a submission; `replayed` when an earlier request gave it."""

    job: JobView
    replayed: bool = False


@dataclass(frozen=True)
class Sender:
    """Who submits: the token behind the job, and the scope and key of its idempotency."""

    token_id: str | None
    owner: str
    key: str | None = None


@dataclass(frozen=True)
class Limits:
    """What one job, and the jobs of one token within 24 hours, may ask for."""

    max_cells: int
    gpu_minutes_per_job: float = math.inf
    gpu_minutes_per_token: float = math.inf

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """The limits of a service."""
        return cls(
            settings.max_cells,
            settings.max_gpu_minutes_per_job,
            settings.max_gpu_minutes_per_token,
        )


class Submission:
    """Takes jobs in."""

    def __init__(self, database: Database, jobs: Jobs, shipped: Catalogue, limits: Limits) -> None:
        self._database, self._jobs = database, jobs
        self._shipped, self._limits = shipped, limits
        self._keys = IdempotencyKeys(database)
        # two jobs of one token must not both fit into what is left for one
        self._spending = threading.Lock()

    def prepare(self, request: JobRequest) -> Prepared:
        """Plan a request against the live machines and the stored results. Stores nothing."""
        with self._database.reading() as session:
            machines = live_machines(session)
            catalogue = with_offers(self._shipped, offered_kernels(session))
            plan = plan_any(request, catalogue, machines, self._limits.max_cells)
            queue = route(machines, request.accelerator)
            known: dict[str, KnownRun] = {}
            # a comparison needs both of its sides measured in turns
            if request.reuse and not (request.is_comparison or request.is_training):
                # a result answers only for the devices that would run the job
                serving = [machine for machine in machines if queue in machine.queues]
                keys = [planned.cell.key for planned in plan.cells if planned.outcome is None]
                baseline = plan.request.baseline.text
                known = known_runs(session, keys, serving, request.processes, baseline)
        return Prepared(plan, known, queue, tuple(machines))

    def dry_run(self, request: JobRequest) -> DryRun:
        """What the job would do."""
        prepared = self.prepare(request)
        cells = tuple(
            _dry_cell(position, planned, prepared.known)
            for position, planned in enumerate(prepared.plan.cells)
        )
        runs = [c for c in cells if c.outcome is None and c.known_result_id is None]
        return DryRun(
            cells=cells,
            cells_total=len(cells),
            cells_known=sum(cell.known_result_id is not None for cell in cells),
            cells_refused=sum(cell.outcome is not None for cell in cells),
            cells_to_run=len(runs),
            estimated_minutes=sum(cell.estimated_s for cell in runs) / 60,
            longest_minutes=_longest_minutes(prepared.plan),
            estimated_peak_bytes=max((cell.estimated_peak_bytes for cell in runs), default=0),
            queue=prepared.queue,
            queues_live=tuple(sorted({q for m in prepared.machines for q in m.queues})),
            machines_live=len(prepared.machines),
        )

    def submit(self, request: JobRequest, digest: str, sender: Sender) -> Submitted:
        """Store and queue the job; an Idempotency-Key seen before gives the stored answer."""
        job_id = new_id("job")
        if sender.key is None:
            return Submitted(self._create(request, sender.token_id, job_id))
        earlier = self._keys.begin(sender.owner, sender.key, digest, job_id)
        if isinstance(earlier, StoredAnswer):
            return Submitted(JobView.model_validate(earlier.body), replayed=True)
        replayed = False
        try:
            if isinstance(earlier, Abandoned):
                job_id = earlier.resource
                found = self._find(job_id)
                replayed = found is not None
                job = found or self._create(request, sender.token_id, job_id)
            else:
                job = self._create(request, sender.token_id, job_id)
        except Exception:
            self._keys.forget(sender.owner, sender.key)
            raise
        answer = StoredAnswer(ACCEPTED, job.model_dump(mode="json", by_alias=True))
        self._keys.finish(sender.owner, sender.key, answer)
        return Submitted(job, replayed)

    def _create(self, request: JobRequest, token_id: str | None, job_id: str) -> JobView:
        prepared = self.prepare(request)
        seconds = prepared.seconds
        _refuse_long(seconds / 60, self._limits.gpu_minutes_per_job)
        with self._spending:
            if token_id is not None:
                self._refuse_spent(token_id, seconds)
            self._jobs.submit(prepared.plan, prepared.known, prepared.queue, token_id, job_id)
        with self._database.reading() as session:
            return job_views(session, [get_job(session, job_id)])[0]

    def _refuse_spent(self, token_id: str, seconds: float) -> None:
        """Raises TooManyRequestsError where the token's minutes of the day do not suffice."""
        allowed = self._limits.gpu_minutes_per_token
        with self._database.reading() as session:
            spent = spent_by(session, token_id)
        used = sum(each.seconds for each in spent) / 60
        if used + seconds / 60 <= allowed:
            return
        wait_s = seconds_until_free(spent, seconds, allowed * 60)
        advice = (
            "this job alone is larger than that: split it"
            if wait_s is None
            else f"there is room for it in {math.ceil(wait_s / 60)} minutes; or cancel queued jobs"
        )
        raise TooManyRequestsError(
            f"the job needs about {_minutes(seconds / 60)} and the token's jobs of the last "
            f"24 hours took {used:,.0f} of {allowed:,.0f} (LOSSBENCH_MAX_GPU_MINUTES_PER_TOKEN); "
            f"{advice}, or ask for less: fewer cases, contenders or processes",
            math.ceil(wait_s or 86_400),
        )

    def _find(self, job_id: str) -> JobView | None:
        with self._database.reading() as session:
            try:
                return job_views(session, [get_job(session, job_id)])[0]
            except NotFoundError:
                return None

    def retry(self, job_id: str) -> int:
        """Run the failed cells of a job again; returns how many."""
        with self._database.reading() as session:
            accelerator = get_job(session, job_id).accelerator
            queue = route(live_machines(session), accelerator)
        return self._jobs.retry(job_id, queue)


def _minutes(minutes: float) -> str:
    return f"{minutes:,.0f} GPU minutes" if minutes >= 1.5 else f"{minutes:.2g} GPU minutes"


def _refuse_long(minutes: float, allowed: float) -> None:
    """Raises JobTooLargeError for more minutes than one job may have."""
    if minutes > allowed:
        message = (
            f"the job needs about {_minutes(minutes)}; one job may have {allowed:,.0f} "
            "(LOSSBENCH_MAX_GPU_MINUTES_PER_JOB). Split it, or ask for less: fewer cases, "
            "contenders or processes. A dry run shows what each cell is estimated at"
        )
        raise JobTooLargeError([Fault("", "too_many_gpu_minutes", message)])


def _longest_minutes(plan: Plan) -> float | None:
    """Minutes of a compare job whose every comparison takes the most processes; None of others."""
    if not plan.request.is_comparison:
        return None
    return sum(cell.longest_s or 0.0 for cell in plan.cells if cell.outcome is None) / 60


def _dry_cell(position: int, planned: PlannedCell, known: dict[str, KnownRun]) -> DryRunCell:
    answer = known.get(planned.cell.key)
    return DryRunCell.model_validate(
        {
            "position": position,
            "contender": planned.cell.contender.text,
            "case": planned.cell.case.text,
            "pass": planned.cell.pass_,
            "known_result_id": answer.run_id if answer else None,
            "outcome": planned.outcome,
            "reason": planned.reason,
            "estimated_s": planned.estimated_s,
            "estimated_peak_bytes": planned.estimated_peak_bytes,
        }
    )
