"""TritonBench's wide table: the swept shape, then a column `<implementation>-<metric>` for each.

Separated by `;` or `,`. The first column is named after what it sweeps: `(B*T, H)` is the linear
cross entropy, whose vocabulary (128256), dtype (float32) and pass (forward) are TritonBench's
defaults unless given. An empty cell was not run; `OOM` is out of memory.
"""

import re

from ..case import Case
from ..run import Cell
from ..words import Dtype, Outcome, Pass
from .rows import (
    BadCellError,
    Cells,
    Given,
    Layout,
    PeerFormat,
    PeerRow,
    cell_of,
    number,
    positive_number,
    shape,
    tidy,
)

METRICS = {
    "latency": "ms",
    "speedup": "times",
    "accuracy": "",
    "gpu_peak_mem": "GB",
    "tflops": "TFLOP/s",
    "gbps": "GB/s",
    "mem_footprint_compression_ratio": "times",
}
"""Metrics of TritonBench that are read, with their units; others are kept as written."""
VOCAB = 128256
AXIS = "(B*T, H)"
_COLUMN = re.compile(rf"(?P<provider>.+)-(?P<metric>{'|'.join(METRICS)})")
_OOM = re.compile(r"\b(cuda )?oom\b|out of memory", re.IGNORECASE)
_SPREAD = re.compile(r"\s*\(±[^)]*\)$")
_KERNELS = {
    "torch_lm_head_ce": "torch-naive",
    "liger_lm_head_ce": "liger",
    "inductor_fused_linear_cross_entropy": "torch-compile",
}


def is_header(columns: list[str]) -> bool:
    """Whether a header is that of a wide table."""
    return len(columns) > 1 and any(_COLUMN.fullmatch(name) for name in columns[1:])


def read_line(line: int, cells: Cells, given: Given) -> list[PeerRow]:
    """A row for each implementation that was run. Raises BadCellError."""
    axis = next(iter(cells))
    if not cells[axis].strip():
        raise BadCellError(axis, "", "the swept shape is empty")
    written: dict[str, dict[str, str]] = {}
    for column, text in cells.items():
        found = _COLUMN.fullmatch(column)
        if found and text.strip():
            written.setdefault(found["provider"], {})[found["metric"]] = text.strip()
    return [_row(line, axis, cells[axis], given, *entry) for entry in written.items()]


def _row(
    line: int, axis: str, x_value: str, given: Given, provider: str, metrics: dict[str, str]
) -> PeerRow:
    identity = {"x_name": axis, "x_value": x_value, "provider": provider, **metrics}
    numbers: dict[str, float] = {}
    latency_ms, outcome = None, Outcome.OK
    for metric, text in metrics.items():
        column, unit = f"{provider}-{metric}", METRICS[metric]
        if metric == "accuracy":
            continue
        if _OOM.search(text):
            outcome = Outcome.OUT_OF_MEMORY
        elif metric == "latency":
            latency_ms = positive_number(column, _SPREAD.sub("", text), unit)
        else:
            numbers[f"{metric} ({unit})"] = number(column, text.removesuffix("x"), unit)
    return PeerRow(
        line=line,
        kernel="fused_linear_cross_entropy" if axis == AXIS else axis,
        provider=provider,
        identity=identity,
        merge_key=identity,
        fields=identity,
        gpu=given.gpu,
        version=given.version,
        commit=given.commit,
        cell=_cell(axis, x_value, given, provider),
        outcome=outcome,
        latency_ms=latency_ms if outcome is Outcome.OK else None,
        numbers=numbers,
        assumed=_assumed(given),
    )


def _assumed(given: Given) -> tuple[str, ...]:
    defaults = {
        f"vocabulary {VOCAB}": given.vocab,
        "float32": given.dtype,
        "forward": given.pass_,
    }
    return tuple(
        f"{words}, TritonBench's default" for words, said in defaults.items() if said is None
    )


def _cell(axis: str, x_value: str, given: Given, provider: str) -> Cell | None:
    numbers = re.findall(r"\d+", x_value)
    if axis != AXIS or len(numbers) != 2:
        return None
    found = shape(numbers[0], numbers[1], given.vocab or VOCAB)
    if found is None:
        return None
    n, h, v = found
    case = Case(tokens=n, hidden=h, vocab=v, dtype=given.dtype or Dtype.FLOAT32)
    kernel = _KERNELS.get(provider, tidy(provider))
    version = given.version if kernel == "liger" else None
    return cell_of(kernel, version, {}, case, given.pass_ or Pass.FORWARD)


LAYOUT = Layout(PeerFormat.TRITONBENCH, (), read_line)
