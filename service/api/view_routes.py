"""Permalinks: a view of results as of now, under a short address that keeps showing it."""

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Response
from pydantic import Field
from sqlalchemy.orm import Session
from starlette.requests import Request

from ..contract.catalogue import Catalogue
from ..contract.run import Record
from ..store.models import PermalinkRow
from ..store.permalinks import (
    MOST_COUNTED,
    count_now,
    get_permalink,
    save_permalink,
    what_changed,
)
from .answers import tagged
from .dependencies import READING, Context, Submitter
from .documents import Body, body_docs, body_of
from .problems import problem_docs
from .result_routes import Text
from .saved_views import read_view, refuse_unknown
from .view_records import InvalidatedResult, ViewStatus

router = APIRouter(prefix="/api/v1", dependencies=READING, tags=["views"])

ViewHash = Annotated[str, Path(description="Short name of a view.", max_length=40)]
Values = Annotated[list[Text], Field(max_length=50)]


class ViewRequest(Record):
    """A page of results and its query, as in the page's address: values or lists of values."""

    path: Annotated[str, Field(max_length=100)]
    query: Annotated[
        dict[Annotated[str, Field(max_length=40)], Text | Values], Field(max_length=40)
    ]


@router.post(
    "/views",
    status_code=201,
    responses=problem_docs(413, 415, 429),
    openapi_extra=body_docs(ViewRequest),
)
def make_view(
    principal: Submitter,
    body: Annotated[Body[ViewRequest], Depends(body_of(ViewRequest))],
    response: Response,
    context: Context,
) -> ViewStatus:
    """Keep a view of results under a short address, `/v/{hash}`.

    Contenders get the version that they stand for now. The same view of the same results has the
    same address.
    """
    asked, catalogue = body.value, context.catalogue
    query = {k: [v] if isinstance(v, str) else v for k, v in asked.query.items()}
    view = read_view(asked.path, query, catalogue)
    with context.database.transaction() as session:
        refuse_unknown(session, view)
        row = save_permalink(session, view.path, view.query, count_now(session, view.selected))
        status = view_status(session, row, catalogue)
    response.headers["Location"] = status.address
    return status


@router.get("/views/{view_hash}", response_model=ViewStatus, responses=problem_docs(404))
def get_view(view_hash: ViewHash, request: Request, context: Context) -> Response:
    """A stored view: its query, and whether newer or invalidated results exist."""
    with context.database.reading() as session:
        status = view_status(session, get_permalink(session, view_hash), context.catalogue)
    return tagged(request, status)


def view_status(session: Session, row: PermalinkRow, catalogue: Catalogue) -> ViewStatus:
    """A view as it is served. The session must not yet see the past."""
    view = read_view(row.path, row.query, catalogue)
    since = what_changed(session, row, view.selected)
    return ViewStatus(
        hash=row.hash,
        address=f"/v/{row.hash}",
        path=row.path,
        query=row.query,
        highest_result_id=row.highest_result_id,
        results=min(row.results, MOST_COUNTED),
        created_at=row.created_at,
        newer=since.newer,
        came_late=since.came_late,
        invalidated_total=since.invalidated_total,
        invalidated=tuple(
            InvalidatedResult(result_id=run_id, reason=reason)
            for run_id, reason in since.invalidated
        ),
    )
