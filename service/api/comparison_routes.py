"""Routes of comparisons: two contenders measured in turns until a verdict."""

from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from ..contract.comparison import ComparisonView
from ..contract.words import Pass, Verdict
from ..store.comparisons import ComparisonFilter, comparisons_page, get_comparison
from .answers import tagged
from .dependencies import READING, Context
from .paging import (
    MOST_VALUES,
    Page,
    PageQuery,
    cut_page,
    decode_cursor,
    encode_cursor,
    link_next,
)
from .problems import problem_docs
from .result_routes import Text

router = APIRouter(prefix="/api/v1", dependencies=READING, tags=["compare"])

CURSOR = "comparisons"


class ComparisonQuery(PageQuery):
    """Which comparisons to list. Repeated values are alternatives."""

    job: Annotated[list[Text], Field(max_length=MOST_VALUES, description="Job.")] = []
    base: Annotated[
        list[Text], Field(max_length=MOST_VALUES, description="Base, such as liger@0.8.5.")
    ] = []
    candidate: Annotated[list[Text], Field(max_length=MOST_VALUES, description="Candidate.")] = []
    case: Annotated[list[Text], Field(max_length=MOST_VALUES, description="Case, as text.")] = []
    pass_: Annotated[list[Pass], Field(alias="pass", max_length=3, description="Pass.")] = []
    verdict: Annotated[list[Verdict], Field(max_length=4, description="Verdict.")] = []

    def wanted(self) -> ComparisonFilter:
        """The filters alone."""
        return ComparisonFilter(**self.model_dump(exclude={"limit", "cursor"}))


@router.get("/comparisons", responses=problem_docs())
def get_comparisons(
    request: Request,
    response: Response,
    query: Annotated[ComparisonQuery, Query()],
    context: Context,
) -> Page[ComparisonView]:
    """Comparisons of two contenders that were measured in turns, newest first."""
    before = decode_cursor(CURSOR, query.cursor, [str])[0] if query.cursor else None
    with context.database.reading() as session:
        views = comparisons_page(session, query.wanted(), before, query.limit + 1)
    shown, cursor = cut_page(views, query.limit, lambda view: encode_cursor(CURSOR, view.id))
    link_next(request, response, cursor)
    return Page(items=list(shown), next_cursor=cursor)


@router.get(
    "/comparisons/{comparison_id}", responses=problem_docs(404), response_model=ComparisonView
)
def get_one_comparison(
    request: Request, comparison_id: Annotated[str, Path(max_length=64)], context: Context
) -> Response:
    """One comparison: verdict, ratio with its interval, and what it could have told apart."""
    with context.database.reading() as session:
        view = get_comparison(session, comparison_id)
    return tagged(request, view)
