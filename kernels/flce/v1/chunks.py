"""Token chunks: logits by a product, the row pass in place, dX and dW by products."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..rows import RowOptions, RowTensors
from . import torch_cross_entropy
from .plan import Plan

try:
    import triton

    from . import triton_cross_entropy
except ImportError:  # Triton ships only for Linux.
    triton_cross_entropy = None  # type: ignore[assignment]

_TRITON_DTYPES = (torch.bfloat16, torch.float16, torch.float32)


@dataclass(frozen=True)
class Operands:
    """Detached tensors of one call in the dtype of the products.

    x (N, H), weight (V, H), target (N,) int64 contiguous, bias (V,) or None.
    """

    x: Tensor
    weight: Tensor
    target: Tensor
    bias: Tensor | None
    options: RowOptions
    tensors: RowTensors
    plan: Plan


@dataclass(frozen=True)
class Wanted:
    """Which gradients to make."""

    dx: bool
    dw: bool
    db: bool

    @property
    def any(self) -> bool:
        """Whether the row pass must write dZ at all."""
        return self.dx or self.dw or self.db


@dataclass(frozen=True)
class Gradients:
    """Gradients before the final scale, in float32 where that spares a second rounding."""

    dx: Tensor | None = None
    dw: Tensor | None = None
    db: Tensor | None = None


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """float64 for float64, else float32."""
    return torch.float64 if dtype is torch.float64 else torch.float32


def uses_triton(x: Tensor) -> bool:
    """Whether the Triton kernels run: on CUDA, or interpreted in float32 on the CPU."""
    if triton_cross_entropy is None or x.dtype not in _TRITON_DTYPES:
        return False
    if x.device.type == "cuda":
        return True
    # bf16 is silently wrong in Triton's interpreter.
    return bool(triton.knobs.runtime.interpret) and x.dtype is torch.float32


def scaled(gradient: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
    """gradient x scale in a new tensor, computed in float32 or wider and rounded once."""
    if uses_triton(gradient):
        gradient = gradient.contiguous()
        out = torch.empty_like(gradient, dtype=dtype)
        triton_cross_entropy.scale_into(out, gradient, scale)
        return out
    wide = accumulation_dtype(gradient.dtype)
    return (gradient.to(wide) * scale.to(wide)).to(dtype)


def _row_pass(
    operands: Operands, logits: Tensor, rows: slice, loss: Tensor, with_gradient: bool
) -> None:
    module = triton_cross_entropy if uses_triton(operands.x) else torch_cross_entropy
    module.cross_entropy_in_place(
        logits,
        operands.target[rows],
        loss[rows],
        operands.options,
        operands.tensors.at(rows),
        with_gradient,
    )


def _input_gradient_buffer(x: Tensor) -> Tensor:
    """(N, H), in float32 on CUDA: the scale of the backward would round dX a second time.

    dW is not given float32 for that alone, since it would take 4 V H bytes.
    """
    halves = x.dtype in (torch.float16, torch.bfloat16)
    dtype = torch.float32 if halves and x.device.type == "cuda" else x.dtype
    return torch.empty(x.shape, dtype=dtype, device=x.device)


def _write_input_gradient(out: Tensor, dz: Tensor, weight: Tensor) -> None:
    if out.dtype == dz.dtype:
        torch.mm(dz, weight, out=out)
    else:
        torch.mm(dz, weight, out_dtype=out.dtype, out=out)


def _product_in_float32(left: Tensor, right: Tensor) -> Tensor:
    if left.device.type == "cuda":
        return torch.mm(left, right, out_dtype=torch.float32)
    return left.float() @ right.float()


def _add_weight_gradient(total: Tensor | None, dz: Tensor, x: Tensor, plan: Plan) -> Tensor:
    """total + dZ^T x, in float32 where the plan says so. `total` is overwritten."""
    if not plan.sum_in_float32:
        return torch.mm(dz.t(), x) if total is None else total.addmm_(dz.t(), x)
    if total is None:
        return _product_in_float32(dz.t(), x)
    if total.device.type == "cuda":
        return torch.addmm(total, dz.t(), x, out_dtype=torch.float32, out=total)
    return total.addmm_(dz.t().float(), x.float())


def run_chunks(operands: Operands, wanted: Wanted) -> tuple[Tensor, Gradients]:
    """Loss of each row, and the wanted gradients, without a host synchronisation.

    Cost: one product for the loss, one more each for dx and dw; `Plan.workspace_bytes`.
    """
    x, weight, bias, plan = operands.x, operands.weight, operands.bias, operands.plan
    wide = accumulation_dtype(x.dtype)
    loss = torch.empty(plan.tokens, dtype=wide, device=x.device)
    dx = _input_gradient_buffer(x) if wanted.dx else None
    dw: Tensor | None = None
    db = torch.zeros(plan.vocab, dtype=wide, device=x.device) if wanted.db else None
    buffer = torch.empty(
        min(plan.chunk_rows, plan.tokens), plan.vocab, dtype=x.dtype, device=x.device
    )
    for rows in plan.rows():
        logits = buffer[: rows.stop - rows.start]
        if bias is None:
            torch.mm(x[rows], weight.t(), out=logits)
        else:
            torch.addmm(bias, x[rows], weight.t(), out=logits)
        _row_pass(operands, logits, rows, loss, wanted.any)
        if dx is not None:
            _write_input_gradient(dx[rows], logits, weight)
        if wanted.dw:
            dw = _add_weight_gradient(dw, logits, x[rows], plan)
        if db is not None:
            db += logits.sum(0, dtype=wide)
    if wanted.dw and dw is None:
        dw = torch.zeros(weight.shape, dtype=weight.dtype, device=x.device)
    return loss, Gradients(dx, dw, db)


def with_row_scale(operands: Operands, row_scale: Tensor) -> Operands:
    """The same call with the gradients of each row multiplied by `row_scale` (N,)."""
    return replace(operands, tensors=replace(operands.tensors, row_scale=row_scale))
