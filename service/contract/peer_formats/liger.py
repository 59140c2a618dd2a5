"""Liger's `benchmark/data/all_benchmark_data.csv`, and its history with commit and commit_date.

15 columns; older files lack `x_label`. The table holds three dozen operations; only
`fused_linear_cross_entropy` is one of ours. A row is known by all columns but y_*, timestamp and
commit_date, so that the commit is part of it. Memory is the largest allocation in MB, inputs
included, which no column of ours means: it is kept under its own name.
"""

import json
from typing import Any

from pydantic import ValidationError

from ..case import Case, CaseOptions
from ..run import Cell
from ..words import Dtype, Pass
from .rows import (
    BadCellError,
    Cells,
    Given,
    Layout,
    PeerFormat,
    PeerRow,
    cell_of,
    moment,
    one_of,
    positive,
    shape,
    tidy,
    word,
)

REQUIRED = (
    "kernel_name",
    "kernel_provider",
    "kernel_operation_mode",
    "metric_name",
    "metric_unit",
    "x_name",
    "x_value",
    "y_value_50",
    "y_value_20",
    "y_value_80",
    "extra_benchmark_config_str",
    "gpu_name",
    "timestamp",
    "liger_version",
)
FOUND = ("y_value_50", "y_value_20", "y_value_80", "timestamp", "commit_date", "x_label")
"""Columns that say what was found, or only name an axis: no part of a row's identity."""
_METRIC = ("metric_name", "metric_unit")
OPERATION = "fused_linear_cross_entropy"
_PASSES = {
    "forward": Pass.FORWARD,
    "backward": Pass.BACKWARD,
    "full": Pass.FORWARD_BACKWARD,
    # gradients off: no pass of ours
    "no-grad-forward": None,
}
_UNITS = {"speed": "ms", "memory": "MB"}
_TORCH = ("huggingface", "torch")
_OWN: dict[str, tuple[str, dict[str, str]]] = {
    "liger": ("liger", {}),
    "liger_triton": ("liger", {"impl": "triton"}),
    "liger_cutedsl": ("liger", {"impl": "cutedsl"}),
    "liger_cutile": ("liger", {"impl": "cutile"}),
    "liger-fp32-accum": ("liger", {"accum_dtype": "float32"}),
}
_MODELS = {
    "llama_2_7b": (4096, 32000),
    "llama_3_8b": (4096, 128256),
    "qwen2.5_7b": (3584, 152064),
    "qwen2.5_14b": (5120, 152064),
    "qwen2.5_72b": (8192, 152064),
    "deepseek_v2_lite": (2048, 102400),
    "deepseek_v3": (7168, 129280),
}
"""Liger's model registry: hidden size and vocabulary."""


def read_line(line: int, cells: Cells, given: Given) -> list[PeerRow]:
    """The row of a line. Raises BadCellError."""
    metric = word(cells, "metric_name")
    unit = one_of(cells, "metric_name", _UNITS)
    if cells["metric_unit"].strip() != unit:
        raise BadCellError("metric_unit", cells["metric_unit"], f"{metric} is in {unit}")
    pass_ = one_of(cells, "kernel_operation_mode", _PASSES)
    median, low, high = (positive(cells, name, unit) for name in FOUND[:3])
    config = _config(cells)
    measured_at = moment(cells, "timestamp")
    if "commit_date" in cells:
        moment(cells, "commit_date")
    commit = word(cells, "commit") if "commit" in cells else given.commit
    identity = {name: text for name, text in cells.items() if name not in FOUND}
    if commit:
        identity["commit"] = commit
    kernel, provider = word(cells, "kernel_name"), word(cells, "kernel_provider")
    is_time = metric == "speed"
    names = ("p20_ms", "p80_ms") if is_time else ("memory_p20_mb", "memory_p80_mb")
    numbers = dict(zip(names, (low, high), strict=True))
    return [
        PeerRow(
            line=line,
            kernel=kernel,
            provider=provider,
            identity=identity,
            merge_key={name: text for name, text in identity.items() if name not in _METRIC},
            fields=dict(cells),
            gpu=word(cells, "gpu_name"),
            version=word(cells, "liger_version"),
            commit=commit,
            measured_at=measured_at,
            cell=_cell(cells, config, pass_) if kernel == OPERATION else None,
            latency_ms=median if is_time else None,
            numbers=numbers if is_time else {"memory_mb": median, **numbers},
        )
    ]


def _config(cells: Cells) -> dict[str, Any]:
    column = "extra_benchmark_config_str"
    text = cells[column].strip() or "{}"
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise BadCellError(column, text, 'a JSON object belongs here, such as {"H": 4096}')
    return found


def _cell(cells: Cells, config: dict[str, Any], pass_: Pass | None) -> Cell | None:
    """The cell of a linear cross entropy; None where its case is not written whole."""
    sizes = {**config, cells["x_name"].strip(): cells["x_value"].strip()}
    hidden, vocab = _MODELS.get(str(sizes.get("model_config")), (None, None))
    tokens = sizes.get("BT", sizes.get("token_length"))
    found = shape(
        tokens,
        sizes.get("H", sizes.get("hidden_size", hidden)),
        sizes.get("V", sizes.get("vocab_size", vocab)),
    )
    dtype = str(config.get("dtype", "")).removeprefix("torch.")
    options = {name: config[name] for name in CaseOptions.model_fields if name in config}
    if pass_ is None or found is None or dtype not in set(Dtype):
        return None
    n, h, v = found
    try:
        asked = CaseOptions.model_validate(options)
    except ValidationError:
        return None
    case = Case(tokens=n, hidden=h, vocab=v, dtype=Dtype(dtype), options=asked)
    provider = cells["kernel_provider"].strip()
    if provider in _TORCH:
        return cell_of("torch-naive", None, {}, case, pass_)
    if provider in _OWN:
        kernel, params = _OWN[provider]
        return cell_of(kernel, cells["liger_version"].strip(), params, case, pass_)
    return cell_of(tidy(provider), None, {}, case, pass_)


LAYOUT = Layout(
    PeerFormat.LIGER, REQUIRED, read_line, (*REQUIRED, "x_label", "commit", "commit_date")
)
