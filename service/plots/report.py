"""The report of a job as tables: one per case and pass, the accessible twin of the figures."""

from collections.abc import Sequence
from dataclasses import dataclass

from ..contract.result import CellView, Result
from ..contract.words import CellState, Grade, Outcome
from . import text, theme
from .latency import speed
from .panels import PASS_WORDS

COUNTED = frozenset({Grade.EXACT, Grade.FAIR})
"""Grades whose speed counts: coarse and poor are shown as such and are never a win."""


@dataclass(frozen=True)
class ReportRow:
    """One cell as text, ready to be shown. `trend` is faster, slower or empty."""

    contender: str
    kernel: str
    position: int
    result_id: str | None
    status: str
    words: str
    reason: str
    time: str
    quartiles: str
    ratio: str
    ratio_interval: str
    trend: str
    floor_ratio: str
    workspace: str
    dw_error: str
    dw_ratio: str
    dx_error: str
    dx_ratio: str
    grade: str
    worst_output: str
    flags: tuple[str, ...]
    reused: bool

    @property
    def timed(self) -> bool:
        """Whether there is a time to compare."""
        return self.time != text.NONE


@dataclass(frozen=True)
class ReportTable:
    """All contenders of one case and pass, fastest first."""

    case: str
    pass_words: str
    device: str
    rows: tuple[ReportRow, ...]

    @property
    def timed(self) -> bool:
        """Whether any row has a time."""
        return any(row.timed for row in self.rows)

    @property
    def best(self) -> ReportRow | None:
        """The fastest row whose error grade counts; None without any."""
        counted = (row for row in self.rows if row.timed and row.grade in COUNTED)
        return next(counted, None)


def report_tables(pairs: Sequence[tuple[CellView, Result | None]]) -> list[ReportTable]:
    """Tables in the order of the job's cells; rows by time, cells without a time last."""
    groups: dict[tuple[str, str], list[tuple[CellView, Result | None]]] = {}
    for cell, result in pairs:
        groups.setdefault((cell.case, cell.pass_), []).append((cell, result))
    return [_table(group) for group in groups.values()]


def _table(group: Sequence[tuple[CellView, Result | None]]) -> ReportTable:
    devices = dict.fromkeys(result.device_name for _, result in group if result)
    ordered = sorted(group, key=_order)
    first = group[0][0]
    return ReportTable(
        case=first.case,
        pass_words=PASS_WORDS[first.pass_],
        device=", ".join(devices),
        rows=tuple(_row(cell, result) for cell, result in ordered),
    )


def _order(pair: tuple[CellView, Result | None]) -> tuple[bool, float, int]:
    cell, result = pair
    time = speed(result) if result and result.outcome is Outcome.OK else None
    return time is None, time or 0.0, cell.position


def status_of(cell: CellView) -> tuple[str, str]:
    """(word for styling, words to read) of a cell: its outcome, or running, or queued."""
    if cell.outcome is not None:
        return cell.outcome.value, theme.OUTCOME_WORDS[cell.outcome]
    running = cell.state is CellState.RUNNING
    return ("running", "running") if running else ("queued", "queued")


def _row(cell: CellView, result: Result | None) -> ReportRow:
    status, words = status_of(cell)
    measured = result if result and result.outcome is Outcome.OK else None
    time = speed(measured) if measured else None
    timed = measured if time is not None else None
    dw = measured.error_of("dw") if measured else None
    dx = measured.error_of("dx") if measured else None
    return ReportRow(
        contender=result.label if result else cell.contender,
        kernel=result.kernel if result else cell.contender.partition("@")[0].partition("[")[0],
        position=cell.position,
        result_id=cell.result_id,
        status=status,
        words=words,
        reason=cell.reason or "",
        time=text.digits(time),
        quartiles=text.interval(timed.latency_low_ms, timed.latency_high_ms) if timed else "",
        ratio=_ratio(timed),
        ratio_interval=_bounds(timed),
        trend=_trend(timed),
        floor_ratio=text.ratio(timed.floor_ratio) if timed else text.NONE,
        workspace=text.in_bytes(measured.workspace_bytes) if measured else text.NONE,
        dw_error=text.digits(dw.relative_l2) if dw else text.NONE,
        dw_ratio=text.ratio(dw.ratio) if dw and dw.ratio is not None else "",
        dx_error=text.digits(dx.relative_l2) if dx else text.NONE,
        dx_ratio=text.ratio(dx.ratio) if dx and dx.ratio is not None else "",
        grade=str(measured.grade) if measured and measured.grade else "",
        worst_output=_blamed(measured),
        flags=tuple(flag.value for flag in result.flags) if result else (),
        reused=cell.reused,
    )


def _blamed(result: Result | None) -> str:
    """The output to name beside a grade that does not count; nothing to blame for the others."""
    if result is None or result.grade in COUNTED:
        return ""
    return result.worst_output or ""


def is_baseline(result: Result) -> bool:
    """Whether this result is of the contender that its own ratio divides by."""
    return result.contender == result.baseline


def _ratio(result: Result | None) -> str:
    if result is None:
        return text.NONE
    return "baseline" if is_baseline(result) else text.ratio(result.ratio_to_baseline)


def _bounds(result: Result | None) -> str:
    if result is None or is_baseline(result) or result.ratio_to_baseline is None:
        return ""
    if result.ratio_low is None or result.ratio_high is None:
        return "no interval"
    return text.interval(result.ratio_low, result.ratio_high)


def _trend(result: Result | None) -> str:
    if result is None or is_baseline(result):
        return ""
    if result.ratio_low is None or result.ratio_high is None:
        return ""
    if result.ratio_high < 1 and result.grade in COUNTED:
        return "faster"
    return "slower" if result.ratio_low > 1 else ""
