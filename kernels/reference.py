"""The float64 truth that errors are measured against, in row and vocabulary blocks.

    z = logit_scale (x W^T + b);  z = softcap tanh(z / softcap)
    nll_c = lse - z_c;  row = (1 - e) w_y nll_y + e/V sum_c w_c nll_c + s lse^2
    sum: sum of rows;  mean: cross-entropy part / sum of w_y (or the number) of valid rows,
    z-loss part / number of valid rows;  no valid row: loss 0, gradients 0

Source: torch.nn.functional.cross_entropy for smoothing and class weights; Liger-Kernel for the
z-loss, whose mean is over valid rows whatever the class weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from .problem import Inputs, Outputs, Problem


@dataclass(frozen=True)
class Reference:
    """loss () or (N,), dx (N, H), dw (V, H), db (V,): float64; None where there is no gradient."""

    loss: Tensor
    dx: Tensor | None
    dw: Tensor | None
    db: Tensor | None


@dataclass(frozen=True)
class _Scales:
    """Per-row factors: w_y and the denominators are in `cross_entropy` and `lse_square`."""

    valid: Tensor
    safe_target: Tensor
    class_weight: Tensor
    target_weight: Tensor
    cross_entropy: Tensor
    lse_square: Tensor


def _inverse(count: Tensor) -> Tensor:
    return torch.where(count > 0, 1 / count, torch.zeros_like(count))


def _scales(inputs: Inputs, problem: Problem) -> _Scales:
    valid = inputs.target != problem.ignore_index
    safe_target = torch.where(valid, inputs.target, torch.zeros_like(inputs.target))
    if inputs.class_weight is None:
        class_weight = torch.ones(problem.vocab, dtype=torch.float64, device=inputs.x.device)
    else:
        class_weight = inputs.class_weight.double()
    target_weight = class_weight[safe_target] * valid
    ones = valid.double()
    if problem.reduction == "mean":
        cross_entropy = ones * _inverse(target_weight.sum())
        lse_square = ones * problem.lse_square_scale * _inverse(ones.sum())
    else:
        cross_entropy, lse_square = ones, ones * problem.lse_square_scale
    return _Scales(valid, safe_target, class_weight, target_weight, cross_entropy, lse_square)


def _blocks(size: int, block: int) -> Iterator[slice]:
    for start in range(0, size, block):
        yield slice(start, min(start + block, size))


def reference(
    inputs: Inputs, problem: Problem, row_block: int = 1024, vocab_block: int = 16384
) -> Reference:
    """Loss and gradients of the same rounded inputs in float64, upstream gradient applied.

    Cost: 3 products in float64; 8 (row_block V + V H + N H + vocab_block (H + 2 row_block)) bytes.
    Raises: ValueError for a label that is neither in the vocabulary nor ignored.
    """
    labels = inputs.target[inputs.target != problem.ignore_index]
    if labels.numel() and bool(((labels < 0) | (labels >= problem.vocab)).any()):
        raise ValueError("target: a label is neither in the vocabulary nor ignore_index")
    scales = _scales(inputs, problem)
    wide = {"dtype": torch.float64, "device": inputs.x.device}
    out = Reference(
        torch.zeros(problem.tokens, dtype=torch.float64, device=inputs.x.device),
        None if problem.frozen == "input" else torch.zeros(inputs.x.shape, **wide),  # type: ignore[call-overload]
        None if problem.frozen == "weight" else torch.zeros(inputs.weight.shape, **wide),  # type: ignore[call-overload]
        None if inputs.bias is None else torch.zeros(problem.vocab, **wide),  # type: ignore[call-overload]
    )
    with torch.no_grad():
        upstream = inputs.upstream.double().expand(problem.tokens)
        for rows in _blocks(problem.tokens, row_block):
            _row_block(_Block(inputs, problem, scales, rows, vocab_block), upstream[rows], out)
    loss = out.loss if problem.reduction == "none" else out.loss.sum()
    return Reference(loss, out.dx, out.dw, out.db)


@dataclass(frozen=True)
class _Block:
    inputs: Inputs
    problem: Problem
    scales: _Scales
    rows: slice
    vocab_block: int

    def vocab_blocks(self) -> Iterator[slice]:
        return _blocks(self.problem.vocab, self.vocab_block)

    def logits(self) -> Tensor:
        """Scaled and capped logits (rows, V)."""
        x = self.inputs.x[self.rows].double()
        z = torch.empty(x.shape[0], self.problem.vocab, dtype=torch.float64, device=x.device)
        for columns in self.vocab_blocks():
            part = z[:, columns]
            torch.mm(x, self.inputs.weight[columns].double().t(), out=part)
            if self.inputs.bias is not None:
                part += self.inputs.bias[columns].double()
        if self.problem.logit_scale is not None:
            z *= self.problem.logit_scale
        if self.problem.softcap is not None:
            z.div_(self.problem.softcap).tanh_().mul_(self.problem.softcap)
        return z


def _row_block(block: _Block, upstream: Tensor, out: Reference) -> None:
    problem, scales, rows = block.problem, block.scales, block.rows
    z = block.logits()
    lse = torch.logsumexp(z, dim=1)
    target, valid = scales.safe_target[rows], scales.valid[rows]
    smoothing = problem.label_smoothing
    weight_sum = scales.class_weight.sum()
    row = (1 - smoothing) * scales.target_weight[rows] * (lse - z.gather(1, target[:, None])[:, 0])
    if smoothing:
        row = row + smoothing / problem.vocab * (weight_sum * lse - z @ scales.class_weight)
    loss = row * scales.cross_entropy[rows]
    if problem.lse_square_scale:
        loss = loss + scales.lse_square[rows] * lse.square()
    out.loss[rows] = torch.where(valid, loss, torch.zeros_like(loss))
    _gradients(block, z, lse, upstream, out)


def _gradients(block: _Block, z: Tensor, lse: Tensor, upstream: Tensor, out: Reference) -> None:
    """Accumulate dx, dw, db of a row block; z is not needed afterwards."""
    inputs, problem, scales, rows = block.inputs, block.problem, block.scales, block.rows
    smoothing, target = problem.label_smoothing, scales.safe_target[rows]
    to_target = (1 - smoothing) * scales.target_weight[rows] * scales.cross_entropy[rows]
    to_all = smoothing / problem.vocab * scales.cross_entropy[rows]
    to_softmax = to_target + to_all * scales.class_weight.sum()
    to_softmax = to_softmax + 2 * scales.lse_square[rows] * lse
    x = inputs.x[rows].double()
    for columns in block.vocab_blocks():
        part = z[:, columns]
        dz = torch.exp(part - lse[:, None]).mul_(to_softmax[:, None])
        if smoothing:
            dz.addr_(to_all, scales.class_weight[columns], alpha=-1)
        local = target - columns.start
        inside = (local >= 0) & (local < columns.stop - columns.start)
        index = torch.where(inside, local, torch.zeros_like(local))[:, None]
        dz.scatter_add_(1, index, torch.where(inside, -to_target, torch.zeros_like(lse))[:, None])
        if problem.softcap is not None:
            dz *= 1 - (part / problem.softcap).square()
        dz *= (upstream * (problem.logit_scale or 1.0))[:, None]
        dz.masked_fill_(~scales.valid[rows][:, None], 0.0)
        if out.dx is not None:
            out.dx[rows].addmm_(dz, inputs.weight[columns].double())
        if out.dw is not None:
            out.dw[columns].addmm_(dz.t(), x)
        if out.db is not None:
            out.db[columns] += dz.sum(0)


def relative_errors(outputs: Outputs, truth: Reference) -> dict[str, float]:
    """Relative L2 error of each output that the truth has: "loss", "dx", "dw", "db".

    A missing gradient is infinitely wrong; against a truth of zeros the error is the norm itself.
    """
    pairs = {
        "loss": (outputs.loss, truth.loss),
        "dx": (outputs.dx, truth.dx),
        "dw": (outputs.dw, truth.dw),
        "db": (outputs.db, truth.db),
    }
    errors: dict[str, float] = {}
    for name, (got, want) in pairs.items():
        if want is None:
            continue
        if got is None:
            errors[name] = float("inf")
            continue
        norm = float(want.norm())
        errors[name] = float((got.double() - want).norm()) / (norm if norm > 0 else 1.0)
    return errors
