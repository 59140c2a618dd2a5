"""`/pareto`: memory against time, shape by shape, with the front marked."""

from collections.abc import Sequence
from dataclasses import dataclass

from fastapi import APIRouter, Depends, Request, Response
from sqlalchemy.orm import Session

from lossbench.service.api.aggregate_records import Fronts
from lossbench.service.api.context import ServiceContext
from lossbench.service.api.dependencies import may_read
from lossbench.service.api.maps import FrontPlan, fronts, plan_fronts, with_all_names
from lossbench.service.api.saved_views import PARETO
from lossbench.service.api.series_routes import MapQuery
from lossbench.service.contract.words import Grade, Pass
from lossbench.service.plots import text
from lossbench.service.plots.fronts import (
    front_sentence,
    fronts_figure,
    fronts_markdown,
    inexact_on,
    inexact_sentence,
)
from lossbench.service.store.aggregates import (
    briefs_of,
    device_names,
    newest_keys,
    worst_errors,
)
from lossbench.service.store.permalinks import highest_result_id

from .address import Given, checked, given_of, kept_fields, query_with
from .exports import exports_of
from .frozen import Drawable, Moment
from .rendering import page

MOST_PANELS = 4
"""Fronts on one page; the chooser leads to the others."""
MOST_ROWS = 100
"""Rows of the table of one front."""

Place = tuple[str, str, str]
"""Device, case, pass."""


@dataclass(frozen=True)
class Loaded:
    """What the page shows: some fronts, all places that have one, the devices to choose from."""

    fronts: Fronts
    places: Sequence[Place]
    devices: Sequence[str]
    newest: str | None
    """Id of the newest of all results."""


def pareto_pages(context: ServiceContext) -> APIRouter:
    """Routes of `/pareto`."""
    router = APIRouter(include_in_schema=False, dependencies=[Depends(may_read)])

    @router.get("/pareto")
    def show(request: Request) -> Response:
        given = given_of(request)
        asked = checked(MapQuery, given)
        with context.database.reading() as session:
            found = _load(session, context, asked)
        return _draw(request, context, given, asked, found, None)

    return router


def _load(session: Session, context: ServiceContext, asked: MapQuery) -> Loaded:
    wanted = with_all_names(asked.wanted(), context.catalogue)
    # every case stays in the chooser, whichever one is shown
    plan = plan_fronts(newest_keys(session, wanted.model_copy(update={"case": []})))
    chosen = [g for g in plan.groups if not wanted.case or g[0][1] in wanted.case]
    drawn = FrontPlan(chosen[:MOST_PANELS], len(chosen), plan.found)
    rows, worst = briefs_of(session, drawn.run_ids), worst_errors(session, drawn.run_ids)
    found = fronts(drawn, rows, worst, asked.max_error_grade)
    return Loaded(
        found,
        [group[0] for group in plan.groups],
        device_names(session),
        highest_result_id(session),
    )


def _draw(
    request: Request,
    context: ServiceContext,
    given: Given,
    asked: MapQuery,
    loaded: Loaded,
    moment: Moment | None,
) -> Response:
    found = loaded.fronts
    narrowed = dict(given)
    if found.items:
        narrowed |= {"case": list(dict.fromkeys(front.case for front in found.items))}
    return page(
        request,
        "pareto.html",
        moment=moment,
        newest=None if moment else loaded.newest,
        asked=asked,
        kept=kept_fields(given, ("case", "gpu", "pass", "max_error_grade")),
        fronts=found.items,
        fronts_total=found.items_total,
        complete=found.complete,
        read=found.read,
        cases=list(dict.fromkeys(case for _, case, _ in loaded.places)),
        devices=loaded.devices,
        grades=list(Grade),
        passes=list(Pass),
        most_rows=MOST_ROWS,
        sentence=front_sentence,
        inexact=inexact_sentence(found.items),
        inexact_on=inexact_on,
        bounds=text.interval,
        figure_data=fronts_figure(found.items) if found.items else None,
        exports=exports_of(
            request,
            ("/pareto", query_with(narrowed)),
            narrowed,
            fronts_markdown(found.items),
            (PARETO, given),
        ),
    )


PARETO_PAGE = Drawable(PARETO, _load, _draw)
"""The page, also as of a moment."""
