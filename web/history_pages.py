"""`/history`: every contender lineage over its versions; imported results apart."""

from collections.abc import Sequence

from fastapi import APIRouter, Depends, Request, Response

from lossbench.service.api.context import ServiceContext
from lossbench.service.api.dependencies import may_read
from lossbench.service.api.result_routes import FilterQuery
from lossbench.service.contract.words import Pass
from lossbench.service.plots import text
from lossbench.service.plots.lineages import (
    Imported,
    Lineage,
    imported_figure,
    lineage_figure,
    lineage_markdown,
)
from lossbench.service.plots.panels import PASS_WORDS

from .address import Given, checked, given_of, kept_fields, query_with
from .exports import exports_of
from .history_queries import Places, imported_of, lineages_of, places_of
from .map_queries import measured_devices, with_all_names
from .rendering import page

MOST_CASES = 200
"""Cases in the chooser, those with most versions first."""


def history_pages(context: ServiceContext) -> APIRouter:
    """Routes of `/history`."""
    router = APIRouter(include_in_schema=False, dependencies=[Depends(may_read)])

    @router.get("/history")
    def show(request: Request) -> Response:
        given = given_of(request)
        asked = checked(FilterQuery, given)
        wanted = with_all_names(asked.wanted(), context.catalogue)
        with context.database.reading() as session:
            places = places_of(session, context.catalogue, wanted)
            lineages = lineages_of(session, context.catalogue, places)
            # every case stays in the chooser, whichever one is shown
            free = wanted.model_copy(update={"case": [], "kernel": []})
            others = places if free == wanted else places_of(session, context.catalogue, free)
            imported = imported_of(session, wanted)
            devices = measured_devices(session)
        return _drawn(request, given, asked, (places, lineages, imported), (others, devices))

    return router


def _grown(lineages: Sequence[Lineage], asked: FilterQuery) -> list[Lineage]:
    """Lineages with something to follow: two versions, or asked for by name."""
    return [each for each in lineages if len(each.versions) > 1 or asked.kernel]


def _drawn(
    request: Request,
    given: Given,
    asked: FilterQuery,
    shown: tuple[Places, Sequence[Lineage], Sequence[Imported]],
    known: tuple[Places, Sequence[str]],
) -> Response:
    (places, lineages, imported), (others, devices) = shown, known
    grown = _grown(lineages, asked)
    place = places.order[0] if places.order else None
    narrowed = dict(given)
    where = "nothing"
    if place:
        device, case, pass_ = place
        where = f"{case}, {PASS_WORDS[Pass(pass_)]}, {device}"
        narrowed |= {"gpu": [device], "case": [case], "pass": [pass_]}
    return page(
        request,
        "history.html",
        asked=asked,
        kept=kept_fields(given, ("kernel", "case", "gpu", "pass")),
        place=place,
        lineages=lineages,
        lines_total=len(places.lines[place]) if place else 0,
        complete=places.complete,
        where=where,
        cases=list(dict.fromkeys(case for _, case, _ in others.order))[:MOST_CASES],
        kernels=others.kernels,
        devices=devices,
        passes=list(Pass),
        bounds=text.interval,
        changing=any(len(each.versions) > 1 for each in lineages),
        single=[each for each in lineages if each not in grown],
        figure_data=lineage_figure(grown, where) if grown else None,
        imported=imported,
        imported_data=imported_figure(imported) if imported else None,
        exports=exports_of(
            request,
            ("/series", query_with(narrowed)),
            narrowed,
            lineage_markdown(lineages, where),
        ),
    )
