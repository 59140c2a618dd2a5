"""What a comparison says in words; none of them is a verdict."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from lossbench.service.api.records import CandidateCell, CandidateSummary, Comparison, Side
from lossbench.service.contract.errors import Fault, InvalidRequestError
from lossbench.service.contract.result import OutputErrorView
from lossbench.service.contract.words import Outcome, Verdict
from lossbench.service.plots import text
from lossbench.service.plots.arrows import arrows
from lossbench.service.plots.chunk_errors import ChunkError, chunk_errors
from lossbench.service.plots.diverging import Bar
from lossbench.service.plots.log_scale import ERROR, FLOOR
from lossbench.service.plots.panels import PASS_WORDS
from lossbench.service.plots.report import COUNTED

MOST_WORKSPACE_NOISE = 0.01
"""Workspaces this near to each other, as a share, are the same."""


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


def changed(base: Side | None, cell: CandidateCell | None) -> bool:
    """Whether something differs: time by verdict or interval, memory, error grade or outcome."""
    if base is None or cell is None or cell.side is None:
        return False
    if base.outcome is not cell.side.outcome or base.grade is not cell.side.grade:
        return True
    workspace = cell.workspace_ratio
    if workspace is not None and abs(workspace - 1) > MOST_WORKSPACE_NOISE:
        return True
    return way_of(cell) != ""


def way_of(cell: CandidateCell) -> str:
    """`faster` or `slower` by the verdict, or by the interval where there is no verdict."""
    if cell.verdict is not None:
        moved = cell.verdict in (Verdict.FASTER, Verdict.SLOWER)
        return str(cell.verdict) if moved else ""
    return trend(cell)


class Tally(NamedTuple):
    """How many cases of a candidate went which way; a faster one that is inexact is no win."""

    faster: int
    slower: int
    even: int
    inexact: int
    without: int

    @property
    def words(self) -> list[tuple[str, str]]:
        """Ways with their counts in words; of the last three only what there is some of."""
        ways = (
            ("faster", f"{self.faster} faster"),
            ("slower", f"{self.slower} slower"),
            ("even", f"{self.even} not told apart" if self.even else ""),
            ("", f"{self.inexact} faster but inexact" if self.inexact else ""),
            ("", f"{self.without} without a ratio" if self.without else ""),
        )
        return [(way, words) for way, words in ways if words]


def tally(cells: Iterable[CandidateCell | None]) -> Tally:
    """Wins, losses and the rest among these cells."""
    counts: Counter[str] = Counter()
    for cell in cells:
        if cell is None or cell.ratio is None:
            counts["without"] += 1
        elif (way := way_of(cell)) == "faster" and not _counts(cell):
            counts["inexact"] += 1
        else:
            counts[way or "even"] += 1
    return Tally(*(counts[name] for name in Tally._fields))


def _counts(cell: CandidateCell) -> bool:
    return cell.side is not None and cell.side.grade in COUNTED


def bars_of(pairs: Iterable[tuple[str, CandidateCell | None]]) -> tuple[list[Bar], int]:
    """A bar for each case with a ratio, by its name, and how many have none."""
    bars, without = [], 0
    for label, cell in pairs:
        if cell is None or cell.ratio is None or cell.ratio <= 0:
            without += 1
            continue
        ends = (cell.ratio_low, cell.ratio_high)
        bars.append(Bar(label, cell.ratio, *ends, way_of(cell), _counts(cell)))
    return bars, without


@dataclass(frozen=True)
class Pair:
    """Both sides of one row, for the tabs of errors and floor."""

    case: str
    below: str
    base: Side | None
    cand: Side | None
    label: str = ""
    """Case and pass, short, as figures name the row."""

    @property
    def run_ids(self) -> list[str]:
        """Results of the row: base, then candidate."""
        return [side.result_id for side in self.sides if side is not None]

    @property
    def outputs(self) -> list[tuple[str, OutputErrorView | None, OutputErrorView | None]]:
        """Errors of base and candidate by output, in the order of the outputs' names."""
        sides = [{e.output: e for e in side.errors} if side else {} for side in self.sides]
        names = sorted({name for side in sides for name in side})
        return [(name, sides[0].get(name), sides[1].get(name)) for name in names]

    @property
    def sides(self) -> tuple[Side | None, Side | None]:
        """Base and candidate."""
        return self.base, self.cand


TABS = ("", "errors", "floor")


def tab_of(asked: str) -> str:
    """The tab asked for. Raises InvalidRequestError for one that there is not."""
    if asked not in TABS:
        message = f"there is no tab {asked[:40]!r}; known: errors, floor"
        raise InvalidRequestError([Fault("/query/tab", "unknown_tab", message)])
    return asked


Figure = tuple[str, dict[str, Any], str]
"""A figure's name, its data, and what it is for those who do not see it."""


def tab_figures(
    tab: str,
    pairs: Sequence[Pair],
    bars: dict[str, Any] | None,
    names: tuple[str, str],
    chunks: Sequence[ChunkError],
) -> list[Figure]:
    """Figures of a tab: bars of times, or arrows from base to candidate."""
    drawn: list[tuple[str, dict[str, Any] | None, str]] = []
    if tab == "errors":
        worst = arrows(_both(pairs, "worst_error_ratio"), ERROR, *names)
        drawn = [
            ("errors", worst, "Worst error over torch's own, base to candidate"),
            ("chunks", chunk_errors(chunks), "Worst error against the number of chunks"),
        ]
    elif tab == "floor":
        floors = arrows(_both(pairs, "floor_ratio"), FLOOR, *names)
        drawn = [("floor", floors, "Time over the floor, base to candidate")]
    else:
        drawn = [("bars", bars, "Time ratio of every case, sorted")]
    return [
        (name, data, f"{label}; the table below has the same numbers")
        for name, data, label in drawn
        if data is not None
    ]


def _both(pairs: Sequence[Pair], name: str) -> list[tuple[str, float | None, float | None]]:
    return [(p.label, measured(p.base, name), measured(p.cand, name)) for p in pairs]


HEADINGS = ("case", "candidate", "time ratio (95 %)", "verdict", "time, ms", "workspace", "error")


def compare_markdown(comparison: Comparison) -> str:
    """The rows of a comparison for a pull request; each field with an arrow: base → candidate."""
    sentences = [sentence(each, comparison.base.used, each.used) for each in comparison.candidates]
    lines = [*sentences, "", _line(HEADINGS), _line(["---"] * len(HEADINGS))]
    for row in comparison.items:
        for summary, cell in zip(comparison.candidates, row.candidates, strict=True):
            sides = (row.base, cell.side)
            bounds = text.interval(cell.ratio_low, cell.ratio_high)
            ratio = text.ratio(cell.ratio)
            cells = [
                f"`{row.case}`, {PASS_WORDS[row.pass_]}, {row.device_name}",
                f"`{summary.used}`",
                f"{ratio} ({bounds})" if cell.ratio_low is not None else ratio,
                str(cell.verdict or "none").replace("_", " "),
                " → ".join(text.digits(measured(side, "latency_ms")) for side in sides),
                " → ".join(text.in_bytes(measured(side, "workspace_bytes")) for side in sides),
                " → ".join(str(side.grade or text.NONE) if side else text.NONE for side in sides),
            ]
            lines.append(_line(cells))
    return "\n".join(lines) + "\n"


def measured(side: Side | None, name: str) -> Any:
    """A number of a side that is `ok`, else None."""
    return getattr(side, name) if side is not None and side.outcome is Outcome.OK else None


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
