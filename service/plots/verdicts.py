"""Verdicts as rows of text, for the terminal, the pages and Markdown: one row per case and pass."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..contract.comparison import ComparisonView
from ..contract.result import CellView, Result
from ..contract.words import Outcome, Pass, Verdict
from . import text, theme
from .panels import PASS_WORDS

VERDICT_WORDS = {
    Verdict.SLOWER: "slower",
    Verdict.FASTER: "faster",
    Verdict.NO_DIFFERENCE: "no difference",
    Verdict.INCONCLUSIVE: "inconclusive",
}
NO_BASELINE = "no baseline"
Pair = tuple[CellView, Result | None]


@dataclass(frozen=True)
class Compared:
    """One case and pass of a compare job: both sides and the comparison, None where none ran."""

    case: str
    pass_: Pass
    base: Pair
    candidate: Pair
    comparison: ComparisonView | None

    @property
    def verdict(self) -> str:
        """`slower`, `faster`, `no_difference`, `inconclusive`; `not_measured` before there is any.

        Also where a side was refused before it ran.
        """
        return self.comparison.verdict.value if self.comparison else "not_measured"

    @property
    def lacks_baseline(self) -> bool:
        """Whether the base ended without a result that counts: there is nothing to compare with."""
        return self.base[0].outcome not in (None, Outcome.OK)

    @property
    def reason(self) -> str:
        """Why there is no verdict; empty where there is one."""
        if self.lacks_baseline:
            cell = self.base[0]
            return f"{cell.contender} is {cell.outcome}: {cell.reason or 'no reason given'}"
        if self.comparison is not None:
            return self.comparison.reason or ""
        return next((cell.reason for cell, _ in (self.base, self.candidate) if cell.reason), "")


def compared(pairs: Sequence[Pair], comparisons: Sequence[ComparisonView]) -> list[Compared]:
    """Rows in the order of the job's cells, whose first contender is the base."""
    found = {(each.case, each.pass_): each for each in comparisons}
    sides: dict[tuple[str, Pass], list[Pair]] = {}
    for cell, result in pairs:
        sides.setdefault((cell.case, cell.pass_), []).append((cell, result))
    return [
        Compared(case, pass_, two[0], two[1], found.get((case, pass_)))
        for (case, pass_), two in sides.items()
        if len(two) == 2
    ]


@dataclass(frozen=True)
class VerdictRow:
    """One comparison as text; where a field has two values they are base and candidate."""

    case: str
    pass_words: str
    verdict: str
    words: str
    reason: str
    ratio: str
    interval: str
    detectable: str
    processes: str
    times: tuple[str, str]
    workspaces: tuple[str, str]
    errors: tuple[str, str]
    grades: tuple[str, str]
    outcomes: tuple[str, str]


def verdict_rows(rows: Sequence[Compared]) -> list[VerdictRow]:
    """Text of every row."""
    return [_row(each) for each in rows]


def _row(row: Compared) -> VerdictRow:
    made, sides = row.comparison, (row.base, row.candidate)
    words = VERDICT_WORDS[made.verdict] if made else theme.NOT_MEASURED
    if row.lacks_baseline:
        words = NO_BASELINE
    return VerdictRow(
        case=row.case,
        pass_words=PASS_WORDS[row.pass_],
        verdict=row.verdict,
        words=words,
        reason=row.reason,
        ratio=fine_ratio(made.ratio if made else None),
        interval=fine_interval(made.ratio_low, made.ratio_high) if made else "",
        detectable=percent(made.minimum_detectable_effect) if made else text.NONE,
        processes=str(made.processes) if made else text.NONE,
        times=_both(sides, lambda result: text.digits(result.latency_ms)),
        workspaces=_both(sides, lambda result: text.in_bytes(result.workspace_bytes)),
        errors=_both(sides, _error),
        grades=_both(sides, lambda result: str(result.grade or text.NONE)),
        outcomes=(_outcome(row.base[0]), _outcome(row.candidate[0])),
    )


def fine_ratio(value: float | None) -> str:
    """`1.004×`: a verdict may rest on half a per cent, so one digit more than elsewhere."""
    return text.NONE if value is None else f"{text.digits(value, 4)}×"


def fine_interval(low: float | None, high: float | None) -> str:
    """`1.002 – 1.006`; empty without bounds."""
    if low is None or high is None:
        return ""
    return f"{text.digits(low, 4)} – {text.digits(high, 4)}"


def percent(fraction: float | None) -> str:
    """`0.53 %` of 0.0053."""
    return text.NONE if fraction is None else f"{text.digits(100 * fraction, 2)} %"


def _both(sides: tuple[Pair, Pair], words: Callable[[Result], str]) -> tuple[str, str]:
    base, candidate = (words(result) if result else text.NONE for _, result in sides)
    return base, candidate


def _error(result: Result) -> str:
    """Relative L2 of dW, or of the loss where a pass has no gradients."""
    found = result.error_of("dw") or result.error_of("loss")
    return text.digits(found.relative_l2) if found else text.NONE


def _outcome(cell: CellView) -> str:
    return str(cell.outcome or cell.state)


MARKDOWN_HEADINGS = (
    "case",
    "verdict",
    "time ratio (95 %)",
    "detectable",
    "processes",
    "workspace",
    "error",
    "grade",
)


def verdict_counts(rows: Sequence[VerdictRow]) -> str:
    """`2 slower, 1 no difference`: how many rows have which words, in the order of the legend."""
    order = [*VERDICT_WORDS.values(), NO_BASELINE, theme.NOT_MEASURED]
    counts = {words: sum(row.words == words for row in rows) for words in order}
    return ", ".join(f"{count} {words}" for words, count in counts.items() if count)


def verdict_markdown(base: str, candidate: str, rows: Sequence[VerdictRow]) -> str:
    """A table for a pull request; each field with an arrow is base → candidate."""
    lines = [_line(MARKDOWN_HEADINGS), _line(["---"] * len(MARKDOWN_HEADINGS))]
    lines += [_line(_cells(row)) for row in rows]
    head = f"**`{candidate}` against `{base}`**: {verdict_counts(rows)}"
    return f"{head}\n\n" + "\n".join(lines)


def _cells(row: VerdictRow) -> list[str]:
    return [
        f"`{row.case}`, {row.pass_words}",
        f"{row.words}: {row.reason}" if row.reason else row.words,
        f"{row.ratio} ({row.interval})" if row.interval else row.ratio,
        row.detectable,
        row.processes,
        " → ".join(row.workspaces),
        " → ".join(row.errors),
        " → ".join(row.grades),
    ]


def _line(cells: Sequence[str]) -> str:
    inside = " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells)
    return f"| {inside} |"
