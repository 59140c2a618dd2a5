"""Comparisons over all results, and permalinks: the same tables as of a moment."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, cast
from urllib.parse import parse_qs, urlencode

from fastapi import APIRouter, Depends, Form, Request, Response
from fastapi.responses import RedirectResponse
from sqlalchemy.orm import Session

from lossbench.service.api.comparison import CURSOR, KEY_TYPES, Key, compare, load_entrant
from lossbench.service.api.context import ServiceContext
from lossbench.service.api.dependencies import Submitter, may_read
from lossbench.service.api.paging import decode_cursor
from lossbench.service.api.records import CandidateCell, CompareRow, Comparison
from lossbench.service.api.saved_views import COMPARE, SavedView, read_view, refuse_unknown
from lossbench.service.api.view_routes import view_status
from lossbench.service.contract.result import Result
from lossbench.service.plots import text
from lossbench.service.plots.diverging import PASS_SIGNS, diverging
from lossbench.service.plots.markdown import results_markdown
from lossbench.service.plots.panels import PASS_WORDS
from lossbench.service.store.models import EnvironmentRow
from lossbench.service.store.permalinks import (
    count_now,
    get_permalink,
    invalidated_among,
    save_permalink,
    see_as_of,
)
from lossbench.service.store.result_pages import Order, Place, sorted_runs
from lossbench.service.store.views import result_view

from .address import kept_fields
from .compare_queries import NOTHING_BESIDE, ErrorsBeside, errors_beside, measured_contenders
from .compare_several import several_figures
from .compare_words import (
    Figure,
    Pair,
    Tally,
    bars_of,
    changed,
    compare_markdown,
    sentence,
    tab_figures,
    tab_of,
    tally,
    trend,
)
from .exports import Exports, exports_of
from .frozen import Moment, moment_of, tagged_page, then
from .history_pages import HISTORY_PAGE
from .pareto_pages import PARETO_PAGE
from .queries import environments_in
from .rendering import page
from .shape_pages import SHAPES_PAGE

ROWS = 100
"""Rows of one page of a table; a link leads to the next ones."""
DRAWABLE = {each.path: each for each in (SHAPES_PAGE, PARETO_PAGE, HISTORY_PAGE)}
"""Pages other than tables of results that a permalink can be of."""
PAGING = ("cursor", "before")
SIDES = ("base", "cand")
TAB = "tab"
CHANGED = "changed"
"""Parameter that hides the rows in which nothing differs."""


@dataclass(frozen=True)
class Table:
    """What a page shows: a comparison or a list of results, and where the next rows are."""

    comparison: Comparison | None
    results: Sequence[Result]
    following: str | None
    """Query of the next rows."""
    beside: ErrorsBeside = NOTHING_BESIDE
    contenders: Sequence[str] = ()
    """Names to choose from."""
    environments: Sequence[EnvironmentRow] = ()
    """Those that the rows were measured in."""

    @property
    def result_ids(self) -> list[str]:
        """Ids of all results on this page."""
        if self.comparison is None:
            return [result.id for result in self.results]
        rows = self.comparison.items
        sides = [s for r in rows for s in (r.base, *(cell.side for cell in r.candidates))]
        return [side.result_id for side in sides if side is not None]


def view_pages(context: ServiceContext) -> APIRouter:
    """Routes of `/v/{hash}`, and of the button that makes one."""
    router = APIRouter(include_in_schema=False, dependencies=[Depends(may_read)])

    @router.get("/v/{view_hash}")
    def show_view(request: Request, view_hash: str) -> Response:
        with context.database.reading() as session:
            row = get_permalink(session, view_hash)
            moment = moment_of(view_status(session, row, context.catalogue))
            view = read_view(row.path, row.query, context.catalogue)
            see_as_of(session, row)
            drawable = DRAWABLE.get(view.path)
            if drawable is not None and view.asked is not None:
                asked = then(view.asked)
                found = drawable.load(session, context, asked)
                drawn = drawable.draw(request, context, view.query, asked, found, moment)
                return tagged_page(request, drawn)
            table = load_table(session, context, view, request, invalid_too=True)
            fallen = invalidated_among(session, table.result_ids)
        return _drawn(request, view, table, moment, fallen)

    @router.post("/views")
    def keep_view(
        principal: Submitter, path: Annotated[str, Form()], query: Annotated[str, Form()] = ""
    ) -> Response:
        view = read_view(path, parse_qs(query, max_num_fields=200), context.catalogue)
        with context.database.transaction() as session:
            refuse_unknown(session, view)
            found = count_now(session, view.selected)
            row = save_permalink(session, view.path, view.query, found)
            return RedirectResponse(f"/v/{row.hash}", 303)

    return router


def asks_for_all(request: Request) -> bool:
    """Whether the address is a comparison over all results: base and candidates, no job chosen."""
    names = request.query_params
    return bool(names.get("base") and names.get("cand"))


def compare_all(request: Request, context: ServiceContext) -> Response:
    """Base and candidates over all results that the filters of the address leave."""
    given: dict[str, list[str]] = {}
    for name, value in request.query_params.multi_items():
        if value and name not in (*PAGING, CHANGED, TAB):
            given.setdefault(name, []).append(value)
    view = read_view(COMPARE, given, context.catalogue)
    with context.database.reading() as session:
        table = load_table(session, context, view, request, invalid_too=False)
        table = replace(table, contenders=measured_contenders(session))
    return _drawn(request, view, table, None, {})


def load_table(
    session: Session, context: ServiceContext, view: SavedView, request: Request, invalid_too: bool
) -> Table:
    """One page of the view's rows, read through this session."""
    wanted = view.selected.wanted
    if invalid_too:
        wanted = wanted.model_copy(update={"include_invalid": True})
    cursor, before = (request.query_params.get(name) for name in PAGING)
    if view.path != COMPARE:
        place = Place(None, before) if before else None
        runs = sorted_runs(session, wanted, Order(), place, ROWS + 1)
        shown = [result_view(run) for run in runs[:ROWS]]
        more = urlencode({"before": shown[-1].id}) if len(runs) > ROWS else None
        return Table(None, shown, more)
    after: Key | None = None
    if cursor:
        after = cast(Key, tuple(decode_cursor(CURSOR, cursor, KEY_TYPES)))
    places = ("/query/base", *(f"/query/cand/{i}" for i in range(len(view.contenders) - 1)))
    base, *candidates = (
        load_entrant(session, context.catalogue, name, place, wanted)
        for name, place in zip(view.contenders, places, strict=True)
    )
    found = compare(session, base, candidates, after, ROWS)
    more = urlencode({"cursor": found.next_cursor}) if found.next_cursor else None
    errors = request.query_params.get(TAB) == "errors"
    return Table(
        found,
        (),
        more,
        errors_beside(session, found) if errors else NOTHING_BESIDE,
        environments=environments_in(session, found),
    )


def _drawn(
    request: Request,
    view: SavedView,
    table: Table,
    moment: Moment | None,
    fallen: Mapping[str, str],
) -> Response:
    """The page of a table. `fallen`: reasons of results shown that are out of use now."""
    query = urlencode(view.query, doseq=True)
    only_changed = bool(request.query_params.get(CHANGED))
    rows = _rows(table.comparison)
    differing = [row for row in rows if changed(row[0].base, row[2])]
    status = moment.status if moment else None
    own = "" if status is not None else f"{query}&"
    tab = tab_of(request.query_params.get(TAB, ""))
    kept = f"{CHANGED}=1&" * only_changed + f"{TAB}={tab}&" * bool(tab)
    pairs = [_pair(row) for row in (differing if only_changed else rows)]
    drawn = page(
        request,
        "view.html",
        view=view,
        moment=moment,
        contenders=table.contenders,
        kept=kept_fields(view.query, SIDES),
        fallen=fallen,
        following=f"?{own}{kept}{table.following}" if table.following else None,
        here=f"?{own}",
        exports=_exports(request, view, table),
        comparison=table.comparison,
        rows=differing if only_changed else rows,
        rows_total=len(rows),
        rows_changed=len(differing),
        only_changed=only_changed,
        tab=tab,
        pairs=pairs,
        bits=table.beside.bits,
        figures=_figures(tab, rows, table),
        results=table.results,
        sentences=_sentences(table.comparison, rows),
        environments=table.environments,
        paged=any(request.query_params.get(name) for name in PAGING),
        bounds=text.interval,
        trend=trend,
    )
    return tagged_page(request, drawn)


def _exports(request: Request, view: SavedView, table: Table) -> Exports:
    narrowed = {name: values for name, values in view.query.items() if name not in SIDES}
    markdown = results_markdown(table.results)
    if table.comparison is not None:
        markdown = compare_markdown(table.comparison)
        sides = (table.comparison.base, *table.comparison.candidates)
        # the files hold what the page compares: no other version or setting, nothing imported
        narrowed |= {"contender": list(dict.fromkeys(side.used for side in sides))}
        narrowed |= {"imported": ["false"]}
    query = urlencode(view.query, doseq=True)
    return exports_of(request, (view.path, query), narrowed, markdown, (view.path, view.query))


Row = tuple[CompareRow, str, CandidateCell]
"""A case, a candidate by name, and how it compares there."""


def _rows(comparison: Comparison | None) -> list[Row]:
    """Every case with every candidate, without those that neither side was measured on."""
    if comparison is None:
        return []
    return [
        (row, summary.used, cell)
        for row in comparison.items
        for summary, cell in zip(comparison.candidates, row.candidates, strict=True)
        if row.base is not None or cell.side is not None
    ]


def _pair(row: Row) -> Pair:
    place, used, cell = row
    below = f"{PASS_WORDS[place.pass_]}, {place.device_name}: {used}"
    label = f"{place.case} {PASS_SIGNS[place.pass_]}"
    return Pair(place.case, below, place.base, cell.side, label)


def _figures(tab: str, rows: Sequence[Row], table: Table) -> list[Figure]:
    """Figures of a tab: bars or arrows of one candidate, marks of several."""
    found = table.comparison
    if found is None:
        return []
    if len(found.candidates) > 1:
        return several_figures(tab, found)
    names = (found.base.used, found.candidates[0].used)
    bars = _figure(found, rows)
    return tab_figures(tab, [_pair(row) for row in rows], bars, names, table.beside.chunks)


def _figure(comparison: Comparison | None, rows: Sequence[Row]) -> dict[str, Any] | None:
    """Bars of the first candidate's rows with a ratio; none where there is only one."""
    if comparison is None or len(comparison.candidates) != 1:
        return None
    devices = {row.device_name for row, _, _ in rows}
    pairs = [
        (
            f"{row.case} {PASS_SIGNS[row.pass_]}" + f" {row.device_name}" * (len(devices) > 1),
            cell,
        )
        for row, _, cell in rows
    ]
    bars, without = bars_of(pairs)
    candidate = comparison.candidates[0].used
    return diverging(bars, comparison.base.used, candidate, without) if len(bars) > 1 else None


def _sentences(comparison: Comparison | None, rows: Sequence[Row]) -> list[tuple[str, Tally]]:
    """What each candidate did, in a sentence, and how many of the rows went which way."""
    if comparison is None:
        return []
    return [
        (
            sentence(each, comparison.base.used, each.used),
            tally(cell for _, used, cell in rows if used == each.used),
        )
        for each in comparison.candidates
    ]
