"""quack: QuACK's chunked linear cross entropy, base and scaled-exp pipelines (CuTe DSL, Hopper).

Left to itself it takes the scaled-exp pipeline where it can; both are its own kernels. In 0.6.5 the
base pipeline fails where the rows of a chunk equal H: that is left as it is. Its path must hold a
folder named site-packages. Source: quack/linear_cross_entropy.py of 0.6.5.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import partial
from typing import Any

from torch import Tensor

from ..errors import UnsupportedHere
from ..kernel_spec import ParamValue
from ..protocol import LossFunction
from .loss_options import LossOptions

_HAS = frozenset({"reduction_sum"})


def _linear_cross_entropy(
    input: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None = None,
    *,
    module: Any,
    chunk_size: int,
    scaled_exp: bool | None,
    **options: Any,
) -> Tensor:
    asked = LossOptions(bias, **options)
    asked.refuse_beyond("quack", _HAS)
    able = module.scaled_exp_lce_supported(input, weight, chunk_size, asked.reduction)
    if scaled_exp and not able:
        raise UnsupportedHere("quack's scaled-exp needs sm_90, bfloat16, V % 128 and chunks % 128")
    if (scaled_exp is False or not able) and (input.shape[0] % 8 or chunk_size % 8):
        raise UnsupportedHere("quack's base pipeline needs N % 8 == 0 and chunk_size % 8 == 0")
    loss: Tensor = module.chunked_linear_cross_entropy(
        input,
        weight,
        target,
        chunk_size=chunk_size,
        ignore_index=asked.ignore_index,
        reduction=asked.reduction,
        use_scaled_exp=scaled_exp,
    )
    return loss


def build(version: str | None, params: Mapping[str, ParamValue]) -> LossFunction:
    """The release on the path as a contender; `version` is not looked at.

    Raises: UnsupportedHere if the package, or the CuTe DSL that it needs, does not import.
    """
    try:
        module = importlib.import_module("quack.linear_cross_entropy")
        _ = module.chunked_linear_cross_entropy, module.scaled_exp_lce_supported
    except (ImportError, AttributeError) as error:
        raise UnsupportedHere(f"quack does not import here: {error}") from error
    scaled_exp = params.get("scaled_exp")
    return partial(
        _linear_cross_entropy,
        module=module,
        chunk_size=int(params.get("chunk_size") or 4096),
        scaled_exp=None if scaled_exp is None else bool(scaled_exp),
    )
