"""cce: Apple's cut cross entropy, its Triton implementation; logits are never stored.

The PyPI releases have no bias; a git form whose function has one gets it. A float16 or bfloat16
input only: its backward asserts it. Source: cut_cross_entropy/cce.py of 25.1.1.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..errors import UnsupportedHere
from ..kernel_spec import ParamValue
from ..protocol import LossFunction
from .loss_options import LossOptions

_HAS = frozenset({"softcap", "reduction_sum", "reduction_none"})


def _linear_cross_entropy(
    input: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None = None,
    *,
    function: Callable[..., Tensor],
    has_bias: bool,
    filter_eps: str | None,
    **options: Any,
) -> Tensor:
    asked = LossOptions(bias, **options)
    asked.refuse_beyond("this release of cce", _HAS | ({"bias"} if has_bias else set()))
    if input.dtype not in (torch.bfloat16, torch.float16):
        raise UnsupportedHere(f"cce's backward does not take {input.dtype}")
    return function(
        input,
        weight,
        target,
        ignore_index=asked.ignore_index,
        softcap=asked.softcap,
        reduction=asked.reduction,
        filter_eps=filter_eps,
        impl="cce",
        **({} if bias is None else {"bias": bias}),
    )


def build(version: str | None, params: Mapping[str, ParamValue]) -> LossFunction:
    """The release on the path as a contender; `version` is not looked at.

    Raises: UnsupportedHere if the package does not import.
    """
    try:
        function = importlib.import_module("cut_cross_entropy").linear_cross_entropy
    except (ImportError, AttributeError) as error:
        raise UnsupportedHere(f"cce does not import here: {error}") from error
    filter_eps = params.get("filter_eps", "high")
    return partial(
        _linear_cross_entropy,
        function=function,
        has_bias="bias" in inspect.signature(function).parameters,
        filter_eps=None if filter_eps is None else str(filter_eps),
    )
