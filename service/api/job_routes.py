"""Routes of jobs: submit, follow, cancel, retry."""

import re
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Path, Query
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from ..contract.job import JobRequest
from ..contract.result import CellView, JobView
from ..store.jobs import get_cell, get_cell_log, get_job, list_cells, list_jobs
from ..store.views import cell_view, job_views
from .dependencies import READING, Context, Submitter
from .documents import Body, body_docs, body_of
from .paging import Page, PageQuery, cut_page, decode_cursor, encode_cursor, link_next
from .problems import problem_docs
from .records import DryRun, Retried
from .submission import Sender

router = APIRouter(prefix="/api/v1", dependencies=READING, tags=["jobs"])

MOST_WAIT_S = 30
_SECRETS = re.compile(
    r"lb_[A-Za-z0-9_-]{16,}|hf_[A-Za-z0-9]{16,}|(?<=://)[^/\s:@]+:[^/\s@]+(?=@)"
    r"|(?i:(?<=bearer )\S+|(?<=password=)\S+|(?<=token=)\S+|(?<=secret=)\S+)"
)

JobId = Annotated[str, Path(description="Id of a job.", max_length=64)]


@router.post(
    "/jobs",
    status_code=202,
    response_model=JobView,
    responses={
        200: {"model": DryRun, "description": "Dry run: what the job would do"},
        **problem_docs(409, 413, 415, 429),
    },
    openapi_extra=body_docs(JobRequest, yaml_too=True),
)
def submit_job(
    request: Request,
    context: Context,
    principal: Submitter,
    body: Annotated[Body[JobRequest], Depends(body_of(JobRequest))],
    dry_run: Annotated[bool, Query(description="Plan only; store nothing.")] = False,
    idempotency_key: Annotated[
        str | None,
        Header(min_length=1, max_length=255, description="Makes it safe to send this again."),
    ] = None,
) -> Response:
    """Submit a job, or with `dry_run=true` learn what it would do.

    The same `Idempotency-Key` with the same body gives the first answer again.
    """
    if dry_run:
        planned = context.submission.dry_run(body.value)
        return Response(planned.model_dump_json(by_alias=True), 200, media_type="application/json")
    sender = Sender(principal.token_id, principal.owner, idempotency_key)
    done = context.submission.submit(body.value, body.digest, sender)
    request.state.job_id = done.job.id
    headers = {"Location": f"/api/v1/jobs/{done.job.id}"}
    if done.replayed:
        headers["Idempotent-Replayed"] = "true"
    return JSONResponse(done.job.model_dump(mode="json", by_alias=True), 202, headers)


@router.get("/jobs", responses=problem_docs())
def get_jobs(
    request: Request, response: Response, query: Annotated[PageQuery, Query()], context: Context
) -> Page[JobView]:
    """Jobs, newest first."""
    before = decode_cursor("jobs", query.cursor, [str])[0] if query.cursor else None
    with context.database.reading() as session:
        rows = list_jobs(session, before, query.limit + 1)
        shown, cursor = cut_page(rows, query.limit, lambda row: encode_cursor("jobs", row.id))
        views = job_views(session, list(shown))
    link_next(request, response, cursor)
    return Page(items=views, next_cursor=cursor)


@router.get("/jobs/{job_id}", responses=problem_docs(404))
async def get_one_job(
    job_id: JobId,
    context: Context,
    wait: Annotated[
        float,
        Query(ge=0, le=MOST_WAIT_S, description="Seconds to wait for a change of its state."),
    ] = 0,
) -> JobView:
    """One job: state, counts by outcome, place in the queue, estimate of the end.

    With `wait` the answer comes when the state changes or the time is over: the polling twin of
    the event stream. Async, so that a waiting reader holds no thread.
    """
    return await context.events.wait(job_id, wait)


@router.get("/jobs/{job_id}/cells", responses=problem_docs(404))
def get_cells(
    job_id: JobId,
    request: Request,
    response: Response,
    query: Annotated[PageQuery, Query()],
    context: Context,
) -> Page[CellView]:
    """Cells of a job, in order."""
    after = decode_cursor("cells", query.cursor, [int])[0] if query.cursor else -1
    with context.database.reading() as session:
        get_job(session, job_id)
        rows = list_cells(session, job_id, after, query.limit + 1)
    shown, cursor = cut_page(rows, query.limit, lambda row: encode_cursor("cells", row.position))
    link_next(request, response, cursor)
    return Page(items=[cell_view(row) for row in shown], next_cursor=cursor)


@router.get(
    "/jobs/{job_id}/events",
    response_class=Response,
    responses={
        200: {"content": {"text/event-stream": {}}, "description": "Events until `done`"},
        204: {"description": "The job has ended and nothing follows `Last-Event-ID`"},
        **problem_docs(404),
    },
)
async def follow_job(
    job_id: JobId,
    context: Context,
    last_event_id: Annotated[
        str | None, Header(description="Id of the last event seen; resumes behind it.")
    ] = None,
) -> Response:
    """Server-sent events `state`, `cell`, `log`, `done` of a job; closes after `done`."""
    return await context.events.stream(job_id, last_event_id)


@router.get(
    "/jobs/{job_id}/cells/{position}/log",
    response_class=PlainTextResponse,
    responses=problem_docs(404),
)
def get_log(
    job_id: JobId, position: Annotated[int, Path(ge=0, le=10**9)], context: Context
) -> PlainTextResponse:
    """The last 256 KiB that a cell's measuring process printed, secrets masked."""
    with context.database.reading() as session:
        get_job(session, job_id)
        text = get_cell_log(session, get_cell(session, job_id, position))
    return PlainTextResponse(mask_secrets(text), headers={"Cache-Control": "private, no-cache"})


def mask_secrets(text: str) -> str:
    """The text without tokens, passwords in URLs, and the like."""
    return _SECRETS.sub("***", text)


@router.post("/jobs/{job_id}/cancel", responses=problem_docs(404, 409, 429))
def cancel_job(job_id: JobId, context: Context, principal: Submitter) -> JobView:
    """End a job: what is queued or running becomes `cancelled`."""
    context.jobs.cancel(job_id)
    return context.events.view(job_id)


@router.post("/jobs/{job_id}/retry", status_code=202, responses=problem_docs(404, 409, 429))
def retry_job(job_id: JobId, context: Context, principal: Submitter) -> Retried:
    """Run again only the cells that ended `failed`, `timed_out` or `cancelled`."""
    return Retried(job_id=job_id, cells_requeued=context.submission.retry(job_id))
