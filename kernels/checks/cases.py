"""What a check case is, and the tensors that it is made of."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from ..inputs import make_inputs
from ..problem import Inputs, Problem

Group = Literal["options", "dtypes", "sizes", "layouts", "calls", "reports", "cheats"]
Labels = Literal[
    "random", "third_ignored", "first_seven_eighths_ignored", "all_ignored", "last", "constant"
]
Layout = Literal[
    "contiguous", "x_columns", "x_transposed", "weight_columns", "weight_transposed", "target_slice"
]
Upstream = Literal["ramp", "expanded"]
CONSTANT_LABEL = 3
"""The class of every token where labels are "constant"."""


@dataclass(frozen=True)
class Tensors:
    """How the tensors of a report are drawn: x = x_scale N(0, 1) + x_offset, weight likewise,
    bias = 0.1 N(0, 1) + bias_offset; every third class masked by a bias of -inf."""

    x_scale: float = 1.0
    x_offset: float = 0.0
    weight_scale: float = 0.3
    bias_offset: float = 0.0
    masked: bool = False


@dataclass(frozen=True)
class CheckCase:
    """One question to a contender.

    `tensors` None: inputs by the problem's recipe. `upstream` multiplies, or replaces by a ramp
    over rows or by one value with stride 0. `call` names a way to call from `calls.CALLS`.
    `source` is the public report that the case restates. `quick`: one of the few that contenders
    are asked which take seconds to compile. `large`: gigabytes; only one at a time on a GPU.
    """

    id: str
    group: Group
    what: str
    problem: Problem
    call: str = "plain"
    labels: Labels = "random"
    tensors: Tensors | None = None
    layout: Layout = "contiguous"
    upstream: float | Upstream = 1.0
    source: str | None = None
    quick: bool = False
    needs_gpu: bool = False
    large: bool = False

    @property
    def masked_classes(self) -> bool:
        """Whether some classes have probability 0."""
        return self.tensors is not None and self.tensors.masked


def _labels(case: CheckCase, generator: torch.Generator) -> Tensor:
    problem = case.problem
    target = torch.randint(0, problem.vocab, (problem.tokens,), generator=generator)
    ignored = {
        "third_ignored": slice(None, None, 3),
        "first_seven_eighths_ignored": slice(0, problem.tokens - problem.tokens // 8),
        "all_ignored": slice(None),
    }.get(case.labels)
    if case.labels == "last":
        target[:] = problem.vocab - 1
    elif case.labels == "constant":
        target[:] = CONSTANT_LABEL
    elif ignored is not None:
        target[ignored] = problem.ignore_index
    return target


def _drawn(case: CheckCase, tensors: Tensors) -> Inputs:
    problem, generator = case.problem, torch.Generator().manual_seed(0)
    dtype = problem.torch_dtype
    x = torch.randn(problem.tokens, problem.hidden, generator=generator) * tensors.x_scale
    weight = torch.randn(problem.vocab, problem.hidden, generator=generator) * tensors.weight_scale
    target = _labels(case, generator)
    bias = None
    if problem.bias:
        bias = torch.randn(problem.vocab, generator=generator) * 0.1 + tensors.bias_offset
        if tensors.masked:
            bias[1::3] = -torch.inf
            target = torch.where(target % 3 == 1, target - 1, target)
        bias = bias.to(dtype)
    wide = torch.float64 if dtype is torch.float64 else torch.float32
    size = (problem.tokens,) if problem.reduction == "none" else ()
    upstream = torch.ones(size, dtype=wide)
    return Inputs(
        problem, (x + tensors.x_offset).to(dtype), weight.to(dtype), target, bias, None, upstream
    )


def _upstream(case: CheckCase, upstream: Tensor) -> Tensor:
    if case.upstream == "ramp":
        ramp = torch.linspace(-1, 2, case.problem.tokens, dtype=upstream.dtype)
        return ramp.to(upstream.device)
    if case.upstream == "expanded":
        return torch.full_like(upstream[:1], 0.75).reshape(()).expand(case.problem.tokens)
    return upstream * float(case.upstream)


def _laid_out(inputs: Inputs, layout: Layout) -> Inputs:
    """The same values under other strides."""
    x, weight, target = inputs.x, inputs.weight, inputs.target
    if layout == "x_columns":
        x = torch.cat([x, x + 9], dim=1)[:, : x.shape[1]]
    elif layout == "x_transposed":
        x = x.t().contiguous().t()
    elif layout == "weight_columns":
        weight = torch.cat([weight, weight + 9], dim=1)[:, : weight.shape[1]]
    elif layout == "weight_transposed":
        weight = weight.t().contiguous().t()
    elif layout == "target_slice":
        target = torch.stack([target, target + 1], dim=1)[:, 0]
    return replace(inputs, x=x, weight=weight, target=target)


def inputs_of(case: CheckCase, device: torch.device | str, seed: int = 0) -> Inputs:
    """Tensors of the case on the device, detached, the same for the same seed."""
    if case.tensors is None:
        inputs = make_inputs(case.problem, device, seed)
    else:
        drawn = _drawn(case, case.tensors)
        inputs = Inputs(
            drawn.problem,
            drawn.x.to(device),
            drawn.weight.to(device),
            drawn.target.to(device),
            None if drawn.bias is None else drawn.bias.to(device),
            None,
            drawn.upstream.to(device),
        )
    inputs = replace(inputs, upstream=_upstream(case, inputs.upstream))
    return _laid_out(inputs, case.layout)


def widened(inputs: Inputs) -> Inputs:
    """The same values in float64."""

    def wide(tensor: Tensor | None) -> Tensor | None:
        return None if tensor is None else tensor.double()

    return replace(
        inputs,
        problem=replace(inputs.problem, dtype="float64"),
        x=inputs.x.double(),
        weight=inputs.weight.double(),
        bias=wide(inputs.bias),
        class_weight=wide(inputs.class_weight),
        upstream=inputs.upstream.double(),
    )
