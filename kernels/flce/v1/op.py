"""Fused linear cross entropy that never keeps the logits of more than one chunk.

    loss = cross_entropy(softcap tanh(logit_scale (x W^T + b) / softcap), target)

For "mean" and "sum" the gradients are made in the forward, chunk by chunk, and scaled by the
upstream gradient in the backward; for "none" the backward recomputes the logits, since every row
has its own upstream gradient.  Source: mgmalek/efficient_cross_entropy (gradient in forward).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ...protocol import Reduction
from ..arguments import check_labels, check_numbers, check_shapes, product_dtype
from ..rows import RowOptions, RowTensors
from .chunks import (
    Gradients,
    Operands,
    Wanted,
    accumulation_dtype,
    run_chunks,
    scaled,
    with_row_scale,
)
from .plan import make_plan


@dataclass(frozen=True)
class _Call:
    """Everything but the differentiable tensors."""

    target: Tensor
    class_weight: Tensor | None
    options: RowOptions
    lse_square_scale: float
    reduction: Reduction
    chunk_rows: int | None
    dtype: torch.dtype
    wanted: Wanted


def _inverse(count: Tensor) -> Tensor:
    """1 / count, and 0 where nothing was counted; stays on the device."""
    return torch.where(count > 0, 1 / count, torch.zeros_like(count))


def _denominators(call: _Call, class_weight: Tensor | None) -> tuple[Tensor, Tensor]:
    """1 / (sum of the targets' weights) and (that sum) / (valid rows), each (1,)."""
    wide = accumulation_dtype(call.dtype)
    valid = call.target != call.options.ignore_index
    count = valid.sum(dtype=torch.float64).reshape(1)
    if class_weight is None:
        return _inverse(count).to(wide), torch.ones_like(count, dtype=wide)
    # The clamp keeps labels out of range readable here; the row pass poisons them.
    vocab = class_weight.shape[0]
    weights = class_weight[call.target.clamp(0, vocab - 1)].double()
    total = torch.where(valid, weights, torch.zeros_like(weights)).sum().reshape(1)
    return _inverse(total).to(wide), (total * _inverse(count)).to(wide)


def _operands(
    call: _Call, input: Tensor, weight: Tensor, bias: Tensor | None
) -> tuple[Operands, Tensor | None]:
    """Operands of the row pass, and the factor (1,) of a mean; None for other reductions."""
    wide = accumulation_dtype(call.dtype)
    class_weight = None if call.class_weight is None else call.class_weight.to(wide).contiguous()
    factor = lse_square_scale = None
    if call.lse_square_scale:
        lse_square_scale = torch.full(
            (1,), call.lse_square_scale, dtype=wide, device=call.target.device
        )
    if call.reduction == "mean":
        factor, weight_per_row = _denominators(call, class_weight)
        # The z-loss is a mean over valid rows whatever the class weights.
        lse_square_scale = None if lse_square_scale is None else lse_square_scale * weight_per_row
    # In float16, 1/N folded into dZ would underflow: there the factor waits for the backward.
    folded = None if call.dtype is torch.float16 else factor
    tensors = RowTensors(
        class_weight,
        None if class_weight is None else class_weight.sum().reshape(1),
        lse_square_scale,
        folded,
    )
    tokens, hidden = input.shape
    plan = make_plan(tokens, hidden, weight.shape[0], call.dtype, call.chunk_rows)
    operands = Operands(
        input.detach().to(call.dtype),
        weight.detach().to(call.dtype),
        call.target,
        None if bias is None else bias.detach().to(call.dtype),
        call.options,
        tensors,
        plan,
    )
    return operands, factor


def _grads(
    gradients: Gradients, scale: Tensor, like: tuple[torch.dtype, torch.dtype, torch.dtype | None]
) -> tuple[Tensor | None, ...]:
    return tuple(
        None if gradient is None or dtype is None else scaled(gradient, scale, dtype)
        for gradient, dtype in zip((gradients.dx, gradients.dw, gradients.db), like, strict=True)
    )


def _refuse_second_derivative() -> None:
    """Grad mode is on in a backward only for create_graph=True, whose result would lack a term."""
    if torch.is_grad_enabled():
        raise RuntimeError("linear_cross_entropy has no second derivative (create_graph=True)")


class _Reduced(torch.autograd.Function):
    """reduction "mean" or "sum": gradients in the forward."""

    @staticmethod
    def forward(
        ctx: Any, input: Tensor, weight: Tensor, bias: Tensor | None, call: _Call
    ) -> Tensor:
        with torch.autocast(input.device.type, enabled=False):
            operands, factor = _operands(call, input, weight, bias)
            rows, gradients = run_chunks(operands, call.wanted)
        ctx.dtypes = (input.dtype, weight.dtype, None if bias is None else bias.dtype)
        late = factor if call.dtype is torch.float16 else None
        ctx.save_for_backward(gradients.dx, gradients.dw, gradients.db, late)
        total = rows.sum()
        return total if factor is None else total * factor[0]

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        _refuse_second_derivative()
        dx, dw, db, late = ctx.saved_tensors
        scale = upstream.reshape(1)
        scale = scale if late is None else scale * late
        return (*_grads(Gradients(dx, dw, db), scale, ctx.dtypes), None)


def _without_tensors(call: _Call) -> _Call:
    """What a context may hold: a tensor kept there could change before the backward, unseen."""
    return replace(call, target=call.target.new_empty(0), class_weight=None)


class _PerToken(torch.autograd.Function):
    """reduction "none": the backward recomputes, with each row's own upstream gradient."""

    @staticmethod
    def forward(
        ctx: Any, input: Tensor, weight: Tensor, bias: Tensor | None, call: _Call
    ) -> Tensor:
        with torch.autocast(input.device.type, enabled=False):
            operands, _ = _operands(call, input, weight, bias)
            rows, _ = run_chunks(operands, Wanted(False, False, False))
        ctx.call = _without_tensors(call)
        ctx.save_for_backward(input, weight, bias, call.target, call.class_weight)
        return rows

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        _refuse_second_derivative()
        input, weight, bias, target, class_weight = ctx.saved_tensors
        call: _Call = replace(ctx.call, target=target, class_weight=class_weight)
        with torch.autocast(input.device.type, enabled=False):
            operands, _ = _operands(call, input, weight, bias)
            # A contiguous copy: upstream of `.sum()` has stride 0.
            rows = upstream.to(accumulation_dtype(call.dtype)).contiguous()
            scale = torch.ones(1, dtype=rows.dtype, device=rows.device)
            if call.dtype is torch.float16 and rows.numel():
                # Rows scaled to at most 1, so that a small upstream does not underflow in dZ.
                largest = rows.abs().amax().reshape(1)
                scale = torch.where(largest > 0, largest, scale)
                rows = rows / scale
            _, gradients = run_chunks(with_row_scale(operands, rows), call.wanted)
        dtypes = (input.dtype, weight.dtype, None if bias is None else bias.dtype)
        return (*_grads(gradients, scale, dtypes), None)


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
    chunk_rows: int | None = None,
) -> Tensor:
    """Cross entropy of `logit_scale * (input @ weight.T + bias)` without keeping the logits.

    input (..., H), weight (V, H), target (...) integers in [0, V) or `ignore_index`, bias (V,);
    bf16, fp16, fp32 or fp64, all of one dtype unless autocast is on. class_weight (V,).
    label_smoothing in [0, 1); softcap > 0: logits become softcap * tanh(logits / softcap);
    lse_square_scale: z-loss, adds scale * logsumexp^2 to each valid row; reduction "none", "mean"
    (over valid rows; with class weights over their sum) or "sum"; chunk_rows: tokens per chunk.

    Returns: float32 (float64 for fp64) scalar, or the shape of target for "none". A mean without a
    valid label is 0 with zero gradients. On a GPU a label out of range makes the loss NaN.
    Raises: ValueError naming the argument; on the CPU also for a label out of range.
    Cost: 3 products, 4 for "none"; one chunk of logits, 4VH bytes more for several chunks. A bf16
    dW of a single chunk is rounded once more by an upstream gradient that is no power of two.
    Source: see the module docstring.
    """
    options = RowOptions(ignore_index, label_smoothing, softcap, logit_scale)
    check_numbers(options, lse_square_scale, reduction, chunk_rows)
    check_shapes(input, weight, target, bias, class_weight)
    dtype = product_dtype(input, weight, bias)
    flat_target = target.reshape(-1).to(torch.int64).contiguous()
    check_labels(flat_target, ignore_index, weight.shape[0])
    enabled = torch.is_grad_enabled()
    wanted = Wanted(
        enabled and input.requires_grad,
        enabled and weight.requires_grad,
        enabled and bias is not None and bias.requires_grad,
    )
    call = _Call(
        flat_target, class_weight, options, lse_square_scale, reduction, chunk_rows, dtype, wanted
    )
    function = _PerToken if reduction == "none" else _Reduced
    flat = input.reshape(-1, input.shape[-1]) if input.dim() != 2 else input
    loss: Tensor = function.apply(flat, weight, bias, call)  # type: ignore[no-untyped-call]
    return loss.reshape(target.shape) if reduction == "none" else loss
