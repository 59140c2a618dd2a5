"""`/shapes`: who is fastest at which shape, and what to use for a model."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from fastapi import APIRouter, Depends, Request, Response
from sqlalchemy.orm import Session

from lossbench.service.api.aggregate_records import MapCell, MapEntry, ShapeMap, Slice
from lossbench.service.api.context import ServiceContext
from lossbench.service.api.dependencies import may_read
from lossbench.service.api.maps import plan_map, shape_map, with_all_names
from lossbench.service.api.paging import MOST_VALUES
from lossbench.service.api.recommend_records import Recommendation
from lossbench.service.api.recommend_routes import RecommendQuery, recommend, wish_of
from lossbench.service.api.recommendation import shape_free
from lossbench.service.api.saved_views import SHAPES, ShapesView
from lossbench.service.contract.errors import InvalidRequestError
from lossbench.service.contract.words import Grade, Pass
from lossbench.service.plots import text
from lossbench.service.plots.contender_maps import contender_maps, grid, map_markdown
from lossbench.service.plots.spots import Spot, spot, winner_of
from lossbench.service.store.aggregates import (
    Newest,
    NewestKey,
    briefs_of,
    device_names,
    newest_keys,
)
from lossbench.service.store.permalinks import highest_result_id

from .address import Given, checked, given_of, kept_fields, query_with
from .exports import exports_of
from .frozen import Drawable, Moment
from .rendering import page

MOST_ENTRIES = 1000
"""Results of one page's map, so that its first byte comes within 100 ms."""
MOST_ROWS = 100
"""Rows of the table of every contender; the API has the rest."""
OWN = ("settings", "model", "need_tokens", "max_workspace")
"""Parameters of this page that `/shape-map` does not know."""
ASKING = ("model", "need_tokens", "gpu", "max_workspace", "max_error_grade")
"""Fields of the question what to use."""


@dataclass(frozen=True)
class Answer:
    """What to use, or why the question could not be answered."""

    found: Recommendation | None
    fault: str = ""


@dataclass(frozen=True)
class Loaded:
    """What the page shows: the map, all slices, the answer, and the devices to choose from."""

    shown: ShapeMap
    slices: Sequence[Slice]
    answer: Answer | None
    devices: Sequence[str]
    newest: str | None
    """Id of the newest of all results."""


def shape_pages(context: ServiceContext) -> APIRouter:
    """Routes of `/shapes`."""
    router = APIRouter(include_in_schema=False, dependencies=[Depends(may_read)])

    @router.get("/shapes")
    def show(request: Request) -> Response:
        given = given_of(request)
        query = checked(ShapesView, given)
        with context.database.reading() as session:
            found = _load(session, context, query)
        return _draw(request, context, given, query, found, None)

    return router


def _load(session: Session, context: ServiceContext, query: ShapesView) -> Loaded:
    shown, slices = _map(session, context, query)
    answer = _answer(session, context, query, shown)
    return Loaded(shown, slices, answer, device_names(session), highest_result_id(session))


def _slice_of(key: NewestKey) -> tuple[str, str, str]:
    return key.device_name, key.pass_, shape_free(key.case)


def _map(
    session: Session, context: ServiceContext, query: ShapesView
) -> tuple[ShapeMap, Sequence[Slice]]:
    """The map of the settings asked for, else of those with most results; and all slices."""
    found = newest_keys(session, with_all_names(query.wanted(), context.catalogue))
    plan = plan_map(found)
    slices = plan.slices
    if query.settings is not None:
        keys = [key for key in found.keys if _slice_of(key)[2] == query.settings]
        plan = plan_map(Newest(keys, found.read, found.complete))
    plan = replace(plan, cells=_bounded(plan.cells))
    return shape_map(plan, briefs_of(session, plan.run_ids), query.max_error_grade), slices


def _bounded(cells: Sequence[Sequence[str]]) -> Sequence[Sequence[str]]:
    """The first cells, with at most `MOST_ENTRIES` results, but always one cell."""
    ends = accumulate(len(cell) for cell in cells)
    return cells[: max(1, sum(end <= MOST_ENTRIES for end in ends))]


def _answer(
    session: Session, context: ServiceContext, query: ShapesView, shown: ShapeMap
) -> Answer | None:
    """The recommendation for the model asked about; None where none was asked about.

    Of the device that the page shows, unless one is asked for.
    """
    if query.model is None:
        return None
    gpu = query.gpu[:1] or ([shown.shown.device_name] if shown.shown else [])
    fields: Given = {
        "model": [query.model],
        "tokens": [query.need_tokens or "8192"],
        "gpu": gpu,
        "max_workspace": [query.max_workspace] if query.max_workspace else [],
        "max_error_grade": [query.max_error_grade.value],
        "pass": [pass_.value for pass_ in query.pass_[:1]],
        "dtype": [dtype.value for dtype in query.dtype[:1]],
        "recipe": [recipe.value for recipe in query.recipe[:1]],
    }
    try:
        asked = checked(RecommendQuery, {name: v for name, v in fields.items() if v})
        wish = wish_of(asked, context.catalogue)
        return Answer(recommend(session, context.catalogue, wish, asked.gpu))
    except InvalidRequestError as error:
        return Answer(None, "; ".join(fault.message for fault in error.faults))


def _entries(shown: ShapeMap) -> list[tuple[MapCell, MapEntry, Spot]]:
    pairs = [(cell, entry) for cell in shown.cells for entry in cell.entries][:MOST_ROWS]
    return [(cell, entry, spot(entry)) for cell, entry in pairs]


def _narrowed(given: Given, shown: ShapeMap) -> dict[str, Sequence[str]]:
    """The parameters that select what the map shows and no more."""
    narrowed = dict(given)
    if shown.shown:
        narrowed |= {"gpu": [shown.shown.device_name], "pass": [shown.shown.pass_.value]}
    cases = [cell.case for cell in shown.cells]
    if len(cases) <= MOST_VALUES:
        # the API's map has no settings of its own: the cases say the same
        narrowed["case"] = cases
    return narrowed


def _draw(
    request: Request,
    context: ServiceContext,
    given: Given,
    query: ShapesView,
    found: Loaded,
    moment: Moment | None,
) -> Response:
    shown = found.shown
    device = shown.shown.device_name if shown.shown else ""
    settings = shown.shown.settings if shown.shown else ""
    places = grid(shown.cells)
    narrowed = _narrowed(given, shown)
    rows = _entries(shown)
    return page(
        request,
        "shapes.html",
        moment=moment,
        newest=None if moment else found.newest,
        shown=shown,
        slices=found.slices,
        answer=found.answer,
        asked=query,
        kept=kept_fields(given, ("gpu", "pass", "settings", "max_error_grade")),
        kept_asking=kept_fields(given, ASKING),
        devices=found.devices,
        presets=sorted(context.catalogue.presets),
        grades=list(Grade),
        passes=list(Pass),
        places=places,
        winners={place: winner_of(cell) for place, cell in places.shapes.items()},
        rows=rows,
        rows_total=sum(len(cell.entries) for cell in shown.cells),
        counts=_counts(shown),
        figure_data=contender_maps(shown.cells, shown.contenders, device) if shown.cells else None,
        bounds=text.interval,
        link=lambda **changed: f"/shapes?{query_with(given, **changed)}",
        exports=exports_of(
            request,
            ("/shape-map", query_with(narrowed, without=OWN)),
            narrowed,
            map_markdown(shown.cells, device, settings),
            (SHAPES, given),
        ),
    )


SHAPES_PAGE = Drawable(SHAPES, _load, _draw)
"""The page, also as of a moment."""


def _counts(shown: ShapeMap) -> list[tuple[str, int]]:
    """How many shapes each contender wins, most first."""
    won: dict[str, int] = {}
    for cell in shown.cells:
        if cell.winner:
            won[cell.winner] = won.get(cell.winner, 0) + 1
    return sorted(won.items(), key=lambda item: (-item[1], item[0]))
