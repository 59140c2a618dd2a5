"""Routes of claims: what was said of these kernels, and what the stored results say to it."""

from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from ..contract.claim import ClaimVerdict, get_claim, load_claims
from .answers import tagged
from .claim_records import ClaimDetail, ClaimView, claim_details, claim_view
from .dependencies import READING, Context
from .paging import Page, PageQuery, cut_page, decode_cursor, encode_cursor, link_next
from .problems import problem_docs

router = APIRouter(prefix="/api/v1", dependencies=READING, tags=["claims"])

CURSOR = "claims"
ClaimId = Annotated[str, Path(max_length=64)]


class ClaimQuery(PageQuery):
    """Which claims to list. Repeated values are alternatives."""

    verdict: Annotated[
        list[ClaimVerdict], Field(max_length=3, description="What the stored results say.")
    ] = []


@router.get("/claims", responses=problem_docs())
def get_claims(
    request: Request, response: Response, query: Annotated[ClaimQuery, Query()], context: Context
) -> Page[ClaimView]:
    """Every claim with its verdict, decided now from the stored results."""
    claims = list(load_claims().values())
    first = decode_cursor(CURSOR, query.cursor, [int])[0] if query.cursor else 0
    with context.database.reading() as session:
        details = claim_details(session, claims)
    # a place is a claim's number among all: filtered or not, it stays the same
    views = [
        (number, claim_view(detail))
        for number, detail in enumerate(details)
        if number >= first and (not query.verdict or detail.verdict in query.verdict)
    ][: query.limit + 1]
    shown, cursor = cut_page(views, query.limit, lambda row: encode_cursor(CURSOR, row[0] + 1))
    link_next(request, response, cursor)
    return Page(items=[view for _, view in shown], next_cursor=cursor)


@router.get("/claims/{claim_id}", responses=problem_docs(404), response_model=ClaimDetail)
def get_one_claim(request: Request, claim_id: ClaimId, context: Context) -> Response:
    """A claim with its job, its rule, and the results that its verdict rests on."""
    claim = get_claim(claim_id)
    with context.database.reading() as session:
        (detail,) = claim_details(session, [claim])
    return tagged(request, detail)
