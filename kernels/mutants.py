"""Deliberately wrong losses: the error checker must catch every one of them.

Each is torch's own loss whose result or gradients are spoilt in one way that a real kernel has
been spoilt. They take the normalised call and every option.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from .adapters.torch_plain import loss_of_logits, upcast
from .protocol import LossFunction, Reduction

_TILE = 128
_CHUNKS = 64
_BF16_TILES = 512


@dataclass(frozen=True)
class _Work:
    """What the right gradients are made of; logits and dz (N, V) are at least float32."""

    x: Tensor
    weight: Tensor
    target: Tensor
    ignore_index: int
    logits: Tensor
    dz: Tensor


@dataclass(frozen=True)
class _Grads:
    dx: Tensor
    dw: Tensor
    db: Tensor


Spoil = Callable[[_Work, _Grads], _Grads]
SpoilLogits = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class _Mutant:
    """`logits` spoils the logits (given the target), `gradients` the products."""

    gradients: Spoil = lambda work, grads: grads
    logits: SpoilLogits = lambda logits, target: logits
    counts_ignored: bool = False


def _products(work: _Work) -> _Grads:
    wide = work.dz.dtype
    return _Grads(work.dz @ work.weight.to(wide), work.dz.t() @ work.x.to(wide), work.dz.sum(dim=0))


def _missing_chunk(work: _Work, grads: _Grads) -> _Grads:
    dz = work.dz.clone()
    rows = dz.shape[0]
    dz[rows // 2 : rows // 2 + max(1, rows // 8)] = 0
    return replace(grads, dw=_products(replace(work, dz=dz)).dw)


def _nan_in_ignored(work: _Work, grads: _Grads) -> _Grads:
    dx = grads.dx.clone()
    dx[work.target == work.ignore_index] = torch.nan
    return replace(grads, dx=dx)


def _other_seed(work: _Work, grads: _Grads) -> _Grads:
    generator = torch.Generator().manual_seed(1)
    order = torch.randperm(work.x.shape[0], generator=generator).to(work.x.device)
    return _products(replace(work, dz=work.dz[order]))


def _bf16_sum(work: _Work, grads: _Grads) -> _Grads:
    total = torch.zeros_like(work.weight, dtype=torch.bfloat16)
    rows = max(1, -(-work.x.shape[0] // _CHUNKS))
    for start in range(0, work.x.shape[0], rows):
        dz, x = work.dz[start : start + rows], work.x[start : start + rows]
        total += (dz.t() @ x.to(dz.dtype)).bfloat16()
    return replace(grads, dw=total.to(grads.dw.dtype))


def _without_last_tile(logits: Tensor, target: Tensor) -> Tensor:
    columns = torch.arange(logits.shape[1], device=logits.device)
    tile = min(_TILE, max(1, logits.shape[1] // 2))
    lost = (columns >= logits.shape[1] - tile) & (columns != target[:, None])
    return logits.masked_fill(lost, -torch.inf)


def _bf16_softmax(work: _Work, grads: _Grads) -> _Grads:
    """Gradients of a softmax from bf16 exponentials and a running bf16 sum.

    The sum stalls: once it is 2^8 times a tile's share, adding the tile changes nothing.
    """
    right = torch.softmax(work.logits, dim=1)
    exponentials = torch.exp((work.logits - work.logits.amax(dim=1, keepdim=True)).bfloat16())
    total = torch.zeros_like(exponentials[:, 0])
    for tile in exponentials.tensor_split(min(_BF16_TILES, right.shape[1]), dim=1):
        total = total + tile.sum(dim=1)
    spoilt = (exponentials / total[:, None]).to(right.dtype)
    # What multiplies p in dZ, read off at the target: dz_y = c (p_y - 1).
    index = work.target.masked_fill(work.target == work.ignore_index, 0)[:, None]
    scale = work.dz.gather(1, index) / (right.gather(1, index) - 1).clamp(max=-1e-6)
    return _products(replace(work, dz=work.dz + scale * (spoilt - right)))


def _scaled_by(factor: float) -> Spoil:
    return lambda work, grads: _Grads(grads.dx * factor, grads.dw * factor, grads.db * factor)


_MUTANTS: dict[str, _Mutant] = {
    "dx_zero": _Mutant(lambda work, grads: replace(grads, dx=torch.zeros_like(grads.dx))),
    "dw_zero": _Mutant(lambda work, grads: replace(grads, dw=torch.zeros_like(grads.dw))),
    "dw_missing_chunk": _Mutant(_missing_chunk),
    "gradients_scaled": _Mutant(_scaled_by(1 + 2**-7)),
    "ignored_counted": _Mutant(counts_ignored=True),
    "db_missing": _Mutant(lambda work, grads: replace(grads, db=torch.zeros_like(grads.db))),
    "lse_off_by_one_tile": _Mutant(logits=_without_last_tile),
    "nan_in_ignored_row": _Mutant(_nan_in_ignored),
    "other_seed": _Mutant(_other_seed),
    "softmax_in_bf16": _Mutant(_bf16_softmax),
    "dw_summed_in_bf16": _Mutant(_bf16_sum),
}


@dataclass(frozen=True)
class _Call:
    target: Tensor
    mutant: _Mutant
    keywords: dict[str, Any]

    def loss(self, logits: Tensor) -> Tensor:
        ignore_index = self.keywords["ignore_index"]
        safe = self.target.masked_fill(self.target == ignore_index, 0)
        loss = loss_of_logits(self.mutant.logits(logits, safe), self.target, **self.keywords)
        if self.mutant.counts_ignored and self.keywords["reduction"] == "mean":
            valid = (self.target != ignore_index).sum()
            loss = loss * valid / max(1, self.target.numel())
        return loss


class _Spoilt(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, input: Tensor, weight: Tensor, bias: Tensor | None, call: _Call
    ) -> Tensor:
        ctx.call = call
        ctx.save_for_backward(input, weight, bias)
        return call.loss(_logits(input, weight, bias))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        call: _Call = ctx.call
        input, weight, bias = ctx.saved_tensors
        with torch.enable_grad():
            logits = _logits(input, weight, bias).requires_grad_()
            loss = call.loss(logits)
        (dz,) = torch.autograd.grad(loss, logits, upstream)
        work = _Work(input, weight, call.target, call.keywords["ignore_index"], logits.detach(), dz)
        grads = call.mutant.gradients(work, _products(work))
        return (
            grads.dx.to(input.dtype),
            grads.dw.to(weight.dtype),
            None if bias is None else grads.db.to(bias.dtype),
            None,
        )


def _logits(input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return upcast(F.linear(input, weight, bias).detach())


def _mutated(
    input: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None = None,
    *,
    mutant: _Mutant,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    **options: Any,
) -> Tensor:
    keywords = {"ignore_index": ignore_index, "reduction": reduction, **options}
    call = _Call(target, mutant, keywords)
    loss: Tensor = _Spoilt.apply(input, weight, bias, call)  # type: ignore[no-untyped-call]
    return loss


MUTANTS: dict[str, LossFunction] = {
    name: partial(_mutated, mutant=mutant) for name, mutant in _MUTANTS.items()
}
