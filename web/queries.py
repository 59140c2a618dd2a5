"""What the pages read from the store, one function per page."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.orm import Session

from lossbench.service.contract.comparison import ComparisonView
from lossbench.service.contract.job import JobRequest
from lossbench.service.contract.result import CellView, JobView, Result
from lossbench.service.contract.words import JobKind, JobState, LotState
from lossbench.service.store.comparisons import comparisons_of_job
from lossbench.service.store.events import last_log_lines, newest_event_id
from lossbench.service.store.jobs import get_job, list_cells, list_jobs
from lossbench.service.store.models import EnvironmentRow, JobRow, RunRow, WorkerRow
from lossbench.service.store.overviews import jobs_by_state
from lossbench.service.store.results import runs_of_job
from lossbench.service.store.views import cell_view, job_views, result_view
from lossbench.service.store.workers import LIVE, get_worker, list_workers

LATEST_JOBS = 20
LOG_LINES = 400
GRID_CELLS = 3000
"""A grid with more cells is not drawn; the tables and the API have them."""


@dataclass(frozen=True)
class Overview:
    """Counts and the latest jobs."""

    jobs: Sequence[JobView]
    states: dict[str, int]
    results: int
    newest_result_at: datetime | None
    workers: Sequence[WorkerRow]

    @property
    def live(self) -> list[WorkerRow]:
        """Workers that take lots now."""
        return [worker for worker in self.workers if worker.state in LIVE]


def overview(session: Session) -> Overview:
    """Everything the first page shows."""
    newest = session.scalar(sa.select(RunRow.ended_at).order_by(RunRow.id.desc()).limit(1))
    return Overview(
        jobs=job_views(session, list_jobs(session, limit=LATEST_JOBS)),
        states=jobs_by_state(session),
        results=session.scalar(sa.select(sa.func.count(RunRow.id))) or 0,
        newest_result_at=newest,
        workers=list_workers(session),
    )


@dataclass(frozen=True)
class JobCells:
    """A job with its cells, without their results."""

    job: JobView
    cells: Sequence[CellView]

    @property
    def request(self) -> JobRequest:
        """What was asked for."""
        return JobRequest.model_validate(self.job.request)


def job_cells(session: Session, job_id: str) -> JobCells:
    """A job and its cells. Raises NotFoundError."""
    job = job_views(session, [get_job(session, job_id)])[0]
    rows = list_cells(session, job_id, limit=max(1, job.cells_total))
    return JobCells(job, [cell_view(row) for row in rows])


def environments_of(session: Session, ids: Iterable[str]) -> list[EnvironmentRow]:
    """The environments with these ids, each once."""
    found = (session.get(EnvironmentRow, name) for name in dict.fromkeys(ids))
    return [row for row in found if row is not None]


@dataclass(frozen=True)
class JobPage:
    """A job with its cells, results, environments and log."""

    job: JobView
    pairs: Sequence[tuple[CellView, Result | None]]
    environments: Sequence[EnvironmentRow]
    log: Sequence[str]
    newest_event: int
    machines: Sequence[WorkerRow]
    """Workers that measure its lots now."""
    comparisons: Sequence[ComparisonView]
    """Newest of each case and pass, of a compare job."""

    @property
    def cells(self) -> list[CellView]:
        """The cells alone."""
        return [cell for cell, _ in self.pairs]

    @property
    def results(self) -> list[Result]:
        """The results alone."""
        return [result for _, result in self.pairs if result]

    @property
    def request(self) -> JobRequest:
        """What was asked for."""
        return JobRequest.model_validate(self.job.request)


def job_page(session: Session, job_id: str) -> JobPage:
    """Everything a job's page shows. Raises NotFoundError."""
    # read first: an event that comes in between is applied twice, never missed
    newest = newest_event_id(session)
    row = get_job(session, job_id)
    job = job_views(session, [row])[0]
    rows = runs_of_job(session, job_id)
    environments = {run.environment_id: run.environment for _, run in rows if run}
    return JobPage(
        job=job,
        pairs=[(cell_view(cell), result_view(run) if run else None) for cell, run in rows],
        environments=list(environments.values()),
        log=[] if job.state is JobState.QUEUED else last_log_lines(session, job_id, LOG_LINES),
        newest_event=newest,
        machines=_machines(session, row) if job.state is JobState.RUNNING else [],
        comparisons=comparisons_of_job(session, job_id) if job.kind is JobKind.COMPARE else [],
    )


def _machines(session: Session, job: JobRow) -> list[WorkerRow]:
    running = {lot.worker_id for lot in job.lots if lot.state == LotState.RUNNING}
    return [get_worker(session, worker) for worker in sorted(filter(None, running))]


@dataclass(frozen=True)
class Grid:
    """Cells of a job: a row per contender, a column per case and pass."""

    columns: Sequence[tuple[str, str]]
    rows: Sequence[tuple[str, Sequence[tuple[CellView, Result | None] | None]]]


def grid(pairs: Sequence[tuple[CellView, Result | None]]) -> Grid | None:
    """The grid, or None where it would be too large to read."""
    if len(pairs) > GRID_CELLS:
        return None
    columns = list(dict.fromkeys((cell.case, cell.pass_.value) for cell, _ in pairs))
    contenders = list(dict.fromkeys(cell.contender for cell, _ in pairs))
    found = {(pair[0].contender, pair[0].case, pair[0].pass_.value): pair for pair in pairs}
    rows = [
        (contender, [found.get((contender, *column)) for column in columns])
        for contender in contenders
    ]
    return Grid(columns, rows)
