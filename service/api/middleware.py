"""Three small ASGI layers around every route: request scope, gate, and (Starlette's) gzip.

Not BaseHTTPMiddleware: it buffers, which breaks event streams.
"""

import time
from collections.abc import Iterable
from typing import Any

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..contract.errors import Fault, InvalidRequestError, LossbenchError, NotAllowedError
from ..contract.ids import new_id
from .errors import BodyTooLargeError, InternalError
from .metrics import Metrics
from .problems import problem_response, request_id
from .security import SAFE_METHODS, SESSION_COOKIE, AuthMode, own_origin

SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data:; object-src 'none'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
}
LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "[::1]"})

_log = structlog.get_logger("lossbench.api")


class RequestScope:
    """Outermost: request id, security headers, log line, and the 500 of last resort."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope.setdefault("state", {})["request_id"] = new_id("req")
        began = time.perf_counter()
        status: list[int] = []

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                status.append(message["status"])
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
                headers["X-Request-Id"] = request_id(scope)
                self._metrics.observe(
                    scope["method"], _template(scope), status[0], time.perf_counter() - began
                )
            await send(message)

        try:
            await self._app(scope, receive, sending)
        except ClientDisconnect:
            return
        except Exception as error:  # anything a route lets through becomes a plain 500
            _log.error("failed", request_id=request_id(scope), path=scope["path"], exc_info=error)
            if not status:
                await problem_response(Request(scope), InternalError())(scope, receive, sending)
        finally:
            _log_write(scope, status)


def _template(scope: Scope) -> str:
    return str(getattr(scope.get("route"), "path", "unmatched"))


def _log_write(scope: Scope, status: list[int]) -> None:
    if scope["method"] in SAFE_METHODS:
        return
    _log.info(
        "write",
        who=scope["state"].get("owner", "unknown"),
        method=scope["method"],
        path=scope["path"],
        status=status[0] if status else None,
        request_id=request_id(scope),
        **_job_of(scope),
    )


def _job_of(scope: Scope) -> dict[str, str]:
    """The job that a write made or changed, for the log."""
    job = scope["state"].get("job_id") or scope.get("path_params", {}).get("job_id")
    return {"job_id": str(job)[:64]} if job else {}


class Gate:
    """Refuses what no route should see: foreign hosts and origins, large bodies, NULs."""

    def __init__(self, app: ASGIApp, mode: AuthMode, max_body_bytes: int) -> None:
        self._app, self._mode, self._max_body_bytes = app, mode, max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or answer with the problem that it has."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refusal = self._refusal(scope, headers)
        if refusal is not None:
            await problem_response(Request(scope), refusal)(scope, receive, send)
            return
        await self._app(scope, self._counted(receive), send)

    def _refusal(self, scope: Scope, headers: Headers) -> LossbenchError | None:
        if "\0" in scope["path"] or b"%00" in scope["query_string"]:
            return InvalidRequestError([Fault("", "odd_character", "the address holds a NUL")])
        length = headers.get("content-length", "0")
        if length.isdigit() and int(length) > self._max_body_bytes:
            return self._too_large()
        if self._mode is AuthMode.OPEN:
            fault = _open_fault(headers)
            if fault:
                return NotAllowedError(fault)
        tokens = self._mode is AuthMode.TOKENS
        guarded = not tokens or SESSION_COOKIE in headers.get("cookie", "")
        writes = scope["method"] not in SAFE_METHODS
        if guarded and writes and not own_origin(headers, scope.get("scheme", "http"), tokens):
            return NotAllowedError("a write may not come from another site's page")
        return None

    def _too_large(self) -> BodyTooLargeError:
        return BodyTooLargeError(f"the body is larger than {self._max_body_bytes} bytes")

    def _counted(self, receive: Receive) -> Receive:
        seen = 0

        async def counting() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self._max_body_bytes:
                raise self._too_large()
            return message

        return counting


def _open_fault(headers: Headers) -> str | None:
    """Why a service without tokens does not answer this request, or None."""
    host = headers.get("host", "").lower()
    name = host[: host.index("]") + 1] if host.startswith("[") and "]" in host else host
    name = name if name.startswith("[") else name.partition(":")[0]
    if name not in LOCAL_HOSTS:
        return "a service without tokens answers only to localhost, 127.0.0.1 and [::1]"
    forwarded = _forwarded(headers.keys())
    if forwarded:
        return f"a service without tokens may not stand behind a proxy ({forwarded} was sent)"
    return None


def _forwarded(names: Iterable[Any]) -> str | None:
    for name in names:
        if name == "forwarded" or name == "x-real-ip" or name.startswith("x-forwarded"):
            return str(name)
    return None
