"""The plain pages: overview, machines, kernels, search."""

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import RedirectResponse

from lossbench.service.api.context import ServiceContext
from lossbench.service.api.dependencies import may_read
from lossbench.service.store.workers import list_workers

from .changes import lately
from .queries import overview
from .rendering import page

JOB, RUN = "job-", "run-"


def plain_pages(context: ServiceContext) -> APIRouter:
    """Routes of the pages that only read."""
    router = APIRouter(include_in_schema=False, dependencies=[Depends(may_read)])

    @router.get("/")
    def show_overview(request: Request) -> Response:
        with context.database.reading() as session:
            changed = lately(session)
            return page(request, "overview.html", overview=overview(session), lately=changed)

    @router.get("/machines")
    def show_machines(request: Request) -> Response:
        with context.database.reading() as session:
            return page(request, "machines.html", workers=list_workers(session))

    @router.get("/kernels")
    def show_kernels(request: Request, q: str = "") -> Response:
        wanted = q.strip().lower()
        catalogue = context.catalogue
        rows = [
            row
            for name, row in sorted(catalogue.kernels.items())
            if wanted in f"{name} {row.package or ''} {row.summary}".lower()
        ]
        presets = [row for name, row in sorted(catalogue.presets.items()) if wanted in name.lower()]
        return page(request, "kernels.html", kernels=rows, presets=presets, wanted=wanted)

    @router.get("/search")
    def search(q: str = "") -> Response:
        wanted = q.strip()
        if wanted.startswith(JOB):
            return RedirectResponse(f"/jobs/{_safe(wanted)}", 303)
        if wanted.startswith(RUN):
            return RedirectResponse(f"/results/{_safe(wanted)}", 303)
        return RedirectResponse(f"/kernels?q={_safe(wanted)}", 303)

    return router


def _safe(text: str) -> str:
    kept = "".join(sign for sign in text if sign.isalnum() or sign in "-_. ")
    return kept[:80].replace(" ", "+")
