"""The API as an ASGI app; pages add their routes to it and so share its security and problems."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.metadata import PackageNotFoundError, version

from fastapi import FastAPI
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware

from ..contract.alert import AlertPatch
from ..contract.job import JobRequest
from . import (
    alert_routes,
    catalogue_routes,
    check_routes,
    claim_routes,
    compare_routes,
    comparison_routes,
    export_routes,
    import_routes,
    job_routes,
    proof_routes,
    recommend_routes,
    result_routes,
    root_routes,
    series_routes,
    token_routes,
    training_routes,
    view_routes,
)
from .context import ServiceContext
from .middleware import Gate, RequestScope
from .openapi import install_openapi, query_names
from .problems import ProblemPage, install_problem_handlers
from .records import ResultPatch, TokenRequest
from .security import SAFE_METHODS, AuthMode
from .view_routes import ViewRequest

GZIP_FROM_BYTES = 1000
# 533 KB of results: 2 ms and 80 KB at level 3, 5 ms and 69 KB at level 6
GZIP_LEVEL = 3


_ROUTES = (
    job_routes,
    result_routes,
    compare_routes,
    comparison_routes,
    recommend_routes,
    series_routes,
    alert_routes,
    claim_routes,
    view_routes,
    catalogue_routes,
    check_routes,
    proof_routes,
    import_routes,
    export_routes,
    training_routes,
    token_routes,
    root_routes,
)


def _version() -> str:
    try:
        return version("lossbench")
    except PackageNotFoundError:
        return "0"


def _guard(context: ServiceContext) -> Callable[[str, str], bool]:
    """Which routes need a token, for the OpenAPI document."""

    def guarded(method: str, path: str) -> bool:
        if context.authenticator.mode is AuthMode.OPEN or path in ("/healthz", "/readyz"):
            return False
        closed = not context.settings.open_reading or path.endswith("/tokens")
        return closed or method not in SAFE_METHODS

    return guarded


def create_api(context: ServiceContext, problem_page: ProblemPage | None = None) -> FastAPI:
    """The app over a context: `/api/v1`, `/healthz`, `/readyz`, `/metrics`, `/docs`.

    Its lifespan starts and stops the context's threads. `problem_page` draws errors outside
    `/api/` for browsers. Serve it with uvicorn's `proxy_headers=False`: forwarded addresses are
    not believed.
    """

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        context.start()
        try:
            yield
        finally:
            await run_in_threadpool(context.stop)

    app = FastAPI(
        title="lossbench",
        version=_version(),
        description="Speed, memory and numerical error of fused linear cross entropy kernels.",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
        middleware=[
            Middleware(RequestScope, metrics=context.metrics),
            Middleware(GZipMiddleware, minimum_size=GZIP_FROM_BYTES, compresslevel=GZIP_LEVEL),
            Middleware(
                Gate,
                mode=context.authenticator.mode,
                max_body_bytes=context.settings.max_body_bytes,
            ),
        ],
    )
    app.state.context = context
    app.state.problem_page = problem_page
    install_problem_handlers(app)
    for module in _ROUTES:
        app.include_router(module.router)
    bodies: list[type[BaseModel]] = [JobRequest, ResultPatch, TokenRequest, ViewRequest, AlertPatch]
    install_openapi(app, bodies, _guard(context))
    app.state.query_names = query_names(app.openapi())
    return app


__all__ = ["ServiceContext", "create_api"]
