"""`/history`: every contender lineage over its versions; imported results apart."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fastapi import APIRouter, Depends, Request, Response
from sqlalchemy.orm import Session

from lossbench.service.api.alert_records import alert_view
from lossbench.service.api.context import ServiceContext
from lossbench.service.api.dependencies import may_read
from lossbench.service.api.maps import with_all_names
from lossbench.service.api.saved_views import HISTORY, ResultsView
from lossbench.service.contract.alert import AlertKind, AlertView
from lossbench.service.contract.words import Pass
from lossbench.service.plots import text
from lossbench.service.plots.imported_times import Imported, imported_figure, imported_sentences
from lossbench.service.plots.lineages import (
    Change,
    Lineage,
    lineage_figure,
    lineage_markdown,
)
from lossbench.service.plots.panels import PASS_WORDS
from lossbench.service.store.aggregates import device_names
from lossbench.service.store.alerts import AlertFilter, alerts_page
from lossbench.service.store.permalinks import highest_result_id

from .address import Given, checked, given_of, kept_fields, query_with
from .exports import exports_of
from .frozen import Drawable, Moment
from .history_queries import Places, changes_at, imported_of, lineages_of, places_of, told_of
from .rendering import page

MOST_ALERTS = 8
MOST_TO_CHOOSE = 1000
"""Newest results whose cases and kernels are in the choosers."""
MOST_CASES = 200
"""Cases in the chooser, those with most versions first."""


@dataclass(frozen=True)
class Loaded:
    """What the page shows, and what else there is to choose from."""

    places: Places
    lineages: Sequence[Lineage]
    imported: Sequence[Imported]
    others: Places
    devices: Sequence[str]
    newest: str | None
    """Id of the newest of all results."""
    alerts: Sequence[AlertView]
    """Changes of the kernels shown, the newest first."""
    changes: Sequence[Change]
    """Those on the case shown, each at its version."""


def history_pages(context: ServiceContext) -> APIRouter:
    """Routes of `/history`."""
    router = APIRouter(include_in_schema=False, dependencies=[Depends(may_read)])

    @router.get("/history")
    def show(request: Request) -> Response:
        given = given_of(request)
        asked = checked(ResultsView, given)
        with context.database.reading() as session:
            found = _load(session, context, asked)
        return _draw(request, context, given, asked, found, None)

    return router


def _load(session: Session, context: ServiceContext, asked: ResultsView) -> Loaded:
    wanted = with_all_names(asked.wanted(), context.catalogue)
    places = places_of(session, context.catalogue, wanted)
    lineages = lineages_of(session, context.catalogue, places)
    # every case stays in the chooser, whichever one is shown
    free = wanted.model_copy(update={"case": [], "kernel": []})
    same = free == wanted
    others = places if same else places_of(session, context.catalogue, free, MOST_TO_CHOOSE)
    imported = imported_of(session, wanted)
    known = (others, device_names(session), highest_result_id(session))
    changes = changes_at(session, places.order[0], lineages) if places.order else []
    alerts = alerts_about(session, lineages)
    return Loaded(places, lineages, imported, *known, alerts, changes)


def alerts_about(session: Session, lineages: Sequence[Lineage]) -> list[AlertView]:
    """The newest changes of these kernels, whatever became of them."""
    kernels = sorted({lineage.kernel for lineage in lineages})
    if not kernels:
        return []
    wanted = AlertFilter(kind=[AlertKind.CHANGE.value], kernel=kernels)
    return [alert_view(row) for row in alerts_page(session, wanted, None, MOST_ALERTS)]


def _grown(lineages: Sequence[Lineage], asked: ResultsView) -> list[Lineage]:
    """Lineages with something to follow: two versions, or asked for by name."""
    return [each for each in lineages if len(each.versions) > 1 or asked.kernel]


def _draw(
    request: Request,
    context: ServiceContext,
    given: Given,
    asked: ResultsView,
    found: Loaded,
    moment: Moment | None,
) -> Response:
    places, lineages = found.places, found.lineages
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
        moment=moment,
        newest=None if moment else found.newest,
        asked=asked,
        kept=kept_fields(given, ("kernel", "case", "gpu", "pass")),
        place=place,
        lineages=lineages,
        told=told_of(lineages, context.catalogue),
        alerts=found.alerts,
        lines_total=len(places.lines[place]) if place else 0,
        complete=places.complete,
        where=where,
        cases=list(dict.fromkeys(case for _, case, _ in found.others.order))[:MOST_CASES],
        kernels=found.others.kernels,
        devices=found.devices,
        passes=list(Pass),
        bounds=text.interval,
        changing=any(len(each.versions) > 1 for each in lineages),
        single=[each for each in lineages if each not in grown],
        figure_data=lineage_figure(grown, where, found.changes) if grown else None,
        imported=found.imported,
        published=imported_sentences(found.imported),
        imported_data=imported_figure(found.imported) if found.imported else None,
        exports=exports_of(
            request,
            ("/series", query_with(narrowed)),
            narrowed,
            lineage_markdown(lineages, where),
            (HISTORY, given),
        ),
    )


def _load_then(session: Session, context: ServiceContext, asked: ResultsView) -> Loaded:
    """As of a moment: what was known of a change then is not kept."""
    return replace(_load(session, context, asked), alerts=(), changes=())


HISTORY_PAGE = Drawable(HISTORY, _load_then, _draw)
"""The page, also as of a moment."""
