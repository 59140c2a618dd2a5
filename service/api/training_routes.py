"""Routes of trainings: what contenders came to, run by run, and their curves."""

import math
from typing import Annotated

import sqlalchemy as sa
from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy.orm import Session
from starlette.requests import Request
from starlette.responses import Response

from ..contract.errors import NotFoundError
from ..contract.job import JobRequest
from ..contract.training import TrainingSpec
from ..contract.words import JobKind, JobState
from ..statistics.training_points import LEAST_POINTS
from ..store.jobs import get_job
from ..store.models import JobRow
from ..store.training_curves import curve_of
from ..store.training_models import TrainingRunRow
from .answers import tagged
from .dependencies import READING, Context
from .paging import (
    MOST_VALUES,
    Page,
    PageQuery,
    cut_page,
    decode_cursor,
    encode_cursor,
    link_next,
)
from .problems import problem_docs
from .result_routes import Text
from .training_records import (
    TrainingCurvePoints,
    TrainingDetail,
    TrainingMetric,
    TrainingPoints,
    TrainingRunView,
    TrainingView,
    contenders_of,
    role_of,
)

router = APIRouter(prefix="/api/v1", dependencies=READING, tags=["training"])

CURSOR = "training"
MOST_CURVES = 100
TrainingId = Annotated[str, Path(max_length=64)]


class TrainingQuery(PageQuery):
    """Which trainings to list. Repeated values are alternatives."""

    state: Annotated[list[JobState], Field(max_length=5, description="State of the job.")] = []
    contender: Annotated[
        list[Text], Field(max_length=MOST_VALUES, description="A contender that was trained.")
    ] = []


class TrainingPointsQuery(BaseModel):
    """Which curves, and in how many points."""

    model_config = ConfigDict(extra="forbid")

    metric: TrainingMetric = "loss"
    max_points: Annotated[
        int, Field(ge=LEAST_POINTS, le=20_000, description="Most points of one curve.")
    ] = 1000
    contender: Annotated[list[Text], Field(max_length=MOST_VALUES)] = []
    seed: Annotated[list[int], Field(max_length=MOST_VALUES)] = []


@router.get("/training", responses=problem_docs())
def get_trainings(
    request: Request,
    response: Response,
    query: Annotated[TrainingQuery, Query()],
    context: Context,
) -> Page[TrainingView]:
    """Trainings, newest first, with the verdict on each contender."""
    with context.database.reading() as session:
        views, cursor = list_trainings(session, query)
    link_next(request, response, cursor)
    return Page(items=views, next_cursor=cursor)


@router.get("/training/{training_id}", responses=problem_docs(404), response_model=TrainingDetail)
def get_training(request: Request, training_id: TrainingId, context: Context) -> Response:
    """One training: verdicts, the difference of the loss curves with its bands, and the runs."""
    with context.database.reading() as session:
        detail = read_training(session, training_id)
    return tagged(request, detail)


@router.get(
    "/training/{training_id}/points", responses=problem_docs(404), response_model=TrainingPoints
)
def get_training_points(
    request: Request,
    training_id: TrainingId,
    query: Annotated[TrainingPointsQuery, Query()],
    context: Context,
) -> Response:
    """The curves of a training's first 100 runs, thinned here: no spike is lost."""
    with context.database.reading() as session:
        points = read_points(session, training_id, query)
    return tagged(request, points)


def list_trainings(session: Session, query: TrainingQuery) -> tuple[list[TrainingView], str | None]:
    """One page of trainings, newest first, and the cursor of the next."""
    before = decode_cursor(CURSOR, query.cursor, [str])[0] if query.cursor else None
    jobs = _jobs(session, query, before)
    shown, cursor = cut_page(jobs, query.limit, lambda job: encode_cursor(CURSOR, job.id))
    runs = _runs(session, [job.id for job in shown])
    views = [
        TrainingView.model_validate(
            _facts(job) | {"contenders": contenders_of(runs[job.id], with_curves=False)}
        )
        for job in shown
    ]
    return views, cursor


def read_training(session: Session, training_id: str) -> TrainingDetail:
    """One training with its runs. Raises NotFoundError."""
    job = _training(session, training_id)
    runs = _runs(session, [job.id])[job.id]
    return TrainingDetail.model_validate(
        _facts(job)
        | {
            "contenders": contenders_of(runs, with_curves=True),
            "runs": [_run(run, JobState(job.state).ended) for run in runs],
        }
    )


def read_points(session: Session, training_id: str, query: TrainingPointsQuery) -> TrainingPoints:
    """Curves of a training, thinned. Raises NotFoundError."""
    job = _training(session, training_id)
    runs = [run for run in _runs(session, [job.id])[job.id] if _wanted(run, query)]
    curves = [_points(session, run, query) for run in runs[:MOST_CURVES]]
    return TrainingPoints(id=job.id, metric=query.metric, curves=tuple(curves))


def _jobs(session: Session, query: TrainingQuery, before: str | None) -> list[JobRow]:
    wanted = sa.select(JobRow).where(JobRow.kind == JobKind.TRAIN.value)
    if before is not None:
        wanted = wanted.where(JobRow.id < before)
    if query.state:
        wanted = wanted.where(JobRow.state.in_([state.value for state in query.state]))
    if query.contender:
        trained = sa.select(TrainingRunRow.job_id).where(
            TrainingRunRow.contender.in_(query.contender)
        )
        wanted = wanted.where(JobRow.id.in_(trained))
    return list(session.scalars(wanted.order_by(JobRow.id.desc()).limit(query.limit + 1)))


def _training(session: Session, training_id: str) -> JobRow:
    job = get_job(session, training_id)
    if job.kind != JobKind.TRAIN:
        raise NotFoundError(f"job {training_id!r} trains nothing; GET /api/v1/jobs/{job.id} has it")
    return job


def _runs(session: Session, job_ids: list[str]) -> dict[str, list[TrainingRunRow]]:
    """Runs of trainings, by seed and then by contender."""
    found: dict[str, list[TrainingRunRow]] = {job_id: [] for job_id in job_ids}
    query = sa.select(TrainingRunRow).where(TrainingRunRow.job_id.in_(job_ids))
    for run in session.scalars(query.order_by(TrainingRunRow.seed, TrainingRunRow.position)):
        found[run.job_id].append(run)
    return found


def _facts(job: JobRow) -> dict[str, object]:
    request = JobRequest.model_validate(job.request)
    return {
        "id": job.id,
        "state": job.state,
        "training": request.training or TrainingSpec(),
        "accelerator": job.accelerator,
        "labels": job.labels,
        "created_at": job.created_at,
        "started_at": job.started_at,
        "ended_at": job.ended_at,
    }


_SAME = [
    name
    for name in TrainingRunView.model_fields
    if name not in ("role", "state")
]  # fmt: skip


def _run(run: TrainingRunRow, job_ended: bool) -> TrainingRunView:
    state = "stopped" if run.state == "running" and job_ended else run.state
    values = {name: getattr(run, name) for name in _SAME}
    return TrainingRunView.model_validate({**values, "role": role_of(run), "state": state})


def _wanted(run: TrainingRunRow, query: TrainingPointsQuery) -> bool:
    named = not query.contender or run.contender in query.contender
    return named and (not query.seed or run.seed in query.seed)


def _points(
    session: Session, run: TrainingRunRow, query: TrainingPointsQuery
) -> TrainingCurvePoints:
    curve = curve_of(session, run.id, query.metric, query.max_points)
    values = curve.values.tolist()
    return TrainingCurvePoints.model_construct(
        run_id=run.id,
        contender=run.contender,
        seed=run.seed,
        steps=tuple(curve.steps.tolist()),
        values=tuple(value if math.isfinite(value) else None for value in values),
    )
