"""One result: everything that is known of it."""

from fastapi import APIRouter, Depends, Request, Response

from lossbench.service.api.context import ServiceContext
from lossbench.service.api.dependencies import may_read
from lossbench.service.plots import text
from lossbench.service.plots.markdown import results_markdown
from lossbench.service.plots.samples import samples
from lossbench.service.store.results import get_run, get_samples
from lossbench.service.store.views import result_view

from .exports import exports_of
from .rendering import page


def result_pages(context: ServiceContext) -> APIRouter:
    """Routes of `/results`."""
    router = APIRouter(include_in_schema=False, dependencies=[Depends(may_read)])

    @router.get("/results/{result_id}")
    def show_result(request: Request, result_id: str) -> Response:
        with context.database.reading() as session:
            run = get_run(session, result_id)
            blocks = get_samples(session, result_id)
            return page(
                request,
                "result.html",
                result=result_view(run),
                environment=run.environment,
                details=run.record.get("details") or {},
                measurement=run.record.get("measurement") or {},
                figure_data=samples(blocks) if blocks else None,
                bounds=text.interval,
                exports=exports_of(
                    request,
                    (f"/results/{run.id}", ""),
                    {
                        "kernel": [run.kernel],
                        "params": [run.params] if run.params else [],
                        "case": [run.case_text],
                        "pass": [run.pass_],
                        "gpu": [run.environment.device_name],
                    },
                    results_markdown([result_view(run)]),
                ),
            )

    return router
