"""Pages of jobs: the form, the live page, the report at the same address."""

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Form, Request, Response
from fastapi.responses import RedirectResponse

from lossbench.service.api.context import ServiceContext
from lossbench.service.api.dependencies import Sender as Asking
from lossbench.service.api.dependencies import Submitter, limit_writes, may_read, presented_csrf
from lossbench.service.api.records import DryRun
from lossbench.service.api.security import Principal, check_csrf, require
from lossbench.service.api.submission import Sender
from lossbench.service.contract.errors import (
    Fault,
    InvalidRequestError,
    NotAllowedError,
    NotAuthenticatedError,
)
from lossbench.service.contract.job import JobRequest
from lossbench.service.contract.result import CellView, JobView, Result
from lossbench.service.contract.words import RETRIED, Dtype, JobKind, Pass, Recipe, Scope
from lossbench.service.plots import figure, gaps_of, text
from lossbench.service.plots.markdown import job_markdown
from lossbench.service.plots.report import report_tables
from lossbench.service.plots.verdicts import (
    VerdictRow,
    compared,
    verdict_markdown,
    verdict_rows,
)
from lossbench.service.store.workers import live_machines

from .command import submit_command
from .exports import exports_of
from .form import JobForm, unspoken
from .queries import FirstCase, JobPage, grid, job_page
from .rendering import page

LOG_IN, NOT_ALLOWED = "log_in", "not_allowed"
STATUSES = {LOG_IN: 401, NOT_ALLOWED: 403}
FIGURE_LABELS = {
    "latency": "Time per call of every contender, in milliseconds; lower is better",
    "memory": "Workspace of every contender in bytes; lower is better",
    "floor": "Time of every contender over the measured floor; lower is better",
    "error": "Relative L2 error of dW, dx and loss of every contender; lower is better",
}


def job_pages(context: ServiceContext) -> APIRouter:
    """Routes of `/jobs`."""
    router = APIRouter(include_in_schema=False, dependencies=[Depends(may_read)])
    _form_routes(router, context)
    _job_routes(router, context)
    return router


def _form_routes(router: APIRouter, context: ServiceContext) -> None:
    @router.get("/jobs/new")
    def new_job(request: Request) -> Response:
        earlier = request.query_params.get("from")
        if not earlier:
            return _form_page(context, request, JobForm.fresh())
        with context.database.reading() as session:
            wanted = job_page(session, earlier).request
        form = JobForm.of_request(wanted)
        return _form_page(context, request, form, lost=unspoken(wanted), earlier=earlier)

    @router.post("/jobs/new", dependencies=[Depends(limit_writes)])
    def send_job(
        request: Request,
        principal: Asking,
        csrf: Annotated[str | None, Depends(presented_csrf)],
        form: Annotated[JobForm, Form()],
    ) -> Response:
        refusal = _refusal(principal, csrf)
        if refusal is not None:
            return _form_page(context, request, form, error=refusal)
        try:
            wanted = form.request()
            if form.action == "submit":
                sender = Sender(principal.token_id, principal.owner)
                job = context.submission.submit(wanted, "", sender).job
                return RedirectResponse(f"/jobs/{job.id}", 303)
            plan = context.submission.dry_run(wanted)
        except InvalidRequestError as error:
            return _form_page(context, request, form, error=error)
        return _form_page(context, request, form, plan=plan)


def _refusal(principal: Principal, csrf: str | None) -> InvalidRequestError | None:
    """Why this sender may not submit, for the page of the form: what was filled in is kept."""
    try:
        require(principal, Scope.SUBMIT)
        check_csrf(principal, csrf)
    except NotAuthenticatedError:
        message = "log in first, in another tab to keep what you filled in; then send it again"
        return InvalidRequestError([Fault("", LOG_IN, message)])
    except NotAllowedError as error:
        fits = principal.may(Scope.SUBMIT)
        message = "this page is older than your login; send it again" if fits else error.message
        return InvalidRequestError([Fault("", NOT_ALLOWED, message)])
    return None


def _status_of(error: InvalidRequestError | None) -> int:
    if error is None:
        return 200
    return STATUSES.get(error.faults[0].code, 422)


def _form_page(
    context: ServiceContext,
    request: Request,
    form: JobForm,
    *,
    plan: DryRun | None = None,
    error: InvalidRequestError | None = None,
    lost: Sequence[str] = (),
    earlier: str = "",
) -> Response:
    catalogue = context.catalogue
    kernels = [row for _, row in sorted(catalogue.kernels.items())]
    with context.database.reading() as session:
        queues = {queue for machine in live_machines(session) for queue in machine.queues}
    return page(
        request,
        "job_new.html",
        _status_of(error),
        form=form,
        plan=plan,
        faults=error.faults if error else (),
        kernels=kernels,
        baselines=[row for row in kernels if row.is_built_in],
        presets=[row for _, row in sorted(catalogue.presets.items())],
        passes=[word.value for word in Pass],
        dtypes=[word.value for word in Dtype],
        recipes=[word.value for word in Recipe],
        accelerators=sorted(queues),
        lost=lost,
        earlier=earlier,
    )


def _job_routes(router: APIRouter, context: ServiceContext) -> None:
    @router.get("/jobs/{job_id}")
    def show_job(request: Request, job_id: str, first: FirstCase = 0) -> Response:
        with context.database.reading() as session:
            shown = job_page(session, job_id, first)
        values = _shared(shown) | _facts(shown)
        report = _report(shown) if shown.job.state.ended else _no_report()
        filters = {"job": [job_id]}
        exports = exports_of(request, (f"/jobs/{job_id}", ""), filters, report["markdown"])
        return page(request, "job.html", exports=exports, **values, **report)

    @router.get("/jobs/{job_id}/live")
    def live_part(request: Request, job_id: str, first: FirstCase = 0) -> Response:
        with context.database.reading() as session:
            shown = job_page(session, job_id, first)
        return page(request, "_job_live.html", **_shared(shown))

    @router.post("/jobs/{job_id}/cancel", dependencies=[Depends(limit_writes)])
    def cancel_job(job_id: str, _sender: Submitter) -> Response:
        context.jobs.cancel(job_id)
        return RedirectResponse(f"/jobs/{job_id}", 303)

    @router.post("/jobs/{job_id}/retry", dependencies=[Depends(limit_writes)])
    def retry_job(job_id: str, _sender: Submitter) -> Response:
        context.submission.retry(job_id)
        return RedirectResponse(f"/jobs/{job_id}", 303)


def _shared(shown: JobPage) -> dict[str, Any]:
    return {
        "job": shown.job,
        "ended": shown.job.state.ended,
        "grid": grid(shown.pairs),
        "window": shown.window,
        "cell_value": cell_value,
        "machines": shown.machines,
    }


def cell_value(cell: CellView, result: Result | None) -> str:
    """The small line of a grid cell: progress, then time and ratio."""
    if result is not None and result.latency_ms is not None:
        if result.ratio_to_baseline is None or result.contender == result.baseline:
            return text.milliseconds(result.latency_ms)
        return f"{text.milliseconds(result.latency_ms)} · {text.ratio(result.ratio_to_baseline)}"
    if cell.outcome is None and cell.visits_total:
        return f"{cell.visits_done} of {cell.visits_total} visits"
    return "\u00a0"


def _facts(shown: JobPage) -> dict[str, Any]:
    request = shown.request
    return {
        "baseline": request.baseline.text,
        "processes": _processes(request),
        "kind": request.kind.value,
        "environments": shown.environments,
        "log": shown.log,
        "newest_event": shown.newest_event,
        "took": _took(shown.job),
        "retryable": sum(shown.job.outcomes.get(outcome, 0) for outcome in RETRIED),
        "comparable": shown.job.kind is not JobKind.TRAIN
        and len({cell.contender for cell in shown.cells}) > 1,
    }


def _processes(request: JobRequest) -> str:
    if request.is_comparison:
        return f"{request.least_processes} to {request.max_processes}"
    return str(request.processes)


def _took(job: JobView) -> float | None:
    if job.started_at is None or job.ended_at is None:
        return None
    return (job.ended_at - job.started_at).total_seconds()


def _no_report() -> dict[str, Any]:
    return {"tables": (), "figures": (), "markdown": "", "command": "", "verdicts": ()}


def _report(shown: JobPage) -> dict[str, Any]:
    tables = report_tables(shown.pairs)
    command = submit_command(shown.request)
    gaps = gaps_of(shown.cells)
    results = shown.results
    figures = [(name, figure(name, results, gaps), label) for name, label in FIGURE_LABELS.items()]
    markdown = job_markdown(shown.job, tables, command)
    verdicts = _verdicts(shown)
    if verdicts:
        sides = [contender.text for contender in shown.request.contenders]
        markdown = f"{verdict_markdown(sides[0], sides[1], verdicts)}\n\n{markdown}"
    return {
        "tables": tables,
        "verdicts": verdicts,
        "figures": figures if results else [],
        "markdown": markdown,
        "command": command,
    }


def _verdicts(shown: JobPage) -> list[VerdictRow]:
    """Rows of a compare job; no other kind has any."""
    if not shown.request.is_comparison:
        return []
    return verdict_rows(compared(shown.pairs, shown.comparisons))
