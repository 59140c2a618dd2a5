"""What the pages read from the store, one function per page."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

import sqlalchemy as sa
from fastapi import Query
from sqlalchemy.orm import Session

from lossbench.service.api.records import Comparison
from lossbench.service.contract.comparison import ComparisonView
from lossbench.service.contract.job import JobRequest
from lossbench.service.contract.result import CellView, JobView, Result
from lossbench.service.contract.words import JobKind, JobState, LotState
from lossbench.service.store.comparisons import comparisons_of_job
from lossbench.service.store.events import last_log_lines, newest_event_id
from lossbench.service.store.job_results import (
    cells_of_job,
    contenders_of_job,
    places_of_job,
    results_of_job,
)
from lossbench.service.store.jobs import get_job, list_jobs
from lossbench.service.store.models import EnvironmentRow, JobRow, RunRow, WorkerRow
from lossbench.service.store.overviews import jobs_by_state
from lossbench.service.store.tallies import results_total
from lossbench.service.store.views import job_views
from lossbench.service.store.workers import LIVE, get_worker, list_workers

LATEST_JOBS = 20
LOG_LINES = 400
PAGE_CELLS = 120
"""Cells on one page of a job, and at least those of one case: more is neither read nor quick."""


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
        results=results_total(session),
        newest_result_at=newest,
        workers=list_workers(session),
    )


MOST_NEWER = 1000
"""Newer results counted; more are given as so many."""


def newer_results(session: Session, after: str) -> int:
    """Results with an id above this one, counted up to `MOST_NEWER`."""
    inner = sa.select(RunRow.id).where(RunRow.id > after).limit(MOST_NEWER).subquery()
    return session.scalar(sa.select(sa.func.count()).select_from(inner)) or 0


FirstCase = Annotated[int, Query(ge=0, le=1_000_000)]
"""Number of the first case of a job that a page shows, from 0."""


@dataclass(frozen=True)
class Window:
    """Which cases of a job a page shows: `count` from number `first`, of `total`."""

    first: int
    count: int
    total: int

    @property
    def earlier(self) -> int | None:
        """First case of the page before; None on the first one."""
        return max(0, self.first - self.count) if self.first else None

    @property
    def later(self) -> int | None:
        """First case of the page after; None on the last one."""
        after = self.first + self.count
        return after if after < self.total else None

    @property
    def last(self) -> int:
        """Number of the last case shown, counted from 1."""
        return min(self.first + self.count, self.total)


@dataclass(frozen=True)
class JobCells:
    """A job with its contenders and the cells of some of its cases, without their results."""

    job: JobView
    names: Sequence[str]
    cells: Sequence[CellView]
    window: Window

    @property
    def request(self) -> JobRequest:
        """What was asked for."""
        return JobRequest.model_validate(self.job.request)


def job_cells(session: Session, job_id: str, first: int, count: int) -> JobCells:
    """A job and the cells of `count` cases from number `first`. Raises NotFoundError."""
    job = job_views(session, [get_job(session, job_id)])[0]
    places = places_of_job(session, job_id)
    first = min(first, max(0, len(places) - 1))
    cells = cells_of_job(session, job_id, places[first : first + count])
    names = contenders_of_job(session, job_id)
    return JobCells(job, names, cells, Window(first, count, len(places)))


def environments_of(session: Session, ids: Iterable[str]) -> list[EnvironmentRow]:
    """The environments with these ids, each once."""
    found = (session.get(EnvironmentRow, name) for name in dict.fromkeys(ids))
    return [row for row in found if row is not None]


def environments_in(session: Session, found: Comparison) -> list[EnvironmentRow]:
    """The environments that the rows of a comparison were measured in, each once."""
    sides = (s for row in found.items for s in (row.base, *(c.side for c in row.candidates)) if s)
    return environments_of(session, (side.environment_id for side in sides))


@dataclass(frozen=True)
class JobPage:
    """A job with some of its cases: their cells, results and environments; and its log."""

    job: JobView
    pairs: Sequence[tuple[CellView, Result | None]]
    environments: Sequence[EnvironmentRow]
    log: Sequence[str]
    newest_event: int
    machines: Sequence[WorkerRow]
    """Workers that measure its lots now."""
    comparisons: Sequence[ComparisonView]
    """Newest of each case and pass, of a compare job."""
    window: Window

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


def job_page(session: Session, job_id: str, first: int = 0) -> JobPage:
    """Everything a job's page shows, from its case number `first`. Raises NotFoundError."""
    # read first: an event that comes in between is applied twice, never missed
    newest = newest_event_id(session)
    row = get_job(session, job_id)
    job = job_views(session, [row])[0]
    places = places_of_job(session, job_id)
    each = max(1, PAGE_CELLS * len(places) // max(1, job.cells_total))
    first = min(first, max(0, len(places) - 1))
    chosen = places[first : first + each]
    # all of them need no filter, whose list of places could be long
    pairs = results_of_job(session, job_id, None if len(chosen) == len(places) else chosen)
    return JobPage(
        job=job,
        pairs=pairs,
        environments=environments_of(session, [run.environment_id for _, run in pairs if run]),
        log=[] if job.state is JobState.QUEUED else last_log_lines(session, job_id, LOG_LINES),
        newest_event=newest,
        machines=_machines(session, row) if job.state is JobState.RUNNING else [],
        comparisons=comparisons_of_job(session, job_id) if job.kind is JobKind.COMPARE else [],
        window=Window(first, each, len(places)),
    )


def _machines(session: Session, job: JobRow) -> list[WorkerRow]:
    running = {lot.worker_id for lot in job.lots if lot.state == LotState.RUNNING}
    return [get_worker(session, worker) for worker in sorted(filter(None, running))]


@dataclass(frozen=True)
class Grid:
    """Cells of a job: a row per contender, a column per case and pass."""

    columns: Sequence[tuple[str, str]]
    rows: Sequence[tuple[str, Sequence[tuple[CellView, Result | None] | None]]]


def grid(pairs: Sequence[tuple[CellView, Result | None]]) -> Grid:
    """The grid of these cells."""
    columns = list(dict.fromkeys((cell.case, cell.pass_.value) for cell, _ in pairs))
    contenders = list(dict.fromkeys(cell.contender for cell, _ in pairs))
    found = {(pair[0].contender, pair[0].case, pair[0].pass_.value): pair for pair in pairs}
    rows = [
        (contender, [found.get((contender, *column)) for column in columns])
        for contender in contenders
    ]
    return Grid(columns, rows)
