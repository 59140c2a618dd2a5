"""What routes ask for: the context, a sender who may read or write, no unknown query parameter."""

import re
from collections.abc import Callable
from typing import Annotated

from fastapi import Depends
from starlette.exceptions import HTTPException
from starlette.requests import Request

from ..contract.errors import Fault, InvalidRequestError
from ..contract.plan import nearest
from ..contract.words import Scope
from .context import ServiceContext
from .openapi import QueryKind
from .security import (
    CSRF_FIELD,
    CSRF_HEADER,
    SESSION_COOKIE,
    Principal,
    address_of,
    check_csrf,
    require,
)

_FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")


def get_context(request: Request) -> ServiceContext:
    """The context that `create_api` was given."""
    context: ServiceContext = request.app.state.context
    return context


Context = Annotated[ServiceContext, Depends(get_context)]


def get_principal(request: Request, context: Context) -> Principal:
    """Who sent the request; found once."""
    known: Principal | None = getattr(request.state, "principal", None)
    if known is None:
        known = context.authenticator.principal(request)
        request.state.principal, request.state.owner = known, known.owner
    return known


Sender = Annotated[Principal, Depends(get_principal)]


def may_read(context: Context, request: Request) -> None:
    """Lets everybody read where reading is open, else holders of a token."""
    if not context.settings.open_reading:
        require(get_principal(request, context), Scope.READ)


def limit_writes(request: Request, context: Context) -> None:
    """Counts a write before its token is looked at: guessing tokens is limited too."""
    try:
        owner = get_principal(request, context).owner
    except Exception:
        context.limiter.take(address_of(request))
        raise
    context.limiter.take(owner)


async def presented_csrf(request: Request) -> str | None:
    """The CSRF token of a header or a form field; async since a form is read from the socket."""
    header = request.headers.get(CSRF_HEADER)
    if header is not None:
        return header
    is_form = request.headers.get("content-type", "").startswith(_FORMS)
    if not is_form or SESSION_COOKIE not in request.cookies:
        # only a session needs one
        return None
    try:
        field = (await request.form()).get(CSRF_FIELD)
    except HTTPException as error:
        fault = Fault("/header/Content-Type", "broken_form", str(error.detail))
        raise InvalidRequestError([fault]) from error
    return field if isinstance(field, str) else None


def writer(scope: Scope) -> Callable[..., Principal]:
    """A dependency: the sender of a write, counted, checked for CSRF and scope."""

    def checked(
        _counted: Annotated[None, Depends(limit_writes)],
        principal: Sender,
        csrf: Annotated[str | None, Depends(presented_csrf)],
    ) -> Principal:
        require(principal, scope)
        check_csrf(principal, csrf)
        return principal

    return checked


Submitter = Annotated[Principal, Depends(writer(Scope.SUBMIT))]
Admin = Annotated[Principal, Depends(writer(Scope.ADMIN))]


def admin_reader(principal: Sender) -> Principal:
    """The sender of a read that only an admin may make."""
    require(principal, Scope.ADMIN)
    return principal


AdminReader = Annotated[Principal, Depends(admin_reader)]


def known_query(request: Request) -> None:
    """Refuses query parameters that the route does not have, naming the nearest it has.

    Also one that comes twice where only one counts, and 8.0 or 1_000 for a whole number.
    """
    route = (request.method, getattr(request.scope.get("route"), "path", ""))
    kinds: dict[str, QueryKind] = request.app.state.query_kinds.get(route, {})
    faults = []
    for name in dict.fromkeys(request.query_params):
        values = request.query_params.getlist(name)
        if name not in kinds:
            listed = f"Known: {', '.join(kinds)}" if kinds else "This address takes none"
            message = f"there is no parameter {name[:60]!r}{nearest(name, list(kinds))}. {listed}"
            faults.append(Fault(f"/query/{name[:60]}", "unknown_parameter", message))
        elif len(values) > 1 and not kinds[name].repeatable:
            message = f"this parameter is given {len(values)} times; give it once"
            faults.append(Fault(f"/query/{name}", "repeated_parameter", message))
        elif kinds[name].whole and any(_odd_whole(value) for value in values):
            message = "write a whole number in digits alone"
            faults.append(Fault(f"/query/{name}", "int_parsing", message))
    if faults:
        raise InvalidRequestError(faults)


def _odd_whole(text: str) -> bool:
    """Whether a text would be read as a whole number although it is not written as one."""
    if re.fullmatch(r"-?[0-9]+", text):
        return False
    try:
        return float(text).is_integer()
    except ValueError:
        return False


READING = [Depends(may_read), Depends(known_query)]
