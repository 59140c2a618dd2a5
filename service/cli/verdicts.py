"""What `lossbench compare` prints, and which regressions a comparison shows."""

import sys
from collections.abc import Iterator, Sequence
from typing import Any

from ..contract.comparison import ComparisonView
from ..contract.result import Result
from ..contract.words import FAILURES, Grade, Verdict
from ..plots.verdicts import Compared, Pair, VerdictRow, compared, verdict_markdown, verdict_rows
from .output import console, print_json, print_table

COLUMNS = ("case", "verdict", "ratio", "95 %", "detectable", "processes")
MORE_COLUMNS = ("workspace", "error")
WIDE = 150
"""Columns of a terminal from which memory and error fit beside the verdict."""
MEMORY_SLACK_BYTES = 2**20
MEMORY_SLACK_SHARE = 0.005
"""More workspace than the base's by the larger of these is a regression."""
_GRADES = tuple(Grade)


def regressions(row: Compared, words: frozenset[str] | None) -> list[str]:
    """Which of `words` hold of a comparison; without words, outcomes that fail any command."""
    if words is None:
        sides = (row.base[0].outcome, row.candidate[0].outcome)
        return [outcome.value for outcome in sides if outcome in FAILURES]
    return [word for word in _holding(row) if word in words]


def _holding(row: Compared) -> Iterator[str]:
    if row.lacks_baseline:
        yield "no_baseline"
    elif row.comparison is not None:
        yield row.comparison.verdict.value
    else:
        yield Verdict.INCONCLUSIVE.value
    outcome = row.candidate[0].outcome
    if outcome is not None:
        yield outcome.value
    base, candidate = row.base[1], row.candidate[1]
    if base is not None and candidate is not None:
        if _needs_more_memory(base, candidate):
            yield "memory"
        if _is_less_exact(base, candidate):
            yield "error"


def _needs_more_memory(base: Result, candidate: Result) -> bool:
    under, over = base.workspace_bytes, candidate.workspace_bytes
    if under is None or over is None:
        return False
    return over - under > max(MEMORY_SLACK_BYTES, MEMORY_SLACK_SHARE * under)


def _is_less_exact(base: Result, candidate: Result) -> bool:
    if base.grade is None or candidate.grade is None:
        return False
    return _GRADES.index(candidate.grade) > _GRADES.index(base.grade)


def print_compared(
    pairs: Sequence[Pair], comparisons: Sequence[ComparisonView], as_json: bool
) -> None:
    """The verdicts of a compare job, one row for each case and pass."""
    print_rows(compared(pairs, comparisons), "json" if as_json else "table")


def print_rows(rows: Sequence[Compared], style: str) -> None:
    """Print as `table`, `markdown` or `json`."""
    if style == "json":
        print_json([plain_row(row) for row in rows])
        return
    if not rows:
        console.print("nothing was compared")
        return
    base, candidate = rows[0].base[0].contender, rows[0].candidate[0].contender
    texts = verdict_rows(rows)
    if style == "markdown":
        sys.stdout.write(verdict_markdown(base, candidate, texts) + "\n")
        return
    title = f"{candidate} against {base}; a ratio below 1: it is faster"
    if console.width >= WIDE:
        print_table(title, COLUMNS + MORE_COLUMNS, [_times(row) + _costs(row) for row in texts])
    else:
        print_table(title, COLUMNS, [_times(row) for row in texts])
        print_table("", COLUMNS[:1] + MORE_COLUMNS, [(_place(row), *_costs(row)) for row in texts])
    for row in texts:
        if row.reason:
            console.print(f"{row.case}, {row.pass_words}: {row.reason}")


def _place(row: VerdictRow) -> str:
    return f"{row.case} {row.pass_words}"


def _times(row: VerdictRow) -> tuple[str, ...]:
    interval = row.interval or "–"
    return (_place(row), row.words, row.ratio, interval, row.detectable, row.processes)


def _costs(row: VerdictRow) -> tuple[str, str]:
    """Workspace and error with its grade, base → candidate."""
    graded = [f"{error} {grade}" for error, grade in zip(row.errors, row.grades, strict=True)]
    return " → ".join(row.workspaces), " → ".join(graded)


def plain_row(row: Compared) -> dict[str, Any]:
    """A row as JSON: the comparison, or null with the reason, and both results."""
    sides = {"base": row.base, "candidate": row.candidate}
    return {
        "case": row.case,
        "pass": row.pass_.value,
        "verdict": row.comparison.verdict if row.comparison else None,
        "reason": row.reason or None,
        "comparison": (
            row.comparison.model_dump(mode="json", by_alias=True) if row.comparison else None
        ),
        **{name: _plain_side(pair) for name, pair in sides.items()},
    }


def _plain_side(pair: Pair) -> dict[str, Any]:
    cell, result = pair
    return {
        "contender": cell.contender,
        "outcome": cell.outcome,
        "reason": cell.reason,
        "result": result.model_dump(mode="json", by_alias=True) if result else None,
    }
