"""The public call of version 2."""

from __future__ import annotations

from typing import Literal, overload

import torch
from torch import Tensor

from ...protocol import Reduction
from ..arguments import check_labels, check_numbers, check_shapes, product_dtype
from ..rows import RowOptions
from ..v1.op import linear_cross_entropy as version_1
from .op import Metrics, Tuning, apply, call_of
from .plan import Workspace


@overload
def linear_cross_entropy(
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
    workspace: Workspace = "fast",
    compact: bool = False,
    with_metrics: Literal[False] = False,
    tuning: Tuning | None = None,
) -> Tensor: ...


@overload
def linear_cross_entropy(
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
    workspace: Workspace = "fast",
    compact: bool = False,
    with_metrics: Literal[True],
    tuning: Tuning | None = None,
) -> tuple[Tensor, Metrics]: ...


def linear_cross_entropy(  # noqa: PLR0913
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
    workspace: Workspace = "fast",
    compact: bool = False,
    with_metrics: bool = False,
    tuning: Tuning | None = None,
) -> Tensor | tuple[Tensor, Metrics]:
    """Cross entropy of `logit_scale * (input @ weight.T + bias)` without keeping the logits.

    input (..., H), weight (V, H), target (...) integers in [0, V) or `ignore_index`, bias (V,);
    bf16, fp16, fp32 or fp64, one dtype unless autocast is on; class_weight (V,). Options as in
    version 1 (docs/kernels/flce.md).
    workspace: what the call may take beside inputs and outputs: "fast", "lean", or bytes. fp16
    keeps its gradients in float32 for the loss scale, whatever the workspace.
    compact: leave ignored tokens out before the products; reads one number from the device.
    with_metrics: also return `Metrics`; not for fp16.

    Returns: float32 (float64 for fp64) scalar, or the shape of target for "none". A mean without a
    valid label is 0 with zero gradients. On a GPU a label out of range makes the loss NaN.
    Raises: ValueError naming the argument; on the CPU also for a label out of range.
    Cost: `lossbench.kernels.flce.make_plan` says what a call takes and how long it may run.
    """
    options = RowOptions(ignore_index, label_smoothing, softcap, logit_scale)
    check_numbers(options, lse_square_scale, reduction)
    check_shapes(input, weight, target, bias, class_weight)
    check_workspace(workspace)
    dtype = product_dtype(input, weight, bias)
    check_labels(target, ignore_index, weight.shape[0])
    tensors, summed = (input, weight, bias), (lse_square_scale, reduction)
    if dtype is torch.float16:
        return in_version_1(tensors, target, class_weight, options, summed, with_metrics)
    rows = (target.reshape(-1) != ignore_index).nonzero()[:, 0] if compact else None
    labels = _chosen(target.reshape(-1), rows)
    flat = (_chosen(input.reshape(-1, input.shape[-1]), rows), weight, bias)
    how = tuning or Tuning(workspace)
    call = call_of(flat, labels, class_weight, options, summed, how, dtype)
    loss, metrics = apply(*flat, call)
    loss = _spread(loss, rows, target) if reduction == "none" else loss
    return (loss, metrics) if with_metrics else loss


def _chosen(tensor: Tensor, rows: Tensor | None) -> Tensor:
    return tensor if rows is None else tensor[rows]


def _spread(loss: Tensor, rows: Tensor | None, target: Tensor) -> Tensor:
    """Losses of the chosen rows in the shape of all labels; 0 for the others."""
    if rows is not None:
        loss = loss.new_zeros(target.numel()).index_put((rows,), loss)
    return loss.reshape(target.shape)


def in_version_1(
    tensors: tuple[Tensor, Tensor, Tensor | None],
    target: Tensor,
    class_weight: Tensor | None,
    options: RowOptions,
    summed: tuple[float, Reduction],
    with_metrics: bool,
) -> Tensor:
    """The same loss by version 1, which keeps float16 gradients in float32 for the loss scale."""
    if with_metrics:
        raise ValueError("with_metrics=True: not for float16; use bfloat16 or float32")
    input, weight, bias = tensors
    return version_1(
        input,
        weight,
        target,
        bias,
        class_weight=class_weight,
        ignore_index=options.ignore_index,
        label_smoothing=options.label_smoothing,
        softcap=options.softcap,
        logit_scale=options.logit_scale,
        lse_square_scale=summed[0],
        reduction=summed[1],
    )


def check_workspace(workspace: Workspace) -> None:
    """Raises: ValueError for what is neither "fast", "lean" nor a positive number of bytes."""
    number = isinstance(workspace, int) and not isinstance(workspace, bool) and workspace > 0
    if not number and workspace not in ("fast", "lean"):
        raise ValueError(f"workspace={workspace!r}: must be 'fast', 'lean' or bytes > 0")
