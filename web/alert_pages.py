"""`/alerts`: what changed from version to version, who looks after it, and what it rests on."""

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Depends, Form, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import BaseModel, ConfigDict, Field

from lossbench.service.api.alert_records import alert_detail, alert_view
from lossbench.service.api.alert_routes import AlertQuery
from lossbench.service.api.context import ServiceContext
from lossbench.service.api.dependencies import Submitter, limit_writes, may_read
from lossbench.service.api.paging import MOST_VALUES
from lossbench.service.api.submission import Sender
from lossbench.service.contract.alert import (
    AlertCase,
    AlertDetail,
    AlertMetric,
    AlertPatch,
    AlertState,
    AlertView,
)
from lossbench.service.plots import text
from lossbench.service.plots.markdown import markdown_table
from lossbench.service.plots.panels import PASS_WORDS
from lossbench.service.store.alerts import alerts_page, get_alert, patch_alert

from .address import Given, checked, given_of, query_with
from .alert_words import METRIC_WORDS
from .exports import exports_of
from .rendering import page

MOST_LISTED = 100
MOST_CASES = 400


class AlertForm(BaseModel):
    """The form of one alert."""

    model_config = ConfigDict(extra="ignore")

    state: AlertState
    owner: Annotated[str, Field(max_length=100)] = ""
    note: Annotated[str, Field(max_length=2000)] = ""


def alert_pages(context: ServiceContext) -> APIRouter:
    """Routes of `/alerts`."""
    router = APIRouter(include_in_schema=False, dependencies=[Depends(may_read)])

    @router.get("/alerts")
    def show_all(request: Request) -> Response:
        given = given_of(request)
        query = checked(AlertQuery, given)
        with context.database.reading() as session:
            rows = alerts_page(session, query.wanted(), None, MOST_LISTED + 1)
            alerts = [alert_view(row) for row in rows]
        return page(
            request,
            "alerts.html",
            alerts=alerts[:MOST_LISTED],
            more=len(alerts) > MOST_LISTED,
            asked=query,
            states=list(AlertState),
            link=lambda **changed: f"/alerts?{query_with(given, **changed)}",
            exports=exports_of(request, ("/alerts", query_with(given)), {}, _markdown(alerts)),
        )

    @router.get("/alerts/{alert_id}")
    def show(request: Request, alert_id: str) -> Response:
        with context.database.reading() as session:
            alert = alert_detail(get_alert(session, alert_id))
        return page(
            request,
            "alert.html",
            alert=alert,
            cases=alert.cases[:MOST_CASES],
            may_confirm=_may_confirm(alert),
            states=list(AlertState),
            bounds=text.interval,
            history_link=history_link,
            exports=exports_of(
                request, (f"/alerts/{alert_id}", ""), _results_of(alert), _cases(alert)
            ),
        )

    @router.post("/alerts/{alert_id}", dependencies=[Depends(limit_writes)])
    def change(alert_id: str, _sender: Submitter, form: Annotated[AlertForm, Form()]) -> Response:
        patch = AlertPatch(state=form.state, owner=form.owner, note=form.note)
        with context.database.transaction() as session:
            patch_alert(session, alert_id, patch)
        return RedirectResponse(f"/alerts/{alert_id}", 303)

    @router.post("/alerts/{alert_id}/confirm", dependencies=[Depends(limit_writes)])
    def confirm(alert_id: str, principal: Submitter) -> Response:
        context.alerts.confirm(alert_id, Sender(principal.token_id, principal.owner))
        return RedirectResponse(f"/alerts/{alert_id}", 303)

    return router


def _results_of(alert: AlertDetail) -> Given:
    """Filters of the results that its cases are about."""
    versions = [each for each in (alert.before_version, alert.after_version) if each]
    cases = list(dict.fromkeys(case.case for case in alert.cases))[:MOST_VALUES]
    return {"kernel": [alert.kernel] if alert.kernel else [], "version": versions, "case": cases}


def _may_confirm(alert: AlertDetail) -> bool:
    times = any(case.metric is AlertMetric.TIME for case in alert.cases)
    return alert.state is AlertState.CANDIDATE and times


def history_link(kernel: str, case: AlertCase) -> str:
    """Where the history of a case is drawn."""
    asked = {
        "kernel": [kernel],
        "case": [case.case],
        "gpu": [case.device_name],
        "pass": [case.pass_.value],
    }
    return f"/history?{query_with(asked)}"


def _markdown(alerts: Sequence[AlertView]) -> str:
    rows = [
        [alert.created_at.date().isoformat(), alert.title, alert.state, alert.owner or text.NONE]
        for alert in alerts
    ]
    return markdown_table(("since", "what", "state", "owner"), rows)


def _cases(alert: AlertDetail) -> str:
    rows = [
        [
            f"`{case.case}`, {PASS_WORDS[case.pass_]}, {case.device_name}",
            METRIC_WORDS[case.metric],
            case.before,
            case.after,
            text.NONE if case.ratio is None else text.ratio(case.ratio),
        ]
        for case in alert.cases
    ]
    headings = ("case", "metric", "before", "after", "after / before")
    return f"**{alert.title}**\n\n{markdown_table(headings, rows)}"
