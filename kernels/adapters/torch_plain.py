"""torch-naive and torch-upcast: one product for the logits, then torch's own cross entropy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..kernel_spec import ParamValue
from ..protocol import LossFunction, Reduction


def loss_of_logits(  # noqa: PLR0913
    logits: Tensor,
    target: Tensor,
    *,
    class_weight: Tensor | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    softcap: float | None = None,
    logit_scale: float | None = None,
    lse_square_scale: float | Tensor = 0.0,
    reduction: Reduction = "mean",
) -> Tensor:
    """Torch's loss of logits (N, V) in their own dtype, with every option.

    A mean without a valid label is NaN with zero gradients, as torch has it.
    """
    if logit_scale is not None:
        logits = logits * logit_scale
    if softcap is not None:
        logits = softcap * torch.tanh(logits / softcap)
    loss = F.cross_entropy(
        logits,
        target,
        weight=None if class_weight is None else class_weight.to(logits.dtype),
        ignore_index=ignore_index,
        reduction=reduction,
        label_smoothing=label_smoothing,
    )
    if not isinstance(lse_square_scale, Tensor) and lse_square_scale == 0:
        return loss
    valid = target != ignore_index
    squares = lse_square_scale * torch.logsumexp(logits, dim=-1).square()
    squares = squares.masked_fill(~valid, 0.0)
    if reduction == "none":
        return loss + squares
    total = squares.sum()
    return loss + (total / valid.sum() if reduction == "mean" else total)


def upcast(logits: Tensor) -> Tensor:
    """Logits in at least float32."""
    return logits.float() if logits.dtype in (torch.bfloat16, torch.float16) else logits


def _naive(
    input: Tensor, weight: Tensor, target: Tensor, bias: Tensor | None = None, **options: Any
) -> Tensor:
    return loss_of_logits(F.linear(input, weight, bias), target, **options)


def _upcast(
    input: Tensor, weight: Tensor, target: Tensor, bias: Tensor | None = None, **options: Any
) -> Tensor:
    return loss_of_logits(upcast(F.linear(input, weight, bias)), target, **options)


def build_naive(version: str | None, params: Mapping[str, ParamValue]) -> LossFunction:
    """Logits stay in the input dtype. It carries torch's version and has no params."""
    return _naive


def build_upcast(version: str | None, params: Mapping[str, ParamValue]) -> LossFunction:
    """Half-precision logits are cast to float32. It carries torch's version and has no params."""
    return _upcast
