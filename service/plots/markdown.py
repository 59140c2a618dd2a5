"""The report as Markdown that a kernel author pastes into a pull request."""

from collections.abc import Sequence

from ..contract.result import JobView, Result
from . import text
from .report import ReportRow, ReportTable

HEADINGS = (
    "contender",
    "outcome",
    "time, ms (quartiles)",
    "vs baseline (95 %)",
    "vs floor",
    "workspace",
    "dW error (vs torch)",
    "dx error (vs torch)",
    "grade",
    "flags",
)


RESULT_HEADINGS = (
    "result", "contender", "case", "device", "outcome", "time, ms", "vs baseline (95 %)",
    "workspace", "grade", "flags",
)  # fmt: skip


def markdown_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table as Markdown; pipes and newlines in cells are taken care of."""
    return "\n".join([_line(headings), _line(["---"] * len(headings)), *map(_line, rows)]) + "\n"


def results_markdown(results: Sequence[Result]) -> str:
    """A list of results as a table."""
    return markdown_table(RESULT_HEADINGS, [_result_cells(result) for result in results])


def _result_cells(result: Result) -> list[str]:
    bounds = text.interval(result.ratio_low, result.ratio_high)
    return [
        f"`{result.id}`",
        f"`{result.label}`",
        f"`{result.case}`, {result.pass_}",
        result.device_name,
        result.outcome.replace("_", " "),
        text.digits(result.latency_ms),
        _with_bounds(text.ratio(result.ratio_to_baseline), bounds),
        text.in_bytes(result.workspace_bytes),
        str(result.grade or text.NONE),
        ", ".join(result.flags),
    ]


def job_markdown(job: JobView, tables: Sequence[ReportTable], command: str) -> str:
    """Every table of a job, then what the columns mean and the command that repeats it."""
    baseline = _plain_baseline(job)
    blocks = [block for table in tables for block in (_title(table), _table(table))]
    legend = (
        f"Ratios: time over {baseline}'s in the same process, with its 95 % interval, and over the "
        "floor (the bare matrix products); below 1 is better. Errors: relative L2 against float64; "
        "in brackets over torch's own in the same dtype. "
        f"lossbench job `{job.id}`."
    )
    return "\n\n".join([*blocks, legend, f"```sh\n{command}\n```"]) + "\n"


def _plain_baseline(job: JobView) -> str:
    kernel = job.request.get("baseline", {})
    name = kernel.get("kernel") if isinstance(kernel, dict) else kernel
    return f"`{name or 'torch-naive'}`"


def _title(table: ReportTable) -> str:
    device = f" on {table.device}" if table.device else ""
    return f"**`{table.case}`, {table.pass_words}{device}**"


def _table(table: ReportTable) -> str:
    lines = [_line(HEADINGS), _line(["---"] * 2 + ["---:"] * 6 + ["---"] * 2)]
    return "\n".join([*lines, *(_line(_cells(row)) for row in table.rows)])


def _cells(row: ReportRow) -> list[str]:
    return [
        f"`{row.contender}`",
        f"{row.words}: {row.reason}" if row.reason else row.words,
        _with_bounds(row.time, row.quartiles),
        _with_bounds(row.ratio, row.ratio_interval),
        row.floor_ratio,
        row.workspace,
        _with_bounds(row.dw_error, row.dw_ratio),
        _with_bounds(row.dx_error, row.dx_ratio),
        f"{row.grade} ({row.worst_output})" if row.worst_output else row.grade,
        ", ".join(row.flags),
    ]


def _with_bounds(value: str, bounds: str) -> str:
    return f"{value} ({bounds})" if bounds.strip("–") else value


def _line(cells: Sequence[str]) -> str:
    # a pipe would end the cell, a newline the row
    inside = " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells)
    return f"| {inside} |"
