"""Routes of tokens: make, list, revoke. All need the scope `admin`."""

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from ..contract.errors import Fault, InvalidRequestError
from ..contract.words import Scope
from ..store.events import now
from ..store.models import TokenRow
from ..store.overviews import tokens_page
from ..store.tokens import create_token, revoke_token
from .dependencies import READING, Admin, AdminReader, Context
from .documents import Body, body_docs, body_of
from .paging import Page, PageQuery, cut_page, decode_cursor, encode_cursor, link_next
from .problems import problem_docs
from .records import NewToken, TokenRequest, TokenView

router = APIRouter(prefix="/api/v1", dependencies=READING, tags=["tokens"])


def _view(row: TokenRow) -> TokenView:
    return TokenView(
        id=row.id,
        name=row.name,
        prefix=row.prefix,
        scopes=tuple(Scope(scope) for scope in row.scopes),
        created_at=row.created_at,
        expires_at=row.expires_at,
        revoked_at=row.revoked_at,
        last_used_at=row.last_used_at,
    )


@router.post(
    "/tokens",
    status_code=201,
    responses=problem_docs(413, 415, 429),
    openapi_extra=body_docs(TokenRequest),
)
def make_token(
    response: Response,
    context: Context,
    principal: Admin,
    body: Annotated[Body[TokenRequest], Depends(body_of(TokenRequest))],
) -> NewToken:
    """Make a token. Its secret is in this answer and nowhere else."""
    wanted = body.value
    if wanted.expires_at is not None and wanted.expires_at <= now():
        raise InvalidRequestError([Fault("/expires_at", "in_the_past", "this time has passed")])
    scopes = list(dict.fromkeys(wanted.scopes))
    with context.database.transaction() as session:
        row, secret = create_token(session, wanted.name, scopes, wanted.expires_at)
    response.headers["Cache-Control"] = "no-store"
    response.headers["Location"] = "/api/v1/tokens"
    return NewToken(**dict(_view(row)), secret=secret)


@router.get("/tokens", responses=problem_docs())
def get_tokens(
    request: Request,
    response: Response,
    query: Annotated[PageQuery, Query()],
    context: Context,
    principal: AdminReader,
) -> Page[TokenView]:
    """Tokens, newest first, revoked ones too; never their secrets."""
    before = decode_cursor("tokens", query.cursor, [str])[0] if query.cursor else None
    with context.database.reading() as session:
        rows = tokens_page(session, before, query.limit + 1)
    shown, cursor = cut_page(rows, query.limit, lambda row: encode_cursor("tokens", row.id))
    link_next(request, response, cursor)
    response.headers["Cache-Control"] = "no-store"
    return Page(items=[_view(row) for row in shown], next_cursor=cursor)


@router.delete("/tokens/{token_id}", status_code=204, responses=problem_docs(404, 429))
def delete_token(
    token_id: Annotated[str, Path(max_length=64)], context: Context, principal: Admin
) -> None:
    """Revoke a token at once. It stays in the list, as revoked."""
    with context.database.transaction() as session:
        revoke_token(session, token_id)
