"""Two contenders side by side, of one job or of all results, with the numbers of GET /compare."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Query, Request, Response
from sqlalchemy.orm import Session

from lossbench.service.api.comparison import compare, load_entrant
from lossbench.service.api.context import ServiceContext
from lossbench.service.api.dependencies import may_read
from lossbench.service.api.records import CandidateCell, Side
from lossbench.service.contract.errors import Fault, InvalidRequestError, UnknownNameError
from lossbench.service.contract.result import CellView
from lossbench.service.contract.words import JobKind, Pass
from lossbench.service.plots import text
from lossbench.service.plots.diverging import PASS_SIGNS, diverging
from lossbench.service.plots.panels import PASS_WORDS
from lossbench.service.store.results import ResultFilter

from .compare_queries import (
    NOTHING_BESIDE,
    ErrorsBeside,
    errors_beside,
    measured_contenders,
    neighbours,
    open_row,
)
from .compare_words import (
    Figure,
    Pair,
    bars_of,
    compare_markdown,
    sentence,
    tab_figures,
    tab_of,
    tally,
    trend,
)
from .compare_words import changed as differs
from .exports import exports_of
from .history_queries import told_of
from .queries import FirstCase, JobCells, environments_in, job_cells, overview
from .rendering import page
from .view_pages import asks_for_all, compare_all

PAGE_ROWS, MOST_ROWS = 100, 2000
"""Cases of a job on one page, and rows if they come from several devices; means are over all."""


@dataclass(frozen=True)
class Row:
    """One case and pass: both sides with the words of their outcomes, and how they relate."""

    case: str
    pass_: Pass
    base: Side | None
    base_words: str
    cand: Side | None
    cand_words: str
    cell: CandidateCell | None


def compare_pages(context: ServiceContext) -> APIRouter:
    """Routes of `/compare`."""
    router = APIRouter(include_in_schema=False, dependencies=[Depends(may_read)])

    @router.get("/compare")
    def show(
        request: Request,
        job: str = "",
        base: str = "",
        cand: str = "",
        changed: str = "",
        tab: str = "",
        first: FirstCase = 0,
    ) -> Response:
        if not job and asks_for_all(request):
            return compare_all(request, context)
        with context.database.reading() as session:
            if not job:
                return _chooser(request, session)
            shown = job_cells(session, job, first, PAGE_ROWS)
            base, cand = _sides(shown, base, cand)
            wanted = ResultFilter(job=[job])
            under = load_entrant(session, context.catalogue, base, "/base", wanted)
            over = load_entrant(session, context.catalogue, cand, "/cand", wanted)
            places = {(cell.case, cell.pass_.value) for cell in shown.cells}
            found = compare(session, under, [over], None, MOST_ROWS, places)
            environments = environments_in(session, found)
            beside = errors_beside(session, found) if tab == "errors" else NOTHING_BESIDE
        cells = {(item.case, item.pass_): (item.base, item.candidates[0]) for item in found.items}
        rows = _rows(shown, base, cand, cells)
        return page(
            request,
            "compare.html",
            **_table(rows, bool(changed), tab),
            bits=beside.bits,
            figures=_figures(tab, rows, (base, cand), beside),
            job=shown.job,
            names=shown.names,
            window=shown.window,
            base=base,
            cand=cand,
            exports=exports_of(
                request,
                ("/compare", urlencode({"base": base, "cand": cand, "job": job})),
                {"job": [job]},
                compare_markdown(found),
                ("/compare", {"base": [base], "cand": [cand], "job": [job]}),
            ),
            tally=tally(row.cell for row in rows),
            sentence=sentence(found.candidates[0], base, cand),
            notes=list(filter(None, (found.base.note, found.candidates[0].note))),
            environments=environments,
            bounds=text.interval,
            trend=trend,
        )

    @router.get("/compare/row")
    def show_row(
        request: Request,
        base: Annotated[str, Query(max_length=64)] = "",
        cand: Annotated[str, Query(max_length=64)] = "",
        part: bool = False,
    ) -> Response:
        ids = [run_id for run_id in dict.fromkeys((base, cand)) if run_id]
        if not ids:
            fault = Fault("/query/base", "missing", "name a result as base, as cand, or both")
            raise InvalidRequestError([fault])
        with context.database.reading() as session:
            found = open_row(session, context.catalogue, ids)
        told = told_of(found.lineages, context.catalogue)
        template = "_compare_row.html" if part else "compare_row.html"
        return page(request, template, found=found, told=told, bounds=text.interval)

    return router


def _chooser(request: Request, session: Session) -> Response:
    contenders = measured_contenders(session)
    return page(
        request,
        "compare_choose.html",
        jobs=[view for view in overview(session).jobs if view.cells_done],
        contenders=contenders,
        neighbours=neighbours(contenders),
    )


def _table(rows: Sequence[Row], changed: bool, tab: str) -> dict[str, Any]:
    """What the template needs of the rows. Raises InvalidRequestError for an unknown tab."""
    differing = [row for row in rows if differs(row.base, row.cell)]
    shown = differing if changed else rows
    return {
        "rows": shown,
        "rows_total": len(rows),
        "rows_changed": len(differing),
        "changed": changed,
        "tab": tab_of(tab),
        "pairs": _pairs(shown),
    }


def _pairs(rows: Sequence[Row]) -> list[Pair]:
    return [
        Pair(r.case, PASS_WORDS[r.pass_], r.base, r.cand, f"{r.case} {PASS_SIGNS[r.pass_]}")
        for r in rows
    ]


def _figure(rows: Sequence[Row], base: str, cand: str) -> dict[str, Any] | None:
    """Bars of all rows with a ratio; none where there is only one."""
    pairs = [(f"{row.case} {PASS_SIGNS[row.pass_]}", row.cell) for row in rows]
    bars, without = bars_of(pairs)
    return diverging(bars, base, cand, without) if len(bars) > 1 else None


def _figures(
    tab: str, rows: Sequence[Row], names: tuple[str, str], beside: ErrorsBeside
) -> list[Figure]:
    return tab_figures(tab, _pairs(rows), _figure(rows, *names), names, beside.chunks)


def _sides(shown: JobCells, base: str, cand: str) -> tuple[str, str]:
    names = shown.names
    usual = shown.request.baseline.text
    # a compare job names its base first
    usual = names[0] if shown.job.kind is JobKind.COMPARE else usual
    base = base or (usual if usual in names else names[0])
    cand = cand or next((name for name in names if name != base), base)
    return _known(shown, base, "/base"), _known(shown, cand, "/cand")


def _known(shown: JobCells, wanted: str, pointer: str) -> str:
    """The job's contender of that name; the version may be left out where only one fits."""
    names = shown.names
    fitting = [name for name in names if _without_version(name) == wanted]
    if wanted in names:
        return wanted
    if len(fitting) == 1:
        return fitting[0]
    message = f"job {shown.job.id} has no contender {wanted!r}; known: {', '.join(names)}"
    raise UnknownNameError([Fault(pointer, "unknown_contender", message)])


def _without_version(name: str) -> str:
    head, bracket, params = name.partition("[")
    return f"{head.partition('@')[0]}{bracket}{params}"


def _rows(
    shown: JobCells,
    base: str,
    cand: str,
    found: dict[tuple[str, Pass], tuple[Side | None, CandidateCell]],
) -> list[Row]:
    cells = {(cell.contender, cell.case, cell.pass_): cell for cell in shown.cells}
    rows = []
    for place in dict.fromkeys((cell.case, cell.pass_) for cell in shown.cells):
        under, over = found.get(place, (None, None))
        if not {(base, *place), (cand, *place)} & cells.keys():
            continue
        rows.append(
            Row(
                case=place[0],
                pass_=place[1],
                base=under,
                base_words=_status(cells.get((base, *place))),
                cand=over.side if over else None,
                cand_words=_status(cells.get((cand, *place))),
                cell=over,
            )
        )
    return rows


def _status(cell: CellView | None) -> str:
    if cell is None:
        return "not_measured"
    return str(cell.outcome or cell.state)
