"""What routes ask for: the context, a sender who may read or write, no unknown query parameter."""

from collections.abc import Callable
from typing import Annotated

from fastapi import Depends
from starlette.requests import Request

from ..contract.errors import Fault, InvalidRequestError
from ..contract.plan import nearest
from ..contract.words import Scope
from .context import ServiceContext
from .security import CSRF_FIELD, CSRF_HEADER, Principal, address_of, check_csrf, require

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
    if not request.headers.get("content-type", "").startswith(_FORMS):
        return None
    field = (await request.form()).get(CSRF_FIELD)
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
    """Refuses query parameters that the route does not have, naming the nearest it has."""
    names: dict[tuple[str, str], list[str]] = request.app.state.query_names
    known = names.get((request.method, getattr(request.scope.get("route"), "path", "")), [])
    faults = []
    for name in dict.fromkeys(request.query_params):
        if name not in known:
            listed = f"Known: {', '.join(known)}" if known else "This address takes none"
            message = f"there is no parameter {name[:60]!r}{nearest(name, known)}. {listed}"
            faults.append(Fault(f"/query/{name[:60]}", "unknown_parameter", message))
    if faults:
        raise InvalidRequestError(faults)


READING = [Depends(may_read), Depends(known_query)]
