"""Routes at the root: health, readiness, metrics, the OpenAPI document and its pages."""

from typing import Any

from fastapi import APIRouter, Depends
from pydantic import BaseModel
from sqlalchemy.exc import SQLAlchemyError
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from ..contract.errors import SetupError
from ..store.database import check_schema
from ..store.workers import list_workers
from .dependencies import READING, Context, known_query
from .errors import NotReadyError
from .metrics import CONTENT_TYPE
from .openapi import errors_page, reference_page
from .problems import problem_docs

router = APIRouter(tags=["service"])


class Health(BaseModel):
    """A service that answers."""

    status: str


class Readiness(Health):
    """A service that is fit to serve. Without live workers jobs are taken, and wait."""

    workers: int


@router.get("/healthz", responses=problem_docs(), dependencies=[Depends(known_query)])
def get_health() -> Health:
    """Says that the process answers."""
    return Health(status="ok")


@router.get("/readyz", responses=problem_docs(), dependencies=[Depends(known_query)])
def get_readiness(context: Context) -> Readiness:
    """Says that database, schema, queue and reaper are fit to serve, and how many workers live."""
    try:
        current = check_schema(context.database)
        context.queue.depth()
        with context.database.reading() as session:
            workers = len(list_workers(session, live_only=True))
    except (SetupError, SQLAlchemyError) as error:
        raise NotReadyError("the database or the queue in it does not answer") from error
    if not current:
        raise NotReadyError("the database's schema is not up to date; run `lossbench db upgrade`")
    if not context.reaper_alive:
        raise NotReadyError("the reaper does not run")
    return Readiness(status="ready", workers=workers)


@router.get("/metrics", response_class=Response, responses=problem_docs(), dependencies=READING)
def get_metrics(context: Context) -> Response:
    """Metrics in Prometheus' text format."""
    return Response(context.metrics.text(), headers={"Content-Type": CONTENT_TYPE})


@router.get("/openapi.json", include_in_schema=False, dependencies=READING)
def get_openapi(request: Request) -> JSONResponse:
    """The OpenAPI document."""
    document: dict[str, Any] = request.app.openapi()
    return JSONResponse(document)


@router.get("/docs", include_in_schema=False, dependencies=READING)
def get_docs(request: Request) -> HTMLResponse:
    """The OpenAPI document as a page."""
    return HTMLResponse(reference_page(request.app.openapi()))


@router.get("/docs/errors", include_in_schema=False, dependencies=READING)
def get_error_docs() -> HTMLResponse:
    """Every problem type, under the heading that `type` names."""
    return HTMLResponse(errors_page())
