"""The right loss in plain torch, for the float64 truth of small checks.

Same definition as `kernels.reference`, but differentiable, so that any way of calling a contender
(two backwards, a tied weight, micro-batches) has a truth made by the same call.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..protocol import Reduction


def exact_loss(  # noqa: PLR0913
    input: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None = None,
    *,
    class_weight: Tensor | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    softcap: float | None = None,
    logit_scale: float | None = None,
    lse_square_scale: float = 0.0,
    reduction: Reduction = "mean",
) -> Tensor:
    """Loss () or (N,) in the dtype of the arguments: give float64. No valid row: loss 0.

    Cost: several copies of the N x V logits.
    """
    z = input @ weight.t()
    if bias is not None:
        z = z + bias
    if logit_scale is not None:
        z = z * logit_scale
    if softcap is not None:
        z = softcap * torch.tanh(z / softcap)
    valid = target != ignore_index
    safe = target.masked_fill(~valid, 0)
    lse = torch.logsumexp(z, dim=1)
    classes = torch.ones_like(weight[:, 0]) if class_weight is None else class_weight.to(z.dtype)
    own = classes[safe] * valid
    row = (1 - label_smoothing) * own * (lse - z.gather(1, safe[:, None])[:, 0])
    if label_smoothing:
        row = row + label_smoothing / z.shape[1] * (classes * (lse[:, None] - z)).sum(1) * valid
    square = lse_square_scale * lse.square() * valid
    if reduction == "none":
        return row + square
    if reduction == "sum":
        return row.sum() + square.sum()
    counted, rows = own.sum(), valid.sum()
    mean = row.sum() / torch.where(counted > 0, counted, torch.ones_like(counted))
    return mean + square.sum() / rows.clamp(min=1)
