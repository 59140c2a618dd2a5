"""Routes that set results side by side: comparison and plots."""

import importlib
import json
from collections.abc import Callable, Sequence
from typing import Annotated, Any, cast

from fastapi import APIRouter, Path, Query
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from ..contract.errors import Fault, InvalidRequestError, MissingPackageError, NotFoundError
from ..contract.plan import nearest
from ..contract.result import Result
from ..store.result_pages import Order, newest_of_each, sorted_runs
from ..store.results import finite_json
from ..store.views import result_view
from .answers import tagged, tagged_bytes
from .comparison import CURSOR, KEY_TYPES, Key, compare, load_entrant
from .dependencies import READING, Context
from .paging import decode_cursor, next_link
from .problems import problem_docs
from .records import Comparison
from .result_routes import FilterQuery, Text

router = APIRouter(prefix="/api/v1", dependencies=READING, tags=["compare"])

MOST_CANDIDATES = 10
MOST_PLOTTED = 2000
OVER_TIME = frozenset({"history"})
"""Plots of every result, not only of the newest of each contender, case and device."""

Figures = dict[str, Callable[[Sequence[Result]], dict[str, Any]]]


class CompareQuery(FilterQuery):
    """Two or more contenders, and filters over the results that count."""

    base: Annotated[Text, Field(description="Contender that the ratios divide by.")]
    cand: Annotated[
        list[Text],
        Field(min_length=1, max_length=MOST_CANDIDATES, description="Contenders set against it."),
    ]


@router.get("/compare", response_model=Comparison, responses=problem_docs())
def get_comparison(
    request: Request, query: Annotated[CompareQuery, Query()], context: Context
) -> Response:
    """One row per case, pass and device: the newest result of each contender, and their ratio.

    The verdict is that of the newest comparison head to head on the same hardware. Results measured
    apart are compared over their shared baseline, and their verdict is null.
    """
    after: Key | None = None
    if query.cursor is not None:
        after = cast(Key, tuple(decode_cursor(CURSOR, query.cursor, KEY_TYPES)))
    wanted, catalogue = query.wanted(), context.catalogue
    with context.database.reading() as session:
        base = load_entrant(session, catalogue, query.base, "/query/base", wanted)
        candidates = [
            load_entrant(session, catalogue, text, f"/query/cand/{index}", wanted)
            for index, text in enumerate(query.cand)
        ]
        found = compare(session, base, candidates, after, query.limit)
    link = {"Link": next_link(request, found.next_cursor)} if found.next_cursor else {}
    return tagged(request, found, headers=link)


@router.get(
    "/plots/{name}",
    response_class=Response,
    responses={
        200: {"content": {"application/json": {}}, "description": "A plotly figure"},
        **problem_docs(404),
    },
)
def get_plot(
    name: Annotated[str, Path(max_length=40)],
    request: Request,
    query: Annotated[FilterQuery, Query()],
    context: Context,
) -> Response:
    """A plotly figure as JSON over the newest result of each contender, case and device."""
    figures = load_figures()
    if name not in figures:
        known = ", ".join(figures)
        raise NotFoundError(f"there is no plot {name!r}{nearest(name, figures)}. Known: {known}")
    with context.database.reading() as session:
        # what others measured is never drawn beside, or in place of, what was measured here
        wanted = query.wanted().model_copy(update={"imported": False})
        runs = sorted_runs(session, wanted, Order(), None, MOST_PLOTTED + 1)
        if len(runs) > MOST_PLOTTED:
            message = f"more than {MOST_PLOTTED} results match; narrow them with filters"
            raise InvalidRequestError([Fault("/query", "too_many_results", message)])
        kept = runs if name in OVER_TIME else newest_of_each(runs)
        results = [result_view(run) for run in kept]
    figure = json.dumps(finite_json(figures[name](results)), allow_nan=False)
    return tagged_bytes(request, figure.encode())


def load_figures() -> Figures:
    """The figures by name. Imported when first asked for: plotly is large."""
    try:
        plots = importlib.import_module("lossbench.service.plots")
    except ModuleNotFoundError as error:
        raise MissingPackageError(f"plots need the package {error.name}") from error
    figures: Figures = plots.FIGURES
    return figures
