"""The whole web application: the API with the pages in front of it."""

from fastapi import FastAPI, Request
from fastapi.responses import Response

from lossbench.service.api.app import ServiceContext, create_api
from lossbench.service.api.problems import Problem

from . import assets
from .alert_pages import alert_pages
from .claim_pages import claim_pages
from .compare_pages import compare_pages
from .detector_pages import detector_pages
from .history_pages import history_pages
from .job_pages import job_pages
from .kernel_pages import kernel_pages
from .machine_pages import machine_pages
from .pages import plain_pages
from .pareto_pages import pareto_pages
from .rendering import page
from .result_pages import result_pages
from .session_pages import router as session_router
from .shape_pages import shape_pages
from .training_pages import training_pages
from .view_pages import view_pages

ADVICE = {
    401: "Log in with a token that the operator of this service gave you (lossbench token create).",
    403: "Use a token with the scope that this needs, or open the page on the machine it runs on.",
    404: "Check the address, or start from the overview: jobs and results are linked from there.",
    405: "Follow a link or a button of a page instead of typing this address.",
    409: "Reload the page: its state has changed since you saw it.",
    413: "Send less at once: split the job into several.",
    422: "Change what is named above and send it again.",
    429: "Wait a little and try again.",
    503: "Wait a little and reload; if it stays, look at the service's log and its database.",
}
USUAL_ADVICE = "Reload the page. If it happens again, the service's log says more."


def error_page(request: Request, problem: Problem) -> Response:
    """A problem for people: what went wrong and what to try."""
    advice = ADVICE.get(problem.status, USUAL_ADVICE)
    return page(request, "error.html", problem.status, problem=problem, advice=advice)


def create_app(context: ServiceContext) -> FastAPI:
    """API and pages as one application."""
    app = create_api(context, error_page)
    for router in (
        assets.router,
        session_router,
        plain_pages(context),
        job_pages(context),
        compare_pages(context),
        result_pages(context),
        view_pages(context),
        shape_pages(context),
        pareto_pages(context),
        detector_pages(),
        alert_pages(context),
        claim_pages(context),
        training_pages(context),
        kernel_pages(context),
        machine_pages(context),
        history_pages(context),
    ):
        app.include_router(router)
    return app
