"""The report of a job on a terminal: the same tables as the job's page."""

from collections.abc import Sequence

from ..contract.result import CellView, Result
from ..plots.report import ReportRow, report_tables
from .output import console, print_table

COLUMNS = (
    "contender",
    "time ms",
    "× baseline",
    "× floor",
    "workspace",
    "dW error",
    "grade",
    "notes",
)
ROOMY = 100
WIDE = 130
"""Columns of a terminal from which intervals are shown beside the numbers."""


def print_report(pairs: Sequence[tuple[CellView, Result | None]]) -> None:
    """One table per case and pass, fastest first."""
    for table in report_tables(pairs):
        title = f"{table.case}  {table.pass_words}  {table.device}"
        lines = [_line(row) for row in table.rows]
        # a narrow terminal shows flags only on the page; reasons are always shown
        roomy = console.width >= ROOMY or any(row.reason for row in table.rows)
        shown = len(COLUMNS) if roomy else len(COLUMNS) - 1
        print_table(title, COLUMNS[:shown], [line[:shown] for line in lines])


def _line(row: ReportRow) -> tuple[str, ...]:
    ok = row.status == "ok"
    wide = console.width >= WIDE
    error = f"{row.dw_error} ({row.dw_ratio})" if row.dw_ratio and wide else row.dw_error
    quartiles = f" ({row.quartiles})" if row.quartiles and wide else ""
    interval = f" ({row.ratio_interval})" if row.ratio_interval and wide else ""
    return (
        row.contender,
        f"{row.time}{quartiles}" if row.timed or ok else row.words,
        f"{row.ratio}{interval}",
        row.floor_ratio,
        row.workspace,
        error,
        f"{row.grade} ({row.worst_output})" if row.worst_output else row.grade,
        ", ".join(row.flags) if ok else row.reason,
    )
