"""torch-compile-chunked: gradients in the forward, one compiled function per token chunk.

Source: the torch.compile recipes of the seed threads (linkedin/Liger-Kernel issue 227).
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..chunk_rules import even_chunk_rows
from ..errors import UnsupportedHere
from ..kernel_spec import ParamValue
from ..protocol import LossFunction, Reduction
from .torch_plain import loss_of_logits, upcast

ChunkFunction = Callable[..., tuple[tuple[Tensor, ...], Tensor]]


@dataclass(frozen=True)
class _Chunking:
    rows: int
    split: str
    compiled: ChunkFunction
    scaled: Callable[[Tensor, Tensor], Tensor]

    def rows_for(self, tokens: int) -> int:
        return even_chunk_rows(tokens, self.rows) if self.split == "even" else self.rows


@dataclass(frozen=True)
class _Options:
    """Options of the loss; hashable, so that they are constants to the compiler."""

    ignore_index: int
    label_smoothing: float
    softcap: float | None
    logit_scale: float | None


@dataclass(frozen=True)
class _Call:
    target: Tensor
    class_weight: Tensor | None
    options: _Options
    lse_square_scale: float
    reduction: Reduction
    chunking: _Chunking
    needs: tuple[bool, bool, bool]


def _chunk_loss(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    class_weight: Tensor | None,
    lse_square_scale: Tensor | None,
    options: _Options,
) -> Tensor:
    return loss_of_logits(
        upcast(F.linear(x, weight, bias)),
        target,
        class_weight=class_weight,
        ignore_index=options.ignore_index,
        label_smoothing=options.label_smoothing,
        softcap=options.softcap,
        logit_scale=options.logit_scale,
        lse_square_scale=0.0 if lse_square_scale is None else lse_square_scale,
        reduction="sum",
    )


def _chunk_gradients(  # noqa: PLR0913
    argnums: tuple[int, ...],
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    class_weight: Tensor | None,
    lse_square_scale: Tensor | None,
    options: _Options,
) -> tuple[tuple[Tensor, ...], Tensor]:
    """Gradients of the summed loss of one chunk for `argnums` of (x, weight, bias), and the sum."""
    loss = partial(
        _chunk_loss,
        target=target,
        class_weight=class_weight,
        lse_square_scale=lse_square_scale,
        options=options,
    )
    if not argnums:
        return (), loss(x, weight, bias)
    gradients, value = torch.func.grad_and_value(loss, argnums=argnums)(x, weight, bias)
    return gradients, value


def _denominators(call: _Call, wide: torch.dtype) -> tuple[Tensor | None, Tensor | None]:
    """Factor of the mean and scale of lse^2, on the device; None where they are 1 and 0."""
    valid = call.target != call.options.ignore_index
    count = valid.sum(dtype=wide).clamp(min=1)
    total = count
    if call.class_weight is not None:
        weights = call.class_weight.to(wide)[call.target.masked_fill(~valid, 0)]
        total = weights.masked_fill(~valid, 0.0).sum()
        total = torch.where(total > 0, total, torch.ones_like(total))
    squares = None
    if call.lse_square_scale:
        squares = torch.full_like(count, call.lse_square_scale)
        squares = squares * total / count if call.reduction == "mean" else squares
    return (1 / total if call.reduction == "mean" else None), squares


def _padded(tensor: Tensor, rows: int, value: int) -> Tensor:
    """Rows added up to the compiled size, so that a ragged end does not recompile."""
    missing = rows - tensor.shape[0]
    if missing <= 0:
        return tensor
    padding = (0, 0, 0, missing) if tensor.dim() == 2 else (0, missing)
    return F.pad(tensor, padding, value=value)


def _scaled(gradient: Tensor, scale: Tensor) -> Tensor:
    """gradient x scale in float32, rounded once; compiled, the wide product is never stored."""
    return (gradient.to(scale.dtype) * scale).to(gradient.dtype)


def own_copy(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with a code object of its own.

    torch.compile counts recompiles by code object and runs eager, silently, after eight: without
    this, contenders and cases of one process would use up each other's count.
    """
    return types.FunctionType(
        function.__code__.replace(),
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )


class _Chunked(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, input: Tensor, weight: Tensor, bias: Tensor | None, call: _Call
    ) -> Tensor:
        wide = torch.float64 if input.dtype is torch.float64 else torch.float32
        factor, squares = _denominators(call, wide)
        x, w = input.detach(), weight.detach()
        b = None if bias is None else bias.detach()
        argnums = tuple(index for index, needed in enumerate(call.needs) if needed)
        dx = torch.empty_like(x, memory_format=torch.contiguous_format) if call.needs[0] else None
        # dW is summed in its own dtype, as the published form does; db in float32: in bfloat16 it
        # was 8 % off over 128 chunks (H200, 32768 x 2048 x 128000, 2026-11-30), and it is small
        sums: dict[int, Tensor] = {
            index: torch.zeros_like(tensor, dtype=dtype)
            for index, tensor, dtype in ((1, w, w.dtype), (2, b, wide))
            if tensor is not None and call.needs[index]
        }
        loss = torch.zeros((), dtype=wide, device=x.device)
        rows = call.chunking.rows_for(x.shape[0])
        for start in range(0, x.shape[0], rows):
            part, labels = x[start : start + rows], call.target[start : start + rows]
            size = part.shape[0]
            gradients, value = call.chunking.compiled(
                argnums,
                _padded(part, rows, 0),
                w,
                b,
                _padded(labels, rows, call.options.ignore_index),
                call.class_weight,
                squares,
                call.options,
            )
            loss += value
            for index, gradient in zip(argnums, gradients, strict=True):
                if index == 0 and dx is not None:
                    dx[start : start + size] = gradient[:size]
                else:
                    sums[index] += gradient
        ctx.save_for_backward(dx, sums.get(1), sums.get(2), factor)
        ctx.scaled = call.chunking.scaled
        ctx.bias_dtype = None if b is None else b.dtype
        return loss if factor is None else loss * factor

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        dx, dw, db, factor = ctx.saved_tensors
        scale = upstream if factor is None else upstream * factor
        gradients = tuple(
            None if gradient is None else ctx.scaled(gradient, scale) for gradient in (dx, dw, db)
        )
        if gradients[2] is not None:
            gradients = (*gradients[:2], gradients[2].to(ctx.bias_dtype))
        return (*gradients, None)


def _linear_cross_entropy(  # noqa: PLR0913
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
    chunking: _Chunking,
) -> Tensor:
    if reduction == "none":
        raise UnsupportedHere("torch-compile-chunked has no reduction_none")
    enabled = torch.is_grad_enabled()
    needs = (
        enabled and input.requires_grad,
        enabled and weight.requires_grad,
        enabled and bias is not None and bias.requires_grad,
    )
    options = _Options(ignore_index, label_smoothing, softcap, logit_scale)
    call = _Call(target, class_weight, options, lse_square_scale, reduction, chunking, needs)
    loss: Tensor = _Chunked.apply(input, weight, bias, call)  # type: ignore[no-untyped-call]
    return loss


def build(version: str | None, params: Mapping[str, ParamValue]) -> LossFunction:
    """The contender with its own compiled function; it carries torch's version."""
    dynamic = params.get("dynamic")
    compiled = torch.compile(
        own_copy(_chunk_gradients),
        dynamic=None if dynamic is None else bool(dynamic),
        options={"shape_padding": bool(params.get("shape_padding", False))},
    )
    rows = params.get("chunk_rows")
    chunking = _Chunking(
        1024 if rows is None else int(rows),
        str(params.get("split", "fixed")),
        compiled,
        torch.compile(own_copy(_scaled), dynamic=False),
    )
    return partial(_linear_cross_entropy, chunking=chunking)
