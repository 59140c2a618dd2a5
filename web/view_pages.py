"""Comparisons over all results, and permalinks: the same tables as of a moment."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, cast
from urllib.parse import parse_qs, urlencode

from fastapi import APIRouter, Depends, Form, Request, Response
from fastapi.responses import RedirectResponse
from sqlalchemy.orm import Session

from lossbench.service.api.answers import tagged_bytes
from lossbench.service.api.comparison import CURSOR, KEY_TYPES, Key, compare, load_entrant
from lossbench.service.api.context import ServiceContext
from lossbench.service.api.dependencies import Submitter, may_read
from lossbench.service.api.paging import decode_cursor
from lossbench.service.api.records import CandidateCell, CompareRow, Comparison
from lossbench.service.api.saved_views import COMPARE, SavedView, read_view, refuse_unknown
from lossbench.service.api.view_records import ViewStatus
from lossbench.service.api.view_routes import view_status
from lossbench.service.contract.result import Result
from lossbench.service.plots import text
from lossbench.service.plots.diverging import PASS_SIGNS, diverging
from lossbench.service.plots.panels import PASS_WORDS
from lossbench.service.store.permalinks import (
    count_now,
    get_permalink,
    invalidated_among,
    save_permalink,
    see_as_of,
)
from lossbench.service.store.result_pages import Order, Place, sorted_runs
from lossbench.service.store.views import result_view

from .compare_words import (
    Pair,
    bars_of,
    changed,
    compare_markdown,
    sentence,
    tab_of,
    trend,
)
from .exports import Exports, exports_of
from .rendering import page

ROWS = 200
"""Rows of one page of a table; a link leads to the next ones."""
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
            status = view_status(session, row, context.catalogue)
            view = read_view(row.path, row.query, context.catalogue)
            see_as_of(session, row)
            table = load_table(session, context, view, request, invalid_too=True)
            fallen = invalidated_among(session, table.result_ids)
        return _drawn(request, view, table, (status, fallen))

    @router.post("/views")
    def keep_view(
        principal: Submitter, path: Annotated[str, Form()], query: Annotated[str, Form()]
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
    return _drawn(request, view, table, None)


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
    return Table(found, (), more)


def _drawn(
    request: Request,
    view: SavedView,
    table: Table,
    frozen: tuple[ViewStatus, Mapping[str, str]] | None,
) -> Response:
    """The page, with a strong ETag: what a permalink shows changes only when its results do."""
    query = urlencode(view.query, doseq=True)
    only_changed = bool(request.query_params.get(CHANGED))
    rows = _rows(table.comparison)
    differing = [row for row in rows if changed(row[0].base, row[2])]
    status, fallen = frozen if frozen is not None else (None, {})
    own = "" if status is not None else f"{query}&"
    tab = tab_of(request.query_params.get(TAB, ""))
    kept = f"{CHANGED}=1&" * only_changed + f"{TAB}={tab}&" * bool(tab)
    drawn = page(
        request,
        "view.html",
        view=view,
        frozen=status,
        fallen=fallen,
        live=f"{view.path}?{query}" if view.path == COMPARE else f"/api/v1{view.path}?{query}",
        api=f"/api/v1/views/{status.hash}" if status else f"/api/v1{view.path}?{query}",
        kept_query=query,
        following=f"?{own}{kept}{table.following}" if table.following else None,
        here=f"?{own}",
        exports=_exports(request, view, table),
        comparison=table.comparison,
        rows=differing if only_changed else rows,
        rows_total=len(rows),
        rows_changed=len(differing),
        only_changed=only_changed,
        tab=tab,
        pairs=[_pair(row) for row in (differing if only_changed else rows)],
        figure_data=_figure(table.comparison, rows),
        results=table.results,
        sentences=_sentences(table.comparison),
        bounds=text.interval,
        trend=trend,
    )
    headers: dict[str, str] = {"Content-Type": "text/html; charset=utf-8"}
    return tagged_bytes(request, bytes(drawn.body), headers=headers)


def _exports(request: Request, view: SavedView, table: Table) -> Exports | None:
    """Exports of a comparison; a list of results has its own."""
    if table.comparison is None:
        return None
    narrowed = {name: values for name, values in view.query.items() if name not in SIDES}
    kept = narrowed | {
        "kernel": sorted({text.partition("@")[0].partition("[")[0] for text in view.contenders})
    }
    return exports_of(
        request,
        (view.path, urlencode(view.query, doseq=True)),
        kept,
        compare_markdown(table.comparison),
    )


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
    return Pair(place.case, below, place.base, cell.side)


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


def _sentences(comparison: Comparison | None) -> list[str]:
    if comparison is None:
        return []
    return [sentence(each, comparison.base.used, each.used) for each in comparison.candidates]
