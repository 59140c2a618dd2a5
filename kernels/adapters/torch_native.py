"""torch-native: torch.nn.functional.linear_cross_entropy on its chunked path.

An options object is always passed, for without one it is the plain path. Where torch leaves the
chunked path it warns; here that is UnsupportedHere: a fallback never passes for the kernel.
Source: torch/nn/modules/linear_cross_entropy.py of torch 2.13.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import UnsupportedHere
from ..kernel_spec import ParamValue
from ..protocol import LossFunction
from .loss_options import LossOptions

_HAS = frozenset({"bias", "class_weight", "label_smoothing", "reduction_sum", "reduction_none"})
"""What its signature has. Label smoothing takes the plain path in torch 2.13, with a warning."""


def _linear_cross_entropy(
    input: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None = None,
    *,
    chunking: Any,
    **options: Any,
) -> Tensor:
    asked = LossOptions(bias, **options)
    asked.refuse_beyond("torch-native", _HAS)
    if chunking.acc_dtype is torch.float32 and input.dtype is torch.float64:
        raise UnsupportedHere("torch-native does not sum float64 in float32")
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="linear_cross_entropy")
        try:
            loss: Tensor = F.linear_cross_entropy(
                input,
                weight,
                target,
                linear_bias=bias,
                weight=asked.class_weight,
                reduction=asked.reduction,
                ignore_index=asked.ignore_index,
                label_smoothing=asked.label_smoothing,
                options=chunking,
            )
        except UserWarning as warning:
            raise UnsupportedHere(f"torch-native leaves its chunked path: {warning}") from warning
    return loss


def build(version: str | None, params: Mapping[str, ParamValue]) -> LossFunction:
    """The call with one set of options; it carries torch's version.

    Raises: UnsupportedHere if this torch lacks the function or refuses the options.
    """
    settings: Any = getattr(torch.nn, "LinearCrossEntropyOptions", None)
    if settings is None or not hasattr(F, "linear_cross_entropy"):
        raise UnsupportedHere(f"torch {torch.__version__} has no chunked linear_cross_entropy")
    accum_dtype = params.get("accum_dtype")
    try:
        chunking = settings(
            acc_policy=params.get("acc_policy", "auto"),
            acc_dtype=None if accum_dtype is None else getattr(torch, str(accum_dtype)),
            batch_chunk_size=params.get("chunk_rows"),
        )
    except (TypeError, ValueError) as error:
        raise UnsupportedHere(f"torch {torch.__version__} refuses its options: {error}") from error
    return partial(_linear_cross_entropy, chunking=chunking)
