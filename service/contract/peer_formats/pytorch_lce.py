"""PyTorch's lce_benchmark CSV (the scripts beside pull request 181574).

Columns: label, acc_policy, chunking_method, acc_dtype, time_ms, memory_peak_bytes,
grad_input_error, grad_linear_weight_error. The table does not say the shape: tokens, hidden and
vocab must be given for rows to be results. Memory is an absolute peak, and the norm of the errors
is not written, so both stay under their own names.
"""

from ..case import Case
from ..run import Cell
from ..words import Dtype, Pass
from .rows import (
    Cells,
    Given,
    Layout,
    PeerFormat,
    PeerRow,
    cell_of,
    number,
    positive,
    shape,
    tidy,
    word,
)

REQUIRED = (
    "label",
    "acc_policy",
    "chunking_method",
    "acc_dtype",
    "time_ms",
    "memory_peak_bytes",
    "grad_input_error",
    "grad_linear_weight_error",
)
_ERRORS = ("grad_input_error", "grad_linear_weight_error")
_SETTINGS = ("acc_policy", "chunking_method", "acc_dtype")
_OURS = {"acc_dtype": "accum_dtype"}
_UNSET = ("", "none", "nan", "-", "default")


def read_line(line: int, cells: Cells, given: Given) -> list[PeerRow]:
    """The row of a line. Raises BadCellError."""
    numbers = {"memory_peak_bytes": positive(cells, "memory_peak_bytes", "bytes")}
    for name in _ERRORS:
        if cells[name].strip().lower() not in _UNSET:
            numbers[name] = number(name, cells[name], "error")
    latency_ms = positive(cells, "time_ms", "ms")
    assumed = []
    if given.dtype is None:
        assumed.append("bfloat16")
    if given.pass_ is None:
        assumed.append("forward and backward, since the table has errors of gradients")
    return [
        PeerRow(
            line=line,
            kernel="linear_cross_entropy",
            provider=word(cells, "label"),
            identity=dict(cells),
            merge_key=dict(cells),
            fields=dict(cells),
            gpu=given.gpu,
            version=given.version,
            commit=given.commit,
            cell=_cell(cells, given),
            latency_ms=latency_ms,
            numbers=numbers,
            assumed=tuple(assumed),
        )
    ]


def _cell(cells: Cells, given: Given) -> Cell | None:
    found = shape(given.tokens, given.hidden, given.vocab)
    if found is None:
        return None
    n, h, v = found
    case = Case(tokens=n, hidden=h, vocab=v, dtype=given.dtype or Dtype.BFLOAT16)
    pass_ = given.pass_ or Pass.FORWARD_BACKWARD
    if "liger" in cells["label"].lower():
        return cell_of("liger", None, {}, case, pass_)
    params = {}
    for name in _SETTINGS:
        text = tidy(cells[name].removeprefix("torch."))
        if text not in _UNSET:
            params[_OURS.get(name, name)] = text
    if not params:
        return cell_of("torch-naive", None, {}, case, pass_)
    return cell_of("torch-native", given.version, params, case, pass_)


LAYOUT = Layout(PeerFormat.PYTORCH_LCE, REQUIRED, read_line)
