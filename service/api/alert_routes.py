"""Routes of alerts: what changed from one version to the next, and what became of it."""

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from ..contract.alert import AlertDetail, AlertKind, AlertPatch, AlertState, AlertView
from ..store.alerts import AlertFilter, alerts_page, get_alert, patch_alert
from .alert_records import alert_detail, alert_view
from .answers import tagged
from .dependencies import READING, Context, Submitter
from .documents import Body, body_docs, body_of
from .paging import MOST_VALUES, Page, PageQuery, cut_page, decode_cursor, encode_cursor, link_next
from .problems import problem_docs
from .records import Moment
from .result_routes import Text
from .submission import Sender

router = APIRouter(prefix="/api/v1", dependencies=READING, tags=["alerts"])

CURSOR = "alerts"
AlertId = Annotated[str, Path(max_length=64)]


class AlertQuery(PageQuery):
    """Which alerts to list. Repeated values are alternatives."""

    state: Annotated[list[AlertState], Field(max_length=4, description="State.")] = []
    kind: Annotated[list[AlertKind], Field(max_length=6, description="What it is about.")] = []
    kernel: Annotated[list[Text], Field(max_length=MOST_VALUES, description="Kernel.")] = []
    since: Annotated[
        Moment | None, Field(description="Changed at or after this time, with its zone.")
    ] = None

    def wanted(self) -> AlertFilter:
        """The filters alone."""
        return AlertFilter(**self.model_dump(exclude={"limit", "cursor"}))


@router.get("/alerts", responses=problem_docs())
def get_alerts(
    request: Request, response: Response, query: Annotated[AlertQuery, Query()], context: Context
) -> Page[AlertView]:
    """Alerts, newest first: changes between versions of kernels, and notes."""
    before = decode_cursor(CURSOR, query.cursor, [str])[0] if query.cursor else None
    with context.database.reading() as session:
        rows = alerts_page(session, query.wanted(), before, query.limit + 1)
        views = [alert_view(row) for row in rows]
    shown, cursor = cut_page(views, query.limit, lambda view: encode_cursor(CURSOR, view.id))
    link_next(request, response, cursor)
    return Page(items=list(shown), next_cursor=cursor)


@router.get("/alerts/{alert_id}", responses=problem_docs(404), response_model=AlertDetail)
def get_one_alert(request: Request, alert_id: AlertId, context: Context) -> Response:
    """An alert with its cases, the inputs of its decision, and whether they decide alike today."""
    with context.database.reading() as session:
        detail = alert_detail(get_alert(session, alert_id))
    return tagged(request, detail)


@router.patch(
    "/alerts/{alert_id}",
    responses=problem_docs(404, 413, 415, 429),
    openapi_extra=body_docs(AlertPatch),
)
def change_alert(
    alert_id: AlertId,
    principal: Submitter,
    body: Annotated[Body[AlertPatch], Depends(body_of(AlertPatch))],
    context: Context,
) -> AlertDetail:
    """Set the state, the owner or the note; an empty text takes owner or note away."""
    with context.database.transaction() as session:
        return alert_detail(patch_alert(session, alert_id, body.value))


@router.post(
    "/alerts/{alert_id}/confirm", status_code=202, responses=problem_docs(404, 409, 422, 429)
)
def confirm_alert(alert_id: AlertId, principal: Submitter, context: Context) -> AlertDetail:
    """Measure its cases again, both versions head to head in 16 processes or more.

    The alert becomes `confirmed` or `dismissed` when the jobs have ended.
    """
    sender = Sender(principal.token_id, principal.owner)
    return alert_detail(context.alerts.confirm(alert_id, sender))
