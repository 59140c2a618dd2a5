"""Two contenders of one job side by side, with the numbers that GET /compare gives."""

from dataclasses import dataclass

from fastapi import APIRouter, Depends, Request, Response

from lossbench.service.api.comparison import compare, load_entrant
from lossbench.service.api.context import ServiceContext
from lossbench.service.api.dependencies import may_read
from lossbench.service.api.records import CandidateCell, CandidateSummary, Side
from lossbench.service.contract.errors import Fault, UnknownNameError
from lossbench.service.contract.result import CellView
from lossbench.service.contract.words import JobKind, Pass
from lossbench.service.plots import text
from lossbench.service.store.results import ResultFilter

from .queries import JobCells, environments_of, job_cells, overview
from .rendering import page

MOST_ROWS = 1000


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
    def show(request: Request, job: str = "", base: str = "", cand: str = "") -> Response:
        catalogue = context.catalogue
        with context.database.reading() as session:
            if not job:
                jobs = [view for view in overview(session).jobs if view.cells_done]
                return page(request, "compare_choose.html", jobs=jobs)
            shown = job_cells(session, job)
            base, cand = _sides(shown, base, cand)
            wanted = ResultFilter(job=[job])
            under = load_entrant(session, catalogue, base, "/base", wanted)
            over = load_entrant(session, catalogue, cand, "/cand", wanted)
            found = compare(session, under, [over], None, MOST_ROWS)
            sides = [s for i in found.items for s in (i.base, i.candidates[0].side) if s]
            environments = environments_of(session, [side.environment_id for side in sides])
        cells = {(item.case, item.pass_): (item.base, item.candidates[0]) for item in found.items}
        return page(
            request,
            "compare.html",
            job=shown.job,
            names=_names(shown),
            base=base,
            cand=cand,
            rows=_rows(shown, base, cand, cells),
            sentence=sentence(found.candidates[0], base, cand),
            notes=[note for note in (found.base.note, found.candidates[0].note) if note],
            environments=environments,
            bounds=text.interval,
            trend=trend,
        )

    return router


def _names(shown: JobCells) -> list[str]:
    return list(dict.fromkeys(cell.contender for cell in shown.cells))


def _sides(shown: JobCells, base: str, cand: str) -> tuple[str, str]:
    names = _names(shown)
    usual = shown.request.baseline.text
    # a compare job names its base first
    usual = names[0] if shown.job.kind is JobKind.COMPARE else usual
    base = base or (usual if usual in names else names[0])
    cand = cand or next((name for name in names if name != base), base)
    return _known(shown, base, "/base"), _known(shown, cand, "/cand")


def _known(shown: JobCells, wanted: str, pointer: str) -> str:
    """The job's contender of that name; the version may be left out where only one fits."""
    names = _names(shown)
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


def trend(cell: CandidateCell) -> str:
    """`faster` or `slower` where the interval says so, else empty. Not a verdict."""
    if cell.ratio_low is None or cell.ratio_high is None:
        return ""
    return "faster" if cell.ratio_high < 1 else "slower" if cell.ratio_low > 1 else ""


def sentence(summary: CandidateSummary, base: str, cand: str) -> str:
    """What the comparison says, in one sentence. It is not a verdict."""
    mean = summary.geometric_mean_ratio
    if mean is None:
        return f"No case has a time of both {cand} and {base}: there is nothing to compare."
    bounds = text.interval(summary.geometric_mean_low, summary.geometric_mean_high)
    interval = f", 95 % {bounds}" if summary.geometric_mean_low is not None else ""
    inexact = (
        f" In {text.plural(summary.inexact_cases, 'case')} its error is coarse or poor."
        if summary.inexact_cases
        else ""
    )
    cases = text.plural(summary.common_cases, "common case")
    return (
        f"{cand} takes {text.ratio(mean)} the time of {base} "
        f"(geometric mean of {cases}{interval}).{inexact}"
    )
