"""A plan carried out: products around the row passes, dX and dW each rounded once."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..rows import RowOptions, RowTensors
from . import torch_rows
from .plan import Plan
from .results import RowResults

try:
    import triton

    from . import triton_launch
except ImportError:  # Triton ships only for Linux.
    triton_launch = None  # type: ignore[assignment]

_TRITON_DTYPES = (torch.bfloat16, torch.float16, torch.float32)


@dataclass(frozen=True)
class Operands:
    """Detached tensors of one call in the dtype of the products.

    x (N, H), weight (V, H), target (N,) int64 contiguous, bias (V,) or None. `cast_outside`: the
    row pass gets a copy of the logits in float32, as an unfused loss would.
    """

    x: Tensor
    weight: Tensor
    target: Tensor
    bias: Tensor | None
    options: RowOptions
    tensors: RowTensors
    plan: Plan
    db: bool = False
    accum_dtype: torch.dtype = torch.float32
    cast_outside: bool = False

    @property
    def makes_gradients(self) -> bool:
        """Whether the row pass must write dZ at all."""
        return self.plan.sizes.dx or self.plan.sizes.dw or self.db


@dataclass(frozen=True)
class Gradients:
    """Gradients in the dtype of the products; db in the accumulation dtype."""

    dx: Tensor | None = None
    dw: Tensor | None = None
    db: Tensor | None = None


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """float64 for float64, else float32."""
    return torch.float64 if dtype is torch.float64 else torch.float32


def uses_triton(tensor: Tensor) -> bool:
    """Whether the Triton kernels run: on CUDA, or interpreted in float32 on the CPU."""
    if triton_launch is None or tensor.dtype not in _TRITON_DTYPES:
        return False
    if tensor.device.type == "cuda":
        return True
    # bf16 is silently wrong in Triton's interpreter.
    return bool(triton.knobs.runtime.interpret) and tensor.dtype is torch.float32


def scale_in_place(gradient: Tensor, scale: Tensor) -> None:
    """gradient x scale (1,), rounded once, on the device."""
    contiguous = gradient.is_contiguous() and uses_triton(gradient)
    (triton_launch if contiguous else torch_rows).scale_in_place(gradient, scale)


def _logits(call: Operands, rows: slice, columns: slice, out: Tensor) -> None:
    weight = call.weight[columns]
    if call.bias is None:
        torch.mm(call.x[rows], weight.t(), out=out)
    else:
        torch.addmm(call.bias[columns], call.x[rows], weight.t(), out=out)


def _write_loss(call: Operands, rows: slice, logits: Tensor, results: RowResults) -> None:
    module = triton_launch if uses_triton(call.x) else torch_rows
    # an unfused loss gets its logits in float32 and gives dZ back in their own dtype
    work = logits.to(results.loss.dtype) if call.cast_outside else logits
    module.write_loss(
        work,
        call.target[rows],
        results.at(rows),
        call.options,
        call.tensors.at(rows),
        call.makes_gradients,
    )
    if work is not logits and call.makes_gradients:
        logits.copy_(work)


def _add_weight_gradient(call: Operands, total: Tensor | None, dz: Tensor, x: Tensor) -> Tensor:
    """total + dZ^T x in the accumulation dtype. `total` is overwritten."""
    wide = call.accum_dtype if call.plan.sums_in_float32 else dz.dtype
    if wide == dz.dtype:
        return torch.mm(dz.t(), x) if total is None else total.addmm_(dz.t(), x)
    if dz.device.type != "cuda":
        product = dz.t().to(wide) @ x.to(wide)
        return product if total is None else total.add_(product)
    if total is None:
        return torch.mm(dz.t(), x, out_dtype=wide)
    return torch.addmm(total, dz.t(), x, out_dtype=wide, out=total)


def _first_sweep(
    call: Operands, results: RowResults, kept: Tensor | None
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Loss and dX of all rows, dW where there is no second sweep, db; dZ of kept rows stays."""
    plan, x = call.plan, call.x
    of = plan.sizes
    wide = accumulation_dtype(x.dtype)
    dx = torch.empty_like(x, memory_format=torch.contiguous_format) if of.dx else None
    db = torch.zeros(of.vocab, dtype=wide, device=x.device) if call.db else None
    dw: Tensor | None = None
    loose = min(plan.chunk_rows, of.tokens - plan.kept)
    buffer = torch.empty(max(0, loose), of.vocab, dtype=x.dtype, device=x.device)
    for rows in plan.rows():
        in_kept = kept is not None and rows.start < plan.kept
        logits = kept[rows] if kept is not None and in_kept else buffer[: rows.stop - rows.start]
        _logits(call, rows, slice(0, of.vocab), logits)
        _write_loss(call, rows, logits, results)
        if dx is not None:
            torch.mm(logits, call.weight, out=dx[rows])
        if of.dw and not plan.block:
            dw = _add_weight_gradient(call, dw, logits, x[rows])
        if db is not None:
            db += logits.sum(0, dtype=wide)
    return dx, dw, db


def _second_sweep(call: Operands, results: RowResults, kept: Tensor | None) -> Tensor:
    """dW by blocks of the vocabulary, each from one product over all tokens."""
    plan, x = call.plan, call.x
    of, loose = plan.sizes, slice(plan.kept, plan.sizes.tokens)
    dw = torch.empty(call.weight.shape, dtype=x.dtype, device=x.device)
    buffer = torch.empty(of.tokens * plan.block, dtype=x.dtype, device=x.device)
    module = triton_launch if uses_triton(x) else torch_rows
    for columns in plan.columns():
        width = columns.stop - columns.start
        block = buffer[: of.tokens * width].view(of.tokens, width)
        if kept is not None:
            block[: plan.kept].copy_(kept[:, columns])
        if plan.kept < of.tokens:
            _logits(call, loose, columns, block[loose])
            module.write_gradient(
                block[loose],
                call.target[loose],
                results.lse[loose],
                call.options,
                call.tensors.at(loose),
                columns,
                of.vocab,
            )
        torch.mm(block.t(), x, out=dw[columns])
    return dw


def run(call: Operands) -> tuple[RowResults, Gradients]:
    """What each row gives, and the gradients that are wanted, without a host synchronisation.

    Cost: `Plan.products`, `Plan.workspace_bytes`.
    """
    plan, x = call.plan, call.x
    of = plan.sizes
    results = RowResults.empty(of.tokens, accumulation_dtype(x.dtype), x.device)
    keeps = plan.kept > 0 and of.dw
    kept = torch.empty(plan.kept, of.vocab, dtype=x.dtype, device=x.device) if keeps else None
    dx, dw, db = _first_sweep(call, results, kept)
    if plan.block and of.dw:
        dw = _second_sweep(call, results, kept)
    if of.dw:
        like = torch.zeros(call.weight.shape, dtype=x.dtype, device=x.device) if dw is None else dw
        dw = like.to(x.dtype)
    return results, Gradients(dx, dw, db)


def with_row_scale(call: Operands, row_scale: Tensor) -> Operands:
    """The same call with the gradients of each row multiplied by `row_scale` (N,)."""
    return replace(call, tensors=replace(call.tensors, row_scale=row_scale))
