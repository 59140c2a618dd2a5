"""`/pareto`: memory against time, shape by shape, with the front marked."""

from collections.abc import Sequence

from fastapi import APIRouter, Depends, Request, Response

from lossbench.service.api.aggregate_records import Fronts
from lossbench.service.api.context import ServiceContext
from lossbench.service.api.dependencies import may_read
from lossbench.service.api.maps import FrontPlan, fronts, plan_fronts
from lossbench.service.api.series_routes import MapQuery
from lossbench.service.contract.words import Grade, Pass
from lossbench.service.plots import text
from lossbench.service.plots.fronts import (
    front_sentence,
    fronts_figure,
    fronts_markdown,
    inexact_on,
)
from lossbench.service.store.aggregates import briefs_of, newest_keys, worst_errors

from .address import Given, checked, given_of, kept_fields, query_with
from .exports import exports_of
from .map_queries import measured_devices, with_all_names
from .rendering import page

MOST_PANELS = 4
"""Fronts on one page; the chooser leads to the others."""
MOST_ROWS = 100
"""Rows of the table of one front."""

Place = tuple[str, str, str]
"""Device, case, pass."""


def pareto_pages(context: ServiceContext) -> APIRouter:
    """Routes of `/pareto`."""
    router = APIRouter(include_in_schema=False, dependencies=[Depends(may_read)])

    @router.get("/pareto")
    def show(request: Request) -> Response:
        given = given_of(request)
        asked = checked(MapQuery, given)
        wanted = with_all_names(asked.wanted(), context.catalogue)
        with context.database.reading() as session:
            # every case stays in the chooser, whichever one is shown
            plan = plan_fronts(newest_keys(session, wanted.model_copy(update={"case": []})))
            chosen = [g for g in plan.groups if not wanted.case or g[0][1] in wanted.case]
            drawn = FrontPlan(chosen[:MOST_PANELS], len(chosen), plan.found)
            rows, worst = briefs_of(session, drawn.run_ids), worst_errors(session, drawn.run_ids)
            found = fronts(drawn, rows, worst, asked.max_error_grade)
            devices = measured_devices(session)
        return _drawn(request, given, asked, found, ([g[0] for g in plan.groups], devices))

    return router


def _drawn(
    request: Request,
    given: Given,
    asked: MapQuery,
    found: Fronts,
    known: tuple[Sequence[Place], Sequence[str]],
) -> Response:
    places, devices = known
    narrowed = dict(given)
    if found.items:
        narrowed |= {"case": list(dict.fromkeys(front.case for front in found.items))}
    return page(
        request,
        "pareto.html",
        asked=asked,
        kept=kept_fields(given, ("case", "gpu", "pass", "max_error_grade")),
        fronts=found.items,
        fronts_total=found.items_total,
        complete=found.complete,
        read=found.read,
        cases=list(dict.fromkeys(case for _, case, _ in places)),
        devices=devices,
        grades=list(Grade),
        passes=list(Pass),
        most_rows=MOST_ROWS,
        sentence=front_sentence,
        inexact_on=inexact_on,
        bounds=text.interval,
        figure_data=fronts_figure(found.items) if found.items else None,
        exports=exports_of(
            request, ("/pareto", query_with(narrowed)), narrowed, fronts_markdown(found.items)
        ),
    )
