"""Fused linear cross entropy with a chosen workspace, its gradients final in the forward.

    loss = cross_entropy(softcap tanh(logit_scale (x W^T + b) / softcap), target)

For "mean" and "sum" dX and dW are made and rounded once in the forward. The backward hands them
out: where the graph is not kept they are scaled in place by the upstream gradient, on the device
and only if it is not 1; where it is kept, copies are scaled. For "none" the backward makes the
gradients, since every row has its own upstream gradient.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from ...protocol import Reduction
from ..rows import RowOptions, RowTensors
from .plan import Plan, Sizes, Workspace, make_plan
from .results import RowResults
from .run import (
    Gradients,
    Operands,
    accumulation_dtype,
    run,
    scale_in_place,
    with_row_scale,
)

Cast = Literal["inside", "outside"]


class Metrics(NamedTuple):
    """Beside the loss, on its device and without gradient; over rows with a valid label.

    z_loss: the part of the loss that `lse_square_scale` makes, reduced like it. token_accuracy: the
    share of tokens of whose classes none has a larger logit than the label; 0 where none is valid.
    """

    z_loss: Tensor
    token_accuracy: Tensor


@dataclass(frozen=True)
class Tuning:
    """Settings that change how a call runs and not what it means."""

    workspace: Workspace = "fast"
    chunk_rows: int | None = None
    block: int | None = None
    accum_dtype: torch.dtype = torch.float32
    cast: Cast = "inside"


@dataclass(frozen=True)
class _Call:
    """Everything but the differentiable tensors."""

    target: Tensor
    class_weight: Tensor | None
    options: RowOptions
    lse_square_scale: float
    reduction: Reduction
    tuning: Tuning
    dtype: torch.dtype
    wants: tuple[bool, bool, bool]


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
    weights = class_weight[call.target.clamp(0, class_weight.shape[0] - 1)].double()
    total = torch.where(valid, weights, torch.zeros_like(weights)).sum().reshape(1)
    return _inverse(total).to(wide), (total * _inverse(count)).to(wide)


def plan_of(sizes: Sizes, tuning: Tuning) -> Plan:
    """The plan of the workspace, or the one that `chunk_rows` and `block` spell out."""
    if tuning.chunk_rows is None and tuning.block is None:
        return make_plan(sizes, tuning.workspace)
    rows = max(1, min(tuning.chunk_rows or sizes.tokens, sizes.tokens))
    if tuning.block is not None:
        return Plan("two sweeps", sizes, rows, min(tuning.block, sizes.vocab))
    return Plan("one pass" if rows >= sizes.tokens else "token chunks", sizes, rows)


def _operands(
    call: _Call,
    tensors: tuple[Tensor, Tensor, Tensor | None],
    wants: tuple[bool, bool, bool],
) -> tuple[Operands, Tensor | None]:
    """Operands of the plan, and the factor (1,) of a mean; None for other reductions."""
    input, weight, bias = tensors
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
    row_tensors = RowTensors(
        class_weight,
        None if class_weight is None else class_weight.sum().reshape(1),
        lse_square_scale,
        factor,
    )
    dx, dw, db = wants
    sizes = Sizes(input.shape[0], input.shape[1], weight.shape[0], call.dtype.itemsize, dx, dw)
    operands = Operands(
        input.detach().to(call.dtype),
        weight.detach().to(call.dtype),
        call.target,
        None if bias is None else bias.detach().to(call.dtype),
        call.options,
        row_tensors,
        plan_of(sizes, call.tuning),
        db,
        call.tuning.accum_dtype,
        call.tuning.cast == "outside",
    )
    return operands, factor


def _metrics(call: _Call, results: RowResults, factor: Tensor | None, scale: Tensor | None) -> Any:
    """z_loss and token_accuracy."""
    squares = results.lse.square()
    z_loss = squares.new_zeros(squares.shape) if scale is None else squares * scale
    if call.reduction != "none":
        z_loss = z_loss.sum() if factor is None else z_loss.sum() * factor[0]
    valid = (call.target != call.options.ignore_index).sum(dtype=results.hit.dtype)
    return z_loss, results.hit.sum() * _inverse(valid)


def _refuse_second_derivative() -> None:
    """Grad mode is on in a backward only for create_graph=True, whose result would lack a term."""
    if torch.is_grad_enabled():
        raise RuntimeError("linear_cross_entropy has no second derivative (create_graph=True)")


def _keeps_graph() -> bool:
    """Whether this backward may run again: then what is saved must stay as it is."""
    asked = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", None)
    return True if asked is None else bool(asked())


def _handed_out(gradient: Tensor | None, scale: Tensor, dtype: torch.dtype | None) -> Tensor | None:
    """The saved gradient times the upstream one, in the dtype of its tensor."""
    if gradient is None or dtype is None:
        return None
    if gradient.dtype != dtype:
        return (gradient.to(scale.dtype) * scale).to(dtype)
    out = gradient.clone() if _keeps_graph() else gradient
    scale_in_place(out, scale)
    return out


Dtypes = tuple[torch.dtype, torch.dtype, torch.dtype | None]


class _Reduced(torch.autograd.Function):
    """reduction "mean" or "sum": gradients in the forward."""

    @staticmethod
    def forward(
        ctx: Any, input: Tensor, weight: Tensor, bias: Tensor | None, call: _Call
    ) -> tuple[Tensor, Tensor, Tensor]:
        with torch.autocast(input.device.type, enabled=False):
            operands, factor = _operands(call, (input, weight, bias), call.wants)
            results, gradients = run(operands)
            metrics = _metrics(call, results, factor, operands.tensors.lse_square_scale)
        ctx.dtypes = (input.dtype, weight.dtype, None if bias is None else bias.dtype)
        ctx.save_for_backward(gradients.dx, gradients.dw, gradients.db)
        ctx.mark_non_differentiable(*metrics)
        total = results.loss.sum()
        return (total if factor is None else total * factor[0], *metrics)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        _refuse_second_derivative()
        scale = upstream.reshape(1)
        saved = zip(ctx.saved_tensors, ctx.dtypes, strict=True)
        return (*(_handed_out(gradient, scale, dtype) for gradient, dtype in saved), None)


def _without_tensors(call: _Call) -> _Call:
    """What a context may hold: a tensor kept there could change before the backward, unseen."""
    return replace(call, target=call.target.new_empty(0), class_weight=None)


class _PerToken(torch.autograd.Function):
    """reduction "none": the backward recomputes, with each row's own upstream gradient."""

    @staticmethod
    def forward(
        ctx: Any, input: Tensor, weight: Tensor, bias: Tensor | None, call: _Call
    ) -> tuple[Tensor, Tensor, Tensor]:
        with torch.autocast(input.device.type, enabled=False):
            operands, factor = _operands(call, (input, weight, bias), (False, False, False))
            results, _ = run(operands)
            metrics = _metrics(call, results, factor, operands.tensors.lse_square_scale)
        ctx.call = _without_tensors(call)
        ctx.save_for_backward(input, weight, bias, call.target, call.class_weight)
        ctx.mark_non_differentiable(*metrics)
        return (results.loss, *metrics)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor, *of_metrics: Tensor) -> tuple[Tensor | None, ...]:
        _refuse_second_derivative()
        input, weight, bias, target, class_weight = ctx.saved_tensors
        call: _Call = replace(ctx.call, target=target, class_weight=class_weight)
        with torch.autocast(input.device.type, enabled=False):
            operands, _ = _operands(call, (input, weight, bias), call.wants)
            # A contiguous copy: upstream of `.sum()` has stride 0.
            rows = upstream.to(accumulation_dtype(call.dtype)).contiguous()
            _, gradients = run(with_row_scale(operands, rows))
        return (*_in_dtypes(gradients, input, weight, bias), None)


def _in_dtypes(
    gradients: Gradients, input: Tensor, weight: Tensor, bias: Tensor | None
) -> tuple[Tensor | None, ...]:
    pairs = ((gradients.dx, input), (gradients.dw, weight), (gradients.db, bias))
    return tuple(
        None if gradient is None or like is None else gradient.to(like.dtype)
        for gradient, like in pairs
    )


def call_of(
    tensors: tuple[Tensor, Tensor, Tensor | None],
    target: Tensor,
    class_weight: Tensor | None,
    options: RowOptions,
    summed: tuple[float, Reduction],
    tuning: Tuning,
    dtype: torch.dtype,
) -> _Call:
    """What `apply` needs beside the tensors that may take a gradient.

    `summed`: scale of the z-loss, and the reduction.
    """
    enabled = torch.is_grad_enabled()
    dx, dw, db = (enabled and tensor is not None and tensor.requires_grad for tensor in tensors)
    labels = target.to(torch.int64).contiguous()
    return _Call(labels, class_weight, options, *summed, tuning, dtype, (dx, dw, db))


def apply(flat: Tensor, weight: Tensor, bias: Tensor | None, call: _Call) -> tuple[Tensor, Metrics]:
    """Loss and metrics of flat tokens."""
    function = _PerToken if call.reduction == "none" else _Reduced
    loss, z_loss, accuracy = function.apply(flat, weight, bias, call)  # type: ignore[no-untyped-call]
    return loss, Metrics(z_loss, accuracy)
