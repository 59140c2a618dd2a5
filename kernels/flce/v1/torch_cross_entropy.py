"""Row pass in plain torch: loss of each row, and dZ written over the logits.

    row = (1 - e) w_y (lse - z_y) + e/V sum_c w_c (lse - z_c) + s lse^2
    dz_c = [(1 - e) w_y + e/V sum w + 2 s lse] p_c - (1 - e) w_y [c = y] - e/V w_c

Cost: a float32 copy of half-precision logits.  Runs on any device, in any dtype, without a host
synchronisation.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..rows import RowOptions, RowTensors


def _cap(logits: Tensor, options: RowOptions) -> tuple[Tensor, Tensor | None]:
    """Scaled and capped logits, and d capped / d logits where it is not constant."""
    z = logits if options.logit_scale is None else logits * options.logit_scale
    if options.softcap is None:
        return z, None
    tanh = torch.tanh(z / options.softcap)
    return options.softcap * tanh, 1 - tanh.square()


def _row_weights(
    options: RowOptions, tensors: RowTensors, target: Tensor, like: Tensor
) -> tuple[Tensor, Tensor | float]:
    """(1 - e) w_y of each row, and the sum of w."""
    keep = 1 - options.label_smoothing
    if tensors.class_weight is None or tensors.class_weight_sum is None:
        return torch.full_like(like, keep), 0.0
    return keep * tensors.class_weight[target], tensors.class_weight_sum


def cross_entropy_in_place(
    logits: Tensor,
    target: Tensor,
    loss: Tensor,
    options: RowOptions,
    tensors: RowTensors,
    with_gradient: bool,
) -> None:
    """Write the loss of each row into `loss` and, if asked, dZ into `logits`.

    logits (rows, V); target (rows,) int64; loss (rows,) float32, or float64 for float64 logits.
    An ignored row has loss 0 and gradient 0; a label outside the vocabulary makes both NaN.
    """
    vocab = logits.shape[1]
    z, slope = _cap(logits.to(loss.dtype), options)
    ignored = target == options.ignore_index
    outside = ~ignored & ((target < 0) | (target >= vocab))
    index = target.masked_fill(ignored | outside, 0)[:, None]
    largest = z.amax(dim=1, keepdim=True)
    exponentials = torch.exp(z - largest)
    total = exponentials.sum(dim=1, keepdim=True)
    log_total = total.log()[:, 0]
    lse = log_total + largest[:, 0]
    to_target, weight_sum = _row_weights(options, tensors, index[:, 0], lse)
    row = to_target * (log_total - (z.gather(1, index)[:, 0] - largest[:, 0]))
    to_softmax = to_target
    smooth = options.label_smoothing / vocab
    if smooth:
        weighted = z.sum(1) if tensors.class_weight is None else z @ tensors.class_weight
        all_weights = float(vocab) if tensors.class_weight is None else weight_sum
        row = row + smooth * (all_weights * lse - weighted)
        to_softmax = to_softmax + smooth * all_weights
    if tensors.lse_square_scale is not None:
        row = row + tensors.lse_square_scale * lse.square()
        to_softmax = to_softmax + 2 * tensors.lse_square_scale * lse
    row = row.masked_fill(ignored, 0.0).masked_fill(outside, torch.nan)
    loss.copy_(row)
    if not with_gradient:
        return
    gradient = exponentials.div_(total).mul_(to_softmax[:, None])
    if smooth:
        gradient -= smooth if tensors.class_weight is None else smooth * tensors.class_weight
    gradient.scatter_add_(1, index, -to_target[:, None])
    if slope is not None:
        gradient *= slope
    gradient *= _factor(options, tensors, row)[:, None]
    gradient.masked_fill_(ignored[:, None], 0.0).masked_fill_(outside[:, None], torch.nan)
    logits.copy_(gradient)


def _factor(options: RowOptions, tensors: RowTensors, like: Tensor) -> Tensor:
    factor = torch.full_like(like, options.logit_scale or 1.0)
    if tensors.gradient_scale is not None:
        factor = factor * tensors.gradient_scale
    if tensors.row_scale is not None:
        factor = factor * tensors.row_scale
    return factor
