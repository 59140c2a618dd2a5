"""Row passes in plain torch, for any device and dtype; the same functions as `triton_launch`.

Formulas: `triton_parts`. Cost: a float32 copy of half-precision logits. No host synchronisation.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..rows import RowOptions, RowTensors
from .results import RowResults


def _cap(logits: Tensor, options: RowOptions) -> tuple[Tensor, Tensor | None]:
    """Scaled and capped logits, and d capped / d scaled where it is not constant."""
    z = logits if options.logit_scale is None else logits * options.logit_scale
    if options.softcap is None:
        return z, None
    tanh = torch.tanh(z / options.softcap)
    return options.softcap * tanh, 1 - tanh.square()


def _inside(target: Tensor, options: RowOptions, vocab: int) -> tuple[Tensor, Tensor, Tensor]:
    """Which rows are ignored, which have a label that is no class, and labels safe to read with."""
    ignored = target == options.ignore_index
    outside = ~ignored & ((target < 0) | (target >= vocab))
    return ignored, outside, target.masked_fill(ignored | outside, 0)


def _to_target(options: RowOptions, tensors: RowTensors, label: Tensor, like: Tensor) -> Tensor:
    """(1 - e) w_y of each row."""
    keep = 1 - options.label_smoothing
    if tensors.class_weight is None:
        return torch.full_like(like, keep)
    return keep * tensors.class_weight[label]


def _weight_sum(tensors: RowTensors, vocab: int) -> Tensor | float:
    return float(vocab) if tensors.class_weight_sum is None else tensors.class_weight_sum


def write_loss(
    logits: Tensor,
    target: Tensor,
    results: RowResults,
    options: RowOptions,
    tensors: RowTensors,
    with_gradient: bool,
) -> None:
    """Loss, log-sum-exp and hit of each row into `results`; if asked, dZ over `logits`.

    logits (rows, V); target (rows,) int64. An ignored row gives 0 everywhere; a label outside the
    vocabulary makes loss and dZ NaN.
    """
    vocab = logits.shape[1]
    z, _ = _cap(logits.to(results.loss.dtype), options)
    ignored, outside, label = _inside(target, options, vocab)
    largest = z.amax(dim=1)
    log_total = torch.exp(z - largest[:, None]).sum(dim=1).log()
    lse = largest + log_total
    z_target = z.gather(1, label[:, None])[:, 0]
    row = _to_target(options, tensors, label, lse) * (log_total - (z_target - largest))
    if options.label_smoothing:
        weighted = z.sum(1) if tensors.class_weight is None else z @ tensors.class_weight
        smooth = options.label_smoothing / vocab
        row = row + smooth * (_weight_sum(tensors, vocab) * lse - weighted)
    if tensors.lse_square_scale is not None:
        row = row + tensors.lse_square_scale * lse.square()
    results.loss.copy_(row.masked_fill(ignored, 0.0).masked_fill(outside, torch.nan))
    results.lse.copy_(lse.masked_fill(ignored, 0.0))
    results.hit.copy_((z_target >= largest).masked_fill(ignored, False))
    if with_gradient:
        write_gradient(logits, target, results.lse, options, tensors, slice(0, vocab))


def write_gradient(
    logits: Tensor,
    target: Tensor,
    lse: Tensor,
    options: RowOptions,
    tensors: RowTensors,
    columns: slice,
    vocab: int | None = None,
) -> None:
    """dZ over `logits` (rows, columns of these classes) from each row's log-sum-exp.

    `vocab`: V where the columns are a block of it.
    """
    vocab = logits.shape[1] if vocab is None else vocab
    z, slope = _cap(logits.to(lse.dtype), options)
    ignored, outside, label = _inside(target, options, vocab)
    to_target = _to_target(options, tensors, label, lse)
    to_softmax = to_target
    smooth = options.label_smoothing / vocab
    if smooth:
        to_softmax = to_softmax + smooth * _weight_sum(tensors, vocab)
    if tensors.lse_square_scale is not None:
        to_softmax = to_softmax + 2 * tensors.lse_square_scale * lse
    gradient = torch.exp(z - lse[:, None]).mul_(to_softmax[:, None])
    if smooth:
        weight = tensors.class_weight
        gradient -= smooth if weight is None else smooth * weight[columns]
    here = (label >= columns.start) & (label < columns.stop)
    at = (label - columns.start).masked_fill(~here, 0)[:, None]
    gradient.scatter_add_(1, at, -to_target.masked_fill(~here, 0.0)[:, None])
    if slope is not None:
        gradient *= slope
    factor = torch.full_like(lse, options.logit_scale or 1.0)
    for scale in (tensors.gradient_scale, tensors.row_scale):
        factor = factor if scale is None else factor * scale
    gradient *= factor[:, None]
    gradient.masked_fill_(ignored[:, None], 0.0).masked_fill_(outside[:, None], torch.nan)
    logits.copy_(gradient)


def scale_in_place(gradient: Tensor, scale: Tensor) -> None:
    """gradient x scale, rounded once."""
    gradient.copy_(gradient.to(scale.dtype) * scale)
