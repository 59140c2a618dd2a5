"""Every error leaves as RFC 9457 `application/problem+json`; one table maps errors to statuses."""

from collections.abc import Callable, Mapping
from typing import Any

import structlog
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from sqlalchemy.exc import InterfaceError, OperationalError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ..contract import errors as domain
from ..contract.errors import Fault, InvalidRequestError, LossbenchError, TooManyRequestsError
from . import errors as web
from .errors import problem_name
from .faults import LONGEST_MESSAGE, MOST_FAULTS, faults_of

MEDIA_TYPE = "application/problem+json"
ERROR_PAGE = "/docs/errors"

STATUS: dict[type[LossbenchError], int] = {
    domain.InvalidRequestError: 422,
    domain.UnknownNameError: 422,
    domain.JobTooLargeError: 422,
    domain.NotFoundError: 404,
    domain.ConflictError: 409,
    domain.NotAuthenticatedError: 401,
    domain.NotAllowedError: 403,
    domain.TooManyRequestsError: 429,
    web.TooManyStreamsError: 503,
    web.BodyTooLargeError: 413,
    web.MethodNotAllowedError: 405,
    web.UnsupportedMediaTypeError: 415,
    web.NotReadyError: 503,
    web.InternalError: 500,
    domain.DatabaseError: 503,
    domain.SchemaTooNewError: 503,
    domain.SetupError: 500,
    domain.DataDirectoryError: 500,
    domain.PortInUseError: 500,
    domain.MissingPackageError: 500,
    domain.WorkerError: 500,
    domain.ChildDiedError: 500,
    domain.ChildTimeoutError: 500,
    domain.LotLostError: 409,
    domain.InstallError: 500,
    domain.LossbenchError: 500,
}

_OF_STATUS: dict[int, type[LossbenchError]] = {
    401: domain.NotAuthenticatedError,
    403: domain.NotAllowedError,
    404: domain.NotFoundError,
    405: web.MethodNotAllowedError,
    413: web.BodyTooLargeError,
    415: web.UnsupportedMediaTypeError,
    429: domain.TooManyRequestsError,
}

_log = structlog.get_logger("lossbench.api")


class ProblemFault(BaseModel):
    """One thing that is wrong: where, a code, a sentence."""

    pointer: str
    code: str
    message: str


class Problem(BaseModel):
    """Body of every error answer (RFC 9457). `instance` is the id of the request."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    errors: list[ProblemFault] = []


ProblemPage = Callable[[Request, Problem], Response]
"""Draws a problem for a browser; pages hand one in so that their errors are HTML."""


def problem_title(error: type[LossbenchError]) -> str:
    """Short title, the same for every occurrence."""
    return problem_name(error).replace("-", " ").capitalize()


def request_id(scope: Mapping[str, Any]) -> str:
    """Id of a request, given to it by the outermost middleware."""
    return str(scope.get("state", {}).get("request_id", ""))


def problem_of(error: LossbenchError, instance: str) -> Problem:
    """The problem that says this error."""
    kind = next(cls for cls in type(error).__mro__ if cls in STATUS)
    status = STATUS[kind]
    faults: tuple[Fault, ...] = error.faults if isinstance(error, InvalidRequestError) else ()
    detail = error.message
    if faults:
        first = faults[0]
        detail = f"{first.pointer}: {first.message}" if first.pointer else first.message
        if len(faults) > 1:
            detail += f" (and {len(faults) - 1} more)"
    return Problem(
        type=f"{ERROR_PAGE}#{problem_name(kind)}",
        title=problem_title(kind),
        status=status,
        detail=detail[:LONGEST_MESSAGE],
        instance=instance,
        errors=[
            ProblemFault(pointer=f.pointer, code=f.code, message=f.message[:LONGEST_MESSAGE])
            for f in faults[:MOST_FAULTS]
        ],
    )


def problem_headers(error: LossbenchError) -> dict[str, str]:
    """Headers that go with an error."""
    if isinstance(error, TooManyRequestsError):
        return {"Retry-After": str(error.retry_after_s)}
    if isinstance(error, domain.NotAuthenticatedError):
        return {"WWW-Authenticate": 'Bearer realm="lossbench"'}
    if isinstance(error, domain.DatabaseError | web.NotReadyError):
        return {"Retry-After": "5"}
    return {}


def problem_response(
    request: Request, error: LossbenchError, headers: Mapping[str, str] | None = None
) -> Response:
    """The answer to a request that failed; HTML for a browser where the app draws pages."""
    problem = problem_of(error, request_id(request.scope))
    sent = {**problem_headers(error), **(headers or {}), "Cache-Control": "no-store"}
    page: ProblemPage | None = getattr(request.app.state, "problem_page", None)
    if page is not None and _wants_page(request):
        response = page(request, problem)
        response.headers.update(sent)
        return response
    return JSONResponse(problem.model_dump(), problem.status, sent, MEDIA_TYPE)


def _wants_page(request: Request) -> bool:
    accept = request.headers.get("accept", "")
    return "text/html" in accept and not request.url.path.startswith("/api/")


def _on_lossbench_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, LossbenchError):
        raise error
    status = problem_of(error, "").status
    if status >= 500 and not isinstance(error, TooManyRequestsError | web.NotReadyError):
        _log.error("failed", request_id=request_id(request.scope), exc_info=error)
    return problem_response(request, error)


def _on_http_exception(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    kind = _OF_STATUS.get(error.status_code)
    if kind is None:
        kind = InvalidRequestError if error.status_code < 500 else web.InternalError
    if kind is domain.NotFoundError:
        said: LossbenchError = kind(f"there is nothing at {request.url.path}")
    elif kind is web.MethodNotAllowedError:
        said = kind(f"{request.url.path} does not know {request.method}")
    else:
        said = kind(str(error.detail))
    return problem_response(request, said, {**(error.headers or {}), **_allowed(request, kind)})


def _allowed(request: Request, kind: type[LossbenchError]) -> dict[str, str]:
    """`Allow` of a 405 with all methods of the address: Starlette names those of one route."""
    names: dict[tuple[str, str], list[str]] = getattr(request.app.state, "query_names", {})
    path = getattr(request.scope.get("route"), "path", None)
    methods = sorted(method for method, known in names if known == path)
    return {"Allow": ", ".join(methods)} if methods and kind is web.MethodNotAllowedError else {}


def _on_invalid_input(request: Request, error: Exception) -> Response:
    if not isinstance(error, RequestValidationError):
        raise error
    return problem_response(request, InvalidRequestError(faults_of(error.errors())))


def _on_database_error(request: Request, error: Exception) -> Response:
    _log.error("database", request_id=request_id(request.scope), exc_info=error)
    return problem_response(request, domain.DatabaseError("the database does not answer"))


def install_problem_handlers(app: FastAPI) -> None:
    """Make an app answer with problems. What no handler takes, `RequestScope` turns into a 500."""
    app.add_exception_handler(LossbenchError, _on_lossbench_error)
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_exception_handler(RequestValidationError, _on_invalid_input)
    app.add_exception_handler(OperationalError, _on_database_error)
    app.add_exception_handler(InterfaceError, _on_database_error)


def problem_docs(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """OpenAPI entries of the problems that a route can answer with."""
    schema = {"$ref": "#/components/schemas/Problem"}
    described = {
        401: "A token is needed",
        403: "This token, host or origin may not do that",
        404: "There is no such thing",
        409: "The state of the thing forbids this",
        413: "The body is too large",
        415: "The body is neither JSON nor YAML",
        422: "The request cannot be served as written; `errors` names each fault",
        429: "Too many requests; `Retry-After` says when to try again",
        500: "Something went wrong inside",
        503: "Not ready, no database, or all event streams taken",
    }
    return {
        status: {"description": described[status], "content": {MEDIA_TYPE: {"schema": schema}}}
        for status in sorted({401, 403, 422, 500, 503, *statuses})
    }
