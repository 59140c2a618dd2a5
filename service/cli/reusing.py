"""Verdicts that a service has stored already, in place of measuring again."""

from collections.abc import Sequence

from ..client import LossbenchClient
from ..contract.comparison import ComparisonView
from ..contract.job import JobRequest
from ..contract.machine import accelerator_name
from ..contract.result import CellView, Result
from ..contract.run import PROTOCOL_VERSION
from ..contract.words import CellState, Pass, Verdict
from ..plots.verdicts import Compared, Pair

_AT_ONCE = 50
"""Cases asked about at once: the most values of a filter."""


def stored_rows(client: LossbenchClient, request: JobRequest) -> tuple[list[Compared], JobRequest]:
    """Rows that stored verdicts answer already, and the job of the shapes that are left.

    A verdict counts when it is of the same two contenders, of today's protocol and of the job's
    accelerator, and when both of its results are still valid. A shape is measured whole unless all
    of its cases are known. The job that is left has no shapes where everything is known.
    """
    rows: list[Compared] = []
    left = []
    for shape in request.shapes:
        found = _known(client, request.model_copy(update={"shapes": [shape]}))
        if found is None:
            left.append(shape)
        else:
            rows += found
    return rows, request.model_copy(update={"shapes": left})


def _known(client: LossbenchClient, request: JobRequest) -> list[Compared] | None:
    """Stored rows for every case of a job, or None when one is missing."""
    plan = client.submit(request, dry_run=True)
    places: dict[tuple[str, Pass], list[str]] = {}
    for cell in plan.cells:
        places.setdefault((cell.case, cell.pass_), []).append(cell.contender)
    if any(len(sides) != 2 for sides in places.values()):
        return None
    base, candidate = next(iter(places.values()))
    views = _verdicts(client, (base, candidate), [case for case, _ in places], request.accelerator)
    rows = []
    for place in places:
        row = _row(client, views.get(place))
        if row is None:
            return None
        rows.append(row)
    return rows


def _verdicts(
    client: LossbenchClient, sides: tuple[str, str], cases: Sequence[str], accelerator: str
) -> dict[tuple[str, Pass], ComparisonView]:
    found: dict[tuple[str, Pass], ComparisonView] = {}
    distinct = list(dict.fromkeys(cases))
    for start in range(0, len(distinct), _AT_ONCE):
        some = distinct[start : start + _AT_ONCE]
        for view in client.comparisons(base=sides[0], candidate=sides[1], case=some):
            if _counts(view, accelerator):
                found.setdefault((view.case, view.pass_), view)
    return found


def _counts(view: ComparisonView, accelerator: str) -> bool:
    here = accelerator in ("any", accelerator_name(view.device_name))
    decided = view.verdict is not Verdict.INCONCLUSIVE
    return here and decided and view.protocol_version == PROTOCOL_VERSION


def _row(client: LossbenchClient, view: ComparisonView | None) -> Compared | None:
    """The row of a stored verdict; None without one, or where a result of it does not count."""
    if view is None or view.base_result_id is None or view.candidate_result_id is None:
        return None
    sides = [client.result(run_id) for run_id in (view.base_result_id, view.candidate_result_id)]
    if any(side.invalidated_at is not None for side in sides):
        return None
    base, candidate = (_pair(side) for side in sides)
    return Compared(view.case, view.pass_, base, candidate, view)


def _pair(result: Result) -> Pair:
    cell = CellView.model_validate(
        {
            "position": 0,
            "contender": result.contender,
            "case": result.case,
            "pass": result.pass_,
            "state": CellState.DONE,
            "outcome": result.outcome,
            "reason": result.reason,
            "reused": True,
            "attempt": 1,
            "visits_done": 0,
            "visits_total": 0,
            "result_id": result.id,
            "started_at": result.started_at,
            "ended_at": result.ended_at,
        }
    )
    return cell, result
