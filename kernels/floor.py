"""The floor: the bare matrix products that a pass cannot do without, on the operands of the op.

Power, and so clock, depends on the data: timed with raw logits in place of the true dZ, the floor
of 8192 x 4096 x 128256 read 40.4 ms on an H200; with the true dZ 37.7 ms (2026-11-30).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .flce.rows import RowOptions, RowTensors
from .flce.v1.chunks import accumulation_dtype
from .flce.v1.torch_cross_entropy import cross_entropy_in_place
from .problem import Inputs

# Rows of the logits product made at a time: 8192 rows already run at the full product rate, and
# more would double the N x V memory.
_LOGIT_ROWS = 8192
# Rows of dZ made at a time; the row pass holds about 8 float32 copies of them.
_DZ_ROWS = 512


def floor_products(
    pass_name: str, gradients_in_forward: bool, frozen: str | None = None
) -> tuple[str, ...]:
    """Products of a pass: "logits" = x W^T, "dx" = dZ W, "dw" = dZ^T x.

    A kernel that makes its gradients in the forward has all of them there and none in the backward.
    Raises: ValueError for a pass that is not "forward", "backward" or "forward_backward".
    """
    gradients = tuple(
        name for name, tensor in (("dx", "input"), ("dw", "weight")) if tensor != frozen
    )
    if pass_name == "forward":
        return ("logits", *gradients) if gradients_in_forward else ("logits",)
    if pass_name == "backward":
        return () if gradients_in_forward else gradients
    if pass_name == "forward_backward":
        return ("logits", *gradients)
    raise ValueError(f"pass={pass_name!r}: must be forward, backward or forward_backward")


class Floor:
    """Preallocated products of one case, on its valid rows only.

    Cost: dZ (valid rows x V), up to 8192 rows of logits, dX and dW in the case dtype.
    """

    def __init__(self, inputs: Inputs) -> None:
        problem = inputs.problem
        self._frozen = problem.frozen
        valid = inputs.target != problem.ignore_index
        everything = bool(valid.all())
        x = inputs.x.detach()
        self._x = x if everything else x[valid]
        self._weight = inputs.weight.detach()
        self._dz = self._true_dz(inputs, valid)
        rows = min(_LOGIT_ROWS, self._x.shape[0])
        self._logits = torch.empty(rows, problem.vocab, dtype=x.dtype, device=x.device)
        self._dx = torch.empty_like(self._x, memory_format=torch.contiguous_format)
        self._dw = torch.empty_like(self._weight, memory_format=torch.contiguous_format)

    @property
    def dz(self) -> Tensor:
        """The gradient of the loss by the logits, valid rows only, in the case dtype."""
        return self._dz

    def run(self, pass_name: str, gradients_in_forward: bool = False) -> None:
        """Run the products of the pass once."""
        for product in self.products(pass_name, gradients_in_forward):
            product()

    def products(
        self, pass_name: str, gradients_in_forward: bool = False
    ) -> tuple[Callable[[], None], ...]:
        """The products of the pass as calls without arguments, in the order that they run."""
        calls = {"logits": self._run_logits, "dx": self._run_dx, "dw": self._run_dw}
        names = floor_products(pass_name, gradients_in_forward, self._frozen)
        return tuple(calls[name] for name in names)

    def close(self) -> None:
        """Free the tensors; the floor cannot run afterwards."""
        empty = self._dw.new_empty(0)
        self._x = self._weight = self._dz = self._logits = self._dx = self._dw = empty

    def _run_logits(self) -> None:
        for start in range(0, self._x.shape[0], _LOGIT_ROWS):
            part = self._x[start : start + _LOGIT_ROWS]
            torch.mm(part, self._weight.t(), out=self._logits[: part.shape[0]])

    def _run_dx(self) -> None:
        torch.mm(self._dz, self._weight, out=self._dx)

    def _run_dw(self) -> None:
        torch.mm(self._dz.t(), self._x, out=self._dw)

    def _true_dz(self, inputs: Inputs, valid: Tensor) -> Tensor:
        problem, x = inputs.problem, self._x
        wide = accumulation_dtype(x.dtype)
        target = inputs.target[valid]
        dz = torch.empty(x.shape[0], problem.vocab, dtype=x.dtype, device=x.device)
        loss = torch.empty(x.shape[0], dtype=wide, device=x.device)
        options = RowOptions(
            problem.ignore_index, problem.label_smoothing, problem.softcap, problem.logit_scale
        )
        tensors = _row_tensors(inputs, target, valid, wide)
        for start in range(0, x.shape[0], _DZ_ROWS):
            rows = slice(start, start + _DZ_ROWS)
            part = dz[rows]
            torch.mm(x[rows], self._weight.t(), out=part)
            if inputs.bias is not None:
                part += inputs.bias
            cross_entropy_in_place(
                part, target[rows], loss[rows], options, tensors.at(rows), with_gradient=True
            )
        return dz


def _row_tensors(inputs: Inputs, target: Tensor, valid: Tensor, wide: torch.dtype) -> RowTensors:
    problem = inputs.problem
    weight = None if inputs.class_weight is None else inputs.class_weight.to(wide)
    count = torch.full((1,), float(max(1, target.numel())), dtype=wide, device=target.device)
    total = count if weight is None else weight[target].sum().reshape(1)
    squares = None
    if problem.lse_square_scale:
        squares = torch.full_like(count, problem.lse_square_scale)
        squares = squares * total / count if problem.reduction == "mean" else squares
    upstream = inputs.upstream.to(wide)
    return RowTensors(
        weight,
        None if weight is None else weight.sum().reshape(1),
        squares,
        1 / total if problem.reduction == "mean" else None,
        upstream[valid] if problem.reduction == "none" else upstream.expand(target.numel()),
    )
