"""Log in with a token, log out: forms and event streams cannot send an Authorization header."""

from typing import Annotated

from fastapi import APIRouter, Depends, Form, Request, Response
from fastapi.responses import RedirectResponse

from lossbench.service.api.dependencies import Context, limit_writes, presented_csrf
from lossbench.service.api.security import (
    check_csrf,
    clear_session_cookie,
    set_session_cookie,
)
from lossbench.service.contract.errors import NotAuthenticatedError

from .rendering import page

router = APIRouter(include_in_schema=False)


def _local_path(target: str) -> str:
    """Where to go after logging in: a path of this service, never another site."""
    plain = target.startswith("/") and not target.startswith(("//", "/\\"))
    return target if plain and target.isprintable() else "/"


@router.get("/login")
def show_login(request: Request, to: str = "/") -> Response:
    """The form that takes a token."""
    return page(request, "login.html", to=_local_path(to), fault="")


@router.post("/login", dependencies=[Depends(limit_writes)])
def log_in(
    request: Request,
    context: Context,
    token: Annotated[str, Form()] = "",
    to: Annotated[str, Form()] = "/",
) -> Response:
    """Open a session for whoever holds the token."""
    try:
        session = context.authenticator.login(token.strip())
    except NotAuthenticatedError as error:
        return page(request, "login.html", 401, to=_local_path(to), fault=error.message)
    answer = RedirectResponse(_local_path(to), 303)
    # behind a proxy that ends TLS only the browser knows that it came by https
    by_https = request.headers.get("origin", "").startswith("https://")
    set_session_cookie(answer, session, secure=by_https or request.url.scheme == "https")
    return answer


@router.post("/logout")
def log_out(
    request: Request, context: Context, csrf: Annotated[str | None, Depends(presented_csrf)]
) -> Response:
    """End the session of this browser."""
    session = context.authenticator.session_of(request)
    if session is not None:
        check_csrf(context.authenticator.principal(request), csrf)
        context.authenticator.sessions.close(session.secret)
    answer = RedirectResponse("/", 303)
    clear_session_cookie(answer)
    return answer
