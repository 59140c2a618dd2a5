"""The gate of `lossbench compare`: what `--fail-on` names, and the budgets of a suite file."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..contract.budget import Budget, BudgetMetric
from ..contract.errors import LossbenchError
from ..contract.result import Result
from ..contract.words import FAILURES, Grade
from ..plots import text
from ..plots.panels import PASS_WORDS
from ..plots.verdicts import Compared, fine_interval, fine_ratio
from .output import console, print_json
from .verdicts import plain_row, print_rows, regressions

_GRADES = tuple(Grade)


@dataclass(frozen=True)
class Gate:
    """What makes a comparison fail: words of `--fail-on`, budgets, and always a bad outcome.

    A candidate that computes wrong values, crashes or never ends passes no gate.
    """

    words: frozenset[str] | None
    budgets: Sequence[Budget]

    def findings(self, row: Compared) -> list[str]:
        """Everything that fails the row, as words and sentences."""
        named = regressions(row, self.words)
        outcome = row.candidate[0].outcome
        broken = [outcome.value] if outcome in FAILURES and outcome.value not in named else []
        return [*named, *broken, *breaches(row, self.budgets)]

    def passes(self, rows: Sequence[Compared]) -> bool:
        """Whether no row has a finding."""
        return not any(self.findings(row) for row in rows)

    def show(self, rows: Sequence[Compared], style: str) -> None:
        """Print the rows as `table`, `markdown` or `json`, and what fails them."""
        if style == "json":
            print_json([{**plain_row(row), "failed_on": self.findings(row)} for row in rows])
            return
        print_rows(rows, style)
        found = [(row, self.findings(row)) for row in rows]
        lines = [
            f"{row.case}, {PASS_WORDS[row.pass_]}: {'; '.join(why)}" for row, why in found if why
        ]
        if not lines:
            return
        if style == "markdown":
            sys.stdout.write("\nFailed on:\n\n" + "".join(f"- {line}\n" for line in lines))
            return
        console.print("failed on:", style="bold")
        for line in lines:
            console.print(f"  {line}", markup=False, highlight=False)


def breaches(row: Compared, budgets: Sequence[Budget]) -> list[str]:
    """What a comparison breaks of the budgets, one sentence each.

    A time counts by the near end of its interval, so that noise alone breaks nothing. Without a
    result of the candidate no budget of its case is kept, unless there was nothing to compare with.
    """
    chosen = [budget for budget in budgets if budget.applies_to(row.case, row.pass_)]
    candidate = row.candidate[1]
    if candidate is None or candidate.latency_ms is None:
        if row.lacks_baseline:
            return []
        outcome = row.candidate[0].outcome or row.candidate[0].state
        return [f"{budget.metric}: no measurement, the candidate is {outcome}" for budget in chosen]
    return [why for budget in chosen for why in _broken(row, candidate, budget)]


def _broken(row: Compared, candidate: Result, budget: Budget) -> Iterator[str]:
    if budget.metric is BudgetMetric.LATENCY:
        yield from _slow(row, candidate, budget)
    elif budget.metric is BudgetMetric.WORKSPACE:
        yield from _large(row, candidate, budget)
    elif budget.max_error_grade is not None:
        grade, worst = candidate.grade, budget.max_error_grade
        if grade is None or _GRADES.index(grade) > _GRADES.index(worst):
            yield f"error: grade {grade or 'unknown'}, the budget is {worst}"


def _slow(row: Compared, candidate: Result, budget: Budget) -> Iterator[str]:
    made, most = row.comparison, budget.max_ratio
    proved = made.ratio_low if made is not None else None
    if made is not None and most is not None and proved is not None and proved > most:
        found = f"{fine_ratio(made.ratio)} ({fine_interval(made.ratio_low, made.ratio_high)})"
        yield f"latency: {found} the base, the budget is {fine_ratio(most)}"
    if budget.max_ms is not None and candidate.latency_ms is not None:
        least = candidate.latency_low_ms or candidate.latency_ms
        if least > budget.max_ms:
            found = f"{text.digits(candidate.latency_ms)} ms"
            yield f"latency: {found}, the budget is {text.digits(budget.max_ms)} ms"


def _large(row: Compared, candidate: Result, budget: Budget) -> Iterator[str]:
    base, size = row.base[1], candidate.workspace_bytes
    if size is None:
        yield "workspace: not measured"
        return
    if budget.max_bytes is not None and size > budget.max_bytes:
        over, limit = size - budget.max_bytes, text.in_bytes(budget.max_bytes)
        yield f"workspace: {text.in_bytes(size)}, {over:,} bytes over the budget of {limit}"
    under = base.workspace_bytes if base is not None else None
    if budget.max_ratio is not None and under and size > round(budget.max_ratio * under):
        found = fine_ratio(size / under)
        yield f"workspace: {found} the base, the budget is {fine_ratio(budget.max_ratio)}"


def require_a_baseline(rows: Sequence[Compared]) -> None:
    """Raises LossbenchError where no row has a result of the base: there is nothing to judge."""
    if rows and all(row.lacks_baseline for row in rows):
        cell = rows[0].base[0]
        why = f"{cell.outcome}: {cell.reason}" if cell.reason else str(cell.outcome or cell.state)
        raise LossbenchError(f"no baseline: {cell.contender} has no result on any case ({why})")
