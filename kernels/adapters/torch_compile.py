"""torch-compile: the upcast path compiled whole.

`fullgraph`: a graph break, or more recompiles than the compiler allows (eight), is an error. Else
torch would go on eager, silently, and pass for the compiled kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._dynamo.exc import FailOnRecompileLimitHit

from ..errors import UnsupportedHere
from ..kernel_spec import ParamValue
from ..protocol import LossFunction
from .loss_options import LossOptions
from .torch_compile_chunked import own_copy
from .torch_plain import loss_of_logits, upcast


def _whole(
    x: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None,
    class_weight: Tensor | None,
    options: LossOptions,
) -> Tensor:
    return loss_of_logits(
        upcast(F.linear(x, weight, bias)),
        target,
        class_weight=class_weight,
        ignore_index=options.ignore_index,
        label_smoothing=options.label_smoothing,
        softcap=options.softcap,
        logit_scale=options.logit_scale,
        lse_square_scale=options.lse_square_scale,
        reduction=options.reduction,
    )


def _linear_cross_entropy(
    input: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None = None,
    *,
    compiled: Callable[..., Tensor],
    class_weight: Tensor | None = None,
    **options: Any,
) -> Tensor:
    try:
        return compiled(input, weight, target, bias, class_weight, LossOptions(**options))
    except FailOnRecompileLimitHit as error:
        limit = torch._dynamo.config.recompile_limit
        raise UnsupportedHere(
            f"torch.compile gives up after {limit} recompiles and would run eager from here on"
        ) from error


def build(version: str | None, params: Mapping[str, ParamValue]) -> LossFunction:
    """The contender with its own compiled function; it carries torch's version."""
    dynamic = params.get("dynamic")
    compiled = torch.compile(
        own_copy(_whole), fullgraph=True, dynamic=None if dynamic is None else bool(dynamic)
    )
    return partial(_linear_cross_entropy, compiled=compiled)
