"""Cases from public bug reports on fused linear cross entropy kernels, restated as our own data."""

from __future__ import annotations

from typing import Any

from ..problem import Problem
from .cases import CheckCase, Tensors

_CASE_FIELDS = ("call", "labels", "layout", "upstream", "quick")
_TENSOR_FIELDS = tuple(Tensors.__dataclass_fields__)


def _report(id: str, source: str, what: str, **rest: Any) -> CheckCase:
    """A case; what is neither the case's nor the tensors' is an option of the problem."""
    case = {name: rest.pop(name) for name in _CASE_FIELDS if name in rest}
    tensors = Tensors(**{name: rest.pop(name) for name in _TENSOR_FIELDS if name in rest})
    sizes = {"tokens": 24, "hidden": 16, "vocab": 37, "dtype": "float32", "bias": False}
    return CheckCase(
        id=f"reports/{id}",
        group="reports",
        what=what,
        problem=Problem(**{**sizes, **rest}),
        tensors=tensors,
        source=source,
        **{"labels": "third_ignored", **case},
    )


REPORTS: tuple[CheckCase, ...] = (
    _report("K01", "linkedin/Liger-Kernel#177", "every label ignored", tokens=16, bias=True,
            labels="all_ignored", call="nothing_to_train", quick=True),
    _report("K02", "unslothai/unsloth#5230", "whole chunks ignored", tokens=64, bias=True,
            labels="first_seven_eighths_ignored"),
    _report("K03", "linkedin/Liger-Kernel#968", "an upstream gradient per token", tokens=8,
            hidden=10, vocab=15, bias=True, reduction="none", upstream="ramp"),
    _report("K04", "Dao-AILab/quack PR 126", "an upstream gradient of stride 0", bias=True,
            reduction="none", upstream="expanded"),
    _report("K06", "linkedin/Liger-Kernel#421", "none gives one value per token", tokens=12,
            vocab=5, reduction="none"),
    _report("K07", "NVIDIA-NeMo/Automodel#3803", "a mean that does not depend on chunks",
            tokens=100, bias=True, upstream=3.7),
    _report("K08", "linkedin/Liger-Kernel#243", "smoothing with ignored rows", tokens=40,
            bias=True, label_smoothing=0.1),
    _report("K09", "unslothai/unsloth PR 10616", "padding stays out after the cap", tokens=33,
            bias=True, bias_offset=-1.0, softcap=1.0, quick=True),
    _report("K10", "apple/ml-cross-entropy#48", "the cap binds", tokens=33, vocab=50, x_scale=8.0,
            weight_scale=4.0, softcap=30.0),
    _report("K11", "linkedin/Liger-Kernel PR 239", "z-loss over valid rows", tokens=48,
            upstream=0.5, lse_square_scale=1e-2),
    _report("K12", "verl-project/verl#2899", "a vocabulary that is no multiple of a tile",
            tokens=65, hidden=24, vocab=1015, bias=True),
    _report("K12h", "verl-project/verl#2899", "the same in bf16 without bias", tokens=65,
            hidden=24, vocab=1015, dtype="bfloat16"),
    _report("K13", "apple/ml-cross-entropy PR 59", "all labels beside the padding", tokens=32,
            vocab=300, labels="last"),
    _report("K13h", "apple/ml-cross-entropy PR 59", "the same in bf16", tokens=32, hidden=32,
            vocab=300, labels="last", dtype="bfloat16"),
    _report("K15", "unslothai/unsloth PR 10713", "x is a column slice", tokens=32, upstream=1.5,
            layout="x_columns"),
    _report("K15t", "NVIDIA/TransformerEngine#2734", "x is a transposed view", tokens=32,
            layout="x_transposed"),
    _report("K16", "PrimeIntellect-ai/prime-rl PR 3011", "a frozen head gets no gradient",
            tokens=32, bias=True, frozen="weight"),
    _report("K17", "linkedin/Liger-Kernel#930", "evaluation under no_grad", tokens=32,
            call="no_grad"),
    _report("K18", "Dao-AILab/quack PR 209", "two backwards", tokens=32, bias=True,
            call="two_backwards"),
    _report("K19", "linkedin/Liger-Kernel PR 1251", "an input saved upstream is not overwritten",
            tokens=32, call="nonleaf"),
    _report("K21", "axolotl-ai-cloud/axolotl PR 1601", "same-sign bf16 sums over many chunks",
            tokens=4096, hidden=32, vocab=64, dtype="bfloat16", labels="constant", x_scale=0.05,
            weight_scale=0.05, bias=True, bias_offset=1.0, x_offset=1.0),
    _report("K21n", "axolotl-ai-cloud/axolotl PR 1601", "the same without bias", tokens=4096,
            hidden=32, vocab=64, dtype="bfloat16", labels="constant", x_scale=0.05,
            weight_scale=0.05, x_offset=1.0, quick=True),
    _report("K22", "NVIDIA/TransformerEngine PR 3193", "a summed loss keeps float32 digits",
            tokens=1024, hidden=32, vocab=256, dtype="bfloat16", labels="random", reduction="sum",
            quick=True),
    _report("K23", "pytorch/pytorch PR 195829", "a large common logit offset", tokens=32, vocab=64,
            bias=True, bias_offset=1000.0),
    _report("K24", "pytorch/pytorch PR 195829", "masked classes", tokens=32, vocab=64, bias=True,
            masked=True),
    _report("K26", "linkedin/Liger-Kernel#802", "micro-batches add up to the mean", tokens=48,
            bias=True, call="micro_batches"),
    _report("K27", "verl-project/verl#7834", "a tied embedding gets both gradients", tokens=37,
            labels="random", call="tied"),
    _report("K28", "unslothai/unsloth-zoo PR 248", "the upstream gradient of a gradient scaler",
            tokens=64, dtype="bfloat16", bias=True, upstream=65536.0),
    _report("K30", "pytorch/pytorch#141639", "float64 stays float64", tokens=64, dtype="float64",
            bias=True, upstream=1.3, label_smoothing=0.05),
    _report("K38", "apple/ml-cross-entropy#52", "the bias dominates the logits", tokens=40,
            x_scale=0.01, bias=True, upstream=2.0),
    _report("K39", "apple/ml-cross-entropy#14", "tiny gradients are kept", tokens=32, hidden=8,
            vocab=8192, weight_scale=0.02, labels="constant", call="tail_of_dw"),
    _report("K39h", "apple/ml-cross-entropy#14", "the same in bf16", tokens=32, hidden=32,
            vocab=8192, weight_scale=0.02, labels="constant", call="tail_of_dw",
            dtype="bfloat16", quick=True),
)  # fmt: skip
"""Ids as in the log of reported cases; h and n mark our own variations."""
