"""The table of CCE's `python -m benchmark`: method, kind, runtime_ms, op_mem_mb, test_data.

Each line is one method on 8,192 real hidden states and labels. The data of the name `...-invalids`
have ignored labels whose share the table does not say: such rows are kept and are no results. The
table says neither GPU nor dtype; its script runs in bfloat16.
"""

from ..case import Case
from ..run import Cell
from ..words import Dtype, Pass, Recipe
from .rows import (
    Cells,
    Given,
    Layout,
    PeerFormat,
    PeerRow,
    cell_of,
    number,
    one_of,
    positive,
    tidy,
    word,
)

REQUIRED = ("method", "kind", "runtime_ms", "op_mem_mb", "test_data")
TOKENS = 8192
_PASSES = {
    "loss-fw": Pass.FORWARD,
    "loss-bw": Pass.BACKWARD,
    "loss-fw-bw": Pass.FORWARD_BACKWARD,
}
_MODELS = {
    "llama3": (4096, 128256, None),
    "llama3.2-1": (2048, 128256, None),
    "llama3.2-3": (3072, 128256, None),
    "llama3-70": (8192, 128256, None),
    "gemma2": (2304, 256000, 30.0),
    "gemma2-9": (3584, 256000, 30.0),
    "gemma2-27": (4608, 256000, 30.0),
    "phi3.5": (3072, 32064, None),
    "mistral-nemo": (5120, 131072, None),
}
"""Names of CCE's test data: hidden size, vocabulary, softcap."""
_KERNELS = {"cce": "cce", "baseline": "torch-naive", "torch_compile": "torch-compile"}


def read_line(line: int, cells: Cells, given: Given) -> list[PeerRow]:
    """The row of a line. Raises BadCellError."""
    pass_ = one_of(cells, "kind", _PASSES)
    latency_ms = positive(cells, "runtime_ms", "ms")
    memory_mb = number("op_mem_mb", cells["op_mem_mb"], "MB")
    identity = {name: text for name, text in cells.items() if name in REQUIRED}
    assumed = [f"{TOKENS} tokens, as CCE's data have"]
    if given.dtype is None:
        assumed.append("bfloat16, as CCE's script runs")
    return [
        PeerRow(
            line=line,
            kernel="linear_cross_entropy",
            provider=word(cells, "method"),
            identity=identity,
            merge_key=identity,
            fields=dict(cells),
            gpu=given.gpu,
            version=given.version,
            commit=given.commit,
            cell=_cell(cells, given, pass_),
            latency_ms=latency_ms,
            numbers={"op_mem_mb": memory_mb},
            assumed=tuple(assumed),
        )
    ]


def _cell(cells: Cells, given: Given, pass_: Pass) -> Cell | None:
    data = word(cells, "test_data")
    if data not in _MODELS:
        return None
    hidden, vocab, softcap = _MODELS[data]
    case = Case.model_validate(
        {
            "tokens": TOKENS,
            "hidden": hidden,
            "vocab": vocab,
            "dtype": given.dtype or Dtype.BFLOAT16,
            "options": {"softcap": softcap},
            "recipe": Recipe.TRAINED,
        }
    )
    method = cells["method"].strip()
    kernel = _KERNELS.get(method, tidy(method))
    version = given.version if kernel == "cce" else None
    return cell_of(kernel, version, {}, case, pass_)


LAYOUT = Layout(PeerFormat.CCE, REQUIRED, read_line)
