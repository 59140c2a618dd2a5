"""Aggregates ready to plot: series with their points, the shape map, memory against time."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from ..contract.catalogue import Catalogue
from ..contract.errors import InvalidRequestError, NotFoundError
from ..contract.lineage import current_name, names_of
from ..contract.words import Grade
from ..store.aggregates import briefs_of, newest_keys, worst_errors
from ..store.results import ResultFilter
from ..store.series import SeriesKey, SeriesRow, series_page, series_points
from .aggregate_records import (
    Fronts,
    PointColumns,
    SeriesPage,
    SeriesPoints,
    SeriesView,
    ShapeMap,
)
from .answers import tagged
from .dependencies import READING, Context
from .maps import fronts, plan_fronts, plan_map, shape_map, with_all_names
from .paging import PageQuery, cut_page, decode_cursor, encode_cursor, next_link
from .problems import problem_docs
from .records import Moment
from .result_routes import Few, FilterQuery, Filters, Text

router = APIRouter(prefix="/api/v1", dependencies=READING, tags=["aggregates"])

SERIES = "series"
SeriesId = Annotated[str, Path(description="Id of a series.", max_length=2000)]
WorstGrade = Annotated[Grade, Field(description="Worst error grade that may win.")]


class MapQuery(Filters):
    """Filters over results, and how exact a winner must be."""

    max_error_grade: WorstGrade = Grade.FAIR


class PointsQuery(PageQuery):
    """Which points of a series, the newest first page by page."""

    limit: Annotated[int, Field(ge=1, le=1000, description="Most points of one page.")] = 1000
    version: Annotated[list[Text], Few] = []
    since: Moment | None = None
    until: Moment | None = None
    include_invalid: bool = False


def _renames(catalogue: Catalogue) -> dict[str, str]:
    aliases = {alias for row in catalogue.kernels.values() for alias in row.aliases}
    today = {alias: current_name(alias, catalogue) for alias in sorted(aliases)}
    return {alias: name for alias, name in today.items() if alias != name}


@router.get("/series", response_model=SeriesPage, responses=problem_docs())
def get_series(
    request: Request, query: Annotated[FilterQuery, Query()], context: Context
) -> Response:
    """Series of the results that match, the latest measured first.

    A series is one kernel with params on one case, pass and device; it goes over all versions, and
    over all names that the kernel ever had.
    """
    before = decode_cursor(SERIES, query.cursor, [str])[0] if query.cursor else None
    catalogue = context.catalogue
    wanted = with_all_names(query.wanted(), catalogue)
    with context.database.reading() as session:
        rows, complete = series_page(session, wanted, _renames(catalogue), before, query.limit + 1)
    shown, cursor = cut_page(
        rows, query.limit, lambda row: encode_cursor(SERIES, row.newest_result_id)
    )
    page = SeriesPage(
        items=tuple(_view(row) for row in shown), next_cursor=cursor, complete=complete
    )
    return tagged(request, page, headers={"Link": next_link(request, cursor)} if cursor else {})


def series_id(key: SeriesKey) -> str:
    """Opaque text of a series, which stays the same from day to day."""
    return encode_cursor("s", *key)


def _view(row: SeriesRow) -> SeriesView:
    facts: dict[str, Any] = {"pass": row.key.pass_}
    return SeriesView(
        id=series_id(row.key),
        kernel=row.key.kernel,
        params=row.key.params,
        case=row.key.case,
        device_name=row.key.device_name,
        points=row.points,
        versions=row.versions,
        first_at=row.first_at,
        last_at=row.last_at,
        newest_result_id=row.newest_result_id,
        **facts,
    )


@router.get("/series/{series_id}/points", response_model=SeriesPoints, responses=problem_docs(404))
def get_series_points(
    series_id: SeriesId, request: Request, query: Annotated[PointsQuery, Query()], context: Context
) -> Response:
    """The newest points of a series as columns, ordered by version and then by age."""
    catalogue = context.catalogue
    key = _key_of(series_id)
    # an id made before the kernel was renamed leads to the same series
    key = key._replace(kernel=current_name(key.kernel, catalogue))
    before = decode_cursor("points", query.cursor, [str])[0] if query.cursor else None
    fields = query.model_dump(include={"version", "since", "until", "include_invalid"})
    names = names_of(key.kernel, catalogue)
    with context.database.reading() as session:
        columns, following = series_points(
            session, key, names, ResultFilter(**fields), (before, query.limit)
        )
        if not columns["result_id"] and before is None:
            _refuse_unknown(series_points(session, key, names, _ANY, (None, 1))[0], series_id)
    cursor = encode_cursor("points", following) if following else None
    facts: dict[str, Any] = {"pass": key.pass_}
    found = SeriesPoints(
        id=series_id,
        kernel=key.kernel,
        params=key.params,
        case=key.case,
        device_name=key.device_name,
        points=PointColumns(**columns),  # type: ignore[arg-type]
        next_cursor=cursor,
        **facts,
    )
    return tagged(request, found, headers={"Link": next_link(request, cursor)} if cursor else {})


_ANY = ResultFilter(include_invalid=True)


def _key_of(text: str) -> SeriesKey:
    try:
        return SeriesKey._make(decode_cursor("s", text, [str] * 5))
    except InvalidRequestError as error:
        raise NotFoundError(f"there is no series {text[:60]!r}") from error


def _refuse_unknown(columns: dict[str, list[Any]], text: str) -> None:
    if not columns["result_id"]:
        raise NotFoundError(f"there is no series {text[:60]!r}; GET /api/v1/series lists them")


@router.get("/shape-map", response_model=ShapeMap, responses=problem_docs())
def get_shape_map(
    request: Request, query: Annotated[MapQuery, Query()], context: Context
) -> Response:
    """Who is fastest at which shape, over the newest results that match.

    A map is of one device, pass, dtype and set of options: the one with the most results is shown,
    `slices` names the others.
    """
    wanted = with_all_names(query.wanted(), context.catalogue)
    with context.database.reading() as session:
        plan = plan_map(newest_keys(session, wanted))
        rows = briefs_of(session, plan.run_ids)
    return tagged(request, shape_map(plan, rows, query.max_error_grade))


@router.get("/pareto", response_model=Fronts, responses=problem_docs())
def get_pareto(request: Request, query: Annotated[MapQuery, Query()], context: Context) -> Response:
    """Memory against time of every contender, case by case, with the front marked."""
    wanted = with_all_names(query.wanted(), context.catalogue)
    with context.database.reading() as session:
        plan = plan_fronts(newest_keys(session, wanted))
        rows = briefs_of(session, plan.run_ids)
        worst = worst_errors(session, plan.run_ids)
    return tagged(request, fronts(plan, rows, worst, query.max_error_grade))
