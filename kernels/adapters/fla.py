"""fla: flash-linear-attention's fused linear cross entropy, gradients in the forward.

It computes both gradients whether they are needed or not, and it takes every reduction but "mean"
for a sum, so "none" is refused here. Source: fla/modules/fused_linear_cross_entropy of 0.6.0.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from torch import Tensor

from ..errors import UnsupportedHere
from ..kernel_spec import ParamValue
from ..protocol import LossFunction
from .interpreter_gaps import fill_tanh
from .loss_options import LossOptions

_MODULE = "fla.modules.fused_linear_cross_entropy"
_ROW_MODULES = ("fla.modules.fused_cross_entropy.ops", "fla.modules.fused_linear_cross_entropy.ops")
_HAS = frozenset({"bias", "label_smoothing", "logit_scale", "softcap", "reduction_sum"})


def _linear_cross_entropy(
    input: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None = None,
    *,
    function: Callable[..., Tensor],
    num_chunks: int,
    accumulate_grad_in_fp32: bool,
    **options: Any,
) -> Tensor:
    asked = LossOptions(bias, **options)
    asked.refuse_beyond("fla", _HAS)
    return function(
        input,
        target,
        weight,
        bias,
        ignore_index=asked.ignore_index,
        label_smoothing=asked.label_smoothing,
        logit_scale=1.0 if asked.logit_scale is None else asked.logit_scale,
        logit_softcapping=asked.softcap,
        num_chunks=num_chunks,
        reduction=asked.reduction,
        accumulate_grad_in_fp32=accumulate_grad_in_fp32,
    )


def build(version: str | None, params: Mapping[str, ParamValue]) -> LossFunction:
    """The release on the path as a contender; `version` is not looked at.

    Raises: UnsupportedHere if the package, or einops that it needs, does not import.
    """
    try:
        function = importlib.import_module(_MODULE).fused_linear_cross_entropy_loss
        for name in _ROW_MODULES:
            fill_tanh(importlib.import_module(name))
    except (ImportError, AttributeError) as error:
        raise UnsupportedHere(f"fla does not import here: {error}") from error
    return partial(
        _linear_cross_entropy,
        function=function,
        num_chunks=int(params.get("num_chunks") or 8),
        accumulate_grad_in_fp32=params.get("accumulate_grad_in_fp32") is not False,
    )
