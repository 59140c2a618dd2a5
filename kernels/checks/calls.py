"""The ways in which a contender is called, and the faults that need no tolerance.

Each call takes the contender and the inputs and says what came out. Its truth is made by the same
call of `exact_loss` in float64, and so is the yardstick's own error in the dtype of the case.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any

import torch
from torch import Tensor

from ..problem import Inputs
from ..protocol import LossFunction
from .cases import CONSTANT_LABEL, CheckCase

TAIL_ROWS = 64
_AUTOCAST = torch.bfloat16


@dataclass
class Observed:
    """What a call gave. `faults`: checks failed whose right value is known without rounding."""

    outputs: dict[str, Tensor | None] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


Call = Callable[[LossFunction, CheckCase, Inputs], Observed]


@dataclass(frozen=True)
class _Leaves:
    x: Tensor
    weight: Tensor
    bias: Tensor | None

    def named(self) -> dict[str, Tensor]:
        """Tensors by the name of their gradient."""
        named = {"dx": self.x, "dw": self.weight}
        return named if self.bias is None else {**named, "db": self.bias}


def _leaves(inputs: Inputs) -> _Leaves:
    """Leaves on the same storage and strides; a contender that writes into them is found out."""
    frozen = inputs.problem.frozen
    return _Leaves(
        inputs.x.detach().requires_grad_(frozen != "input"),
        inputs.weight.detach().requires_grad_(frozen != "weight"),
        None if inputs.bias is None else inputs.bias.detach().requires_grad_(),
    )


def _loss(function: LossFunction, inputs: Inputs, leaves: _Leaves) -> Tensor:
    keywords = inputs.problem.keywords(inputs.class_weight)
    return function(leaves.x, leaves.weight, inputs.target, leaves.bias, **keywords)


def _is_plain(name: str, tensor: Tensor | None) -> list[str]:
    if tensor is None or type(tensor) is Tensor:
        return []
    return [f"{name} is a {type(tensor).__name__}, not a plain tensor"]


def _zero(name: str, tensor: Tensor | None) -> list[str]:
    """Fault where something that must be exactly zero is not; NaN is not zero."""
    if tensor is None or bool((tensor == 0).all()):
        return []
    bad = tensor[tensor != 0]
    return [f"{name} is not zero ({bad.numel()} values, such as {float(bad.flatten()[0]):.3g})"]


def _gradient_faults(inputs: Inputs, leaves: _Leaves, case: CheckCase) -> list[str]:
    faults = []
    for name, leaf in leaves.named().items():
        faults += _is_plain(name, leaf.grad)
        if not leaf.requires_grad:
            faults += [f"{name} was made for a frozen tensor"] if leaf.grad is not None else []
        elif leaf.grad is None:
            faults.append(f"{name} is missing")
        elif leaf.grad.dtype is not leaf.dtype:
            faults.append(f"{name} has dtype {leaf.grad.dtype}, its tensor {leaf.dtype}")
    ignored = inputs.target == inputs.problem.ignore_index
    if leaves.x.grad is not None and bool(ignored.any()):
        faults += _zero("dx of an ignored row", leaves.x.grad[ignored])
    if case.masked_classes and leaves.bias is not None and leaves.bias.grad is not None:
        faults += _zero("db of a masked class", leaves.bias.grad[1::3])
    return faults


def _tensors(inputs: Inputs) -> dict[str, Tensor]:
    """What a call is given, by the name that a fault uses."""
    given = {
        "input": inputs.x,
        "weight": inputs.weight,
        "target": inputs.target,
        "bias": inputs.bias,
        "class weight": inputs.class_weight,
        "upstream gradient": inputs.upstream,
    }
    return {name: tensor for name, tensor in given.items() if tensor is not None}


def _leaves_inputs_alone(call: Call) -> Call:
    """The call, with a fault for each tensor that the contender changed."""

    @wraps(call)
    def watched(function: LossFunction, case: CheckCase, inputs: Inputs) -> Observed:
        before = {name: tensor.detach().clone() for name, tensor in _tensors(inputs).items()}
        seen = call(function, case, inputs)
        seen.faults += [
            f"it changed its {name}"
            for name, tensor in _tensors(inputs).items()
            if not torch.equal(tensor, before[name])
        ]
        return seen

    return watched


@_leaves_inputs_alone
def _plain(function: LossFunction, case: CheckCase, inputs: Inputs) -> Observed:
    """Forward and backward."""
    leaves = _leaves(inputs)
    loss = _loss(function, inputs, leaves)
    torch.autograd.backward(loss, inputs.upstream.to(loss.dtype))
    faults = _is_plain("loss", loss) + _gradient_faults(inputs, leaves, case)
    wanted = () if inputs.problem.reduction != "none" else (inputs.problem.tokens,)
    if tuple(loss.shape) != wanted:
        faults.append(f"loss has shape {tuple(loss.shape)}, not {wanted}")
    outputs: dict[str, Tensor | None] = {"loss": loss.detach()}
    outputs |= {name: leaf.grad for name, leaf in leaves.named().items() if leaf.requires_grad}
    return Observed(outputs, faults)


def _nothing_to_train(function: LossFunction, case: CheckCase, inputs: Inputs) -> Observed:
    """No valid label: loss 0 (NaN is noted), gradients there and exactly 0."""
    seen = _plain(function, case, inputs)
    loss = seen.outputs.pop("loss")
    if loss is not None and bool(torch.isnan(loss).any()):
        seen.notes.append("nan_on_empty")
    else:
        seen.faults += _zero("loss", loss)
    for name, gradient in seen.outputs.items():
        if gradient is not None:
            seen.faults += _zero(name, gradient)
    seen.outputs.clear()
    return seen


@_leaves_inputs_alone
def _no_grad(function: LossFunction, case: CheckCase, inputs: Inputs) -> Observed:
    """Evaluation of tensors that need gradients, under no_grad."""
    leaves = _leaves(inputs)
    with torch.no_grad():
        loss = _loss(function, inputs, leaves)
    faults = ["the loss needs a gradient under no_grad"] if loss.requires_grad else []
    return Observed({"loss": loss.detach()}, faults)


@_leaves_inputs_alone
def _two_backwards(function: LossFunction, case: CheckCase, inputs: Inputs) -> Observed:
    """retain_graph: upstream 2, then -0.5; the first result must not change."""
    leaves = _leaves(inputs)
    tensors = leaves.named()
    loss = _loss(function, inputs, leaves)
    two, less = torch.full_like(loss, 2.0), torch.full_like(loss, -0.5)
    first = torch.autograd.grad(loss, list(tensors.values()), two, retain_graph=True)
    kept = [gradient.clone() for gradient in first]
    second = torch.autograd.grad(loss, list(tensors.values()), less)
    faults = [
        f"the second backward changed the first {name}"
        for name, one, copy in zip(tensors, first, kept, strict=True)
        if not torch.equal(one, copy)
    ]
    outputs: dict[str, Tensor | None] = dict(zip(tensors, kept, strict=True))
    outputs |= {f"{name}_second": value for name, value in zip(tensors, second, strict=True)}
    return Observed(outputs, faults)


@_leaves_inputs_alone
def _nonleaf(function: LossFunction, case: CheckCase, inputs: Inputs) -> Observed:
    """The input is the saved output of another operation, which its backward needs."""
    leaf, weight = inputs.x.detach().requires_grad_(), inputs.weight.detach().requires_grad_()
    keywords = inputs.problem.keywords(inputs.class_weight)
    function(leaf.sigmoid(), weight, inputs.target, inputs.bias, **keywords).backward()  # type: ignore[no-untyped-call]
    return Observed({"dx": leaf.grad, "dw": weight.grad})


@_leaves_inputs_alone
def _autocast(function: LossFunction, case: CheckCase, inputs: Inputs) -> Observed:
    """bf16 input, float32 weight, autocast to bf16: each gradient in its tensor's dtype."""
    wide = inputs.problem.dtype == "float64"
    weight = inputs.weight if wide else inputs.weight.float()
    x, weight = inputs.x.detach().requires_grad_(), weight.detach().requires_grad_()
    with torch.autocast(inputs.x.device.type, dtype=_AUTOCAST, enabled=not wide):
        loss = function(x, weight, inputs.target, **inputs.problem.keywords(None))
    torch.autograd.backward(loss)
    faults = [
        f"{name} has dtype {leaf.grad.dtype}, its tensor {leaf.dtype}"
        for name, leaf in (("dx", x), ("dw", weight))
        if leaf.grad is not None and leaf.grad.dtype is not leaf.dtype
    ]
    return Observed({"loss": loss.detach(), "dx": x.grad, "dw": weight.grad}, faults)


@_leaves_inputs_alone
def _micro_batches(function: LossFunction, case: CheckCase, inputs: Inputs) -> Observed:
    """Sums over two unequal parts, divided by the count of all, add up to the mean."""
    leaves = _leaves(inputs)
    count = (inputs.target != inputs.problem.ignore_index).sum()
    cut = inputs.problem.tokens // 4 + 1
    for part in (slice(0, cut), slice(cut, None)):
        loss = function(
            leaves.x[part], leaves.weight, inputs.target[part], leaves.bias, reduction="sum"
        )
        torch.autograd.backward(loss / count)
    return Observed({name: leaf.grad for name, leaf in leaves.named().items()})


@_leaves_inputs_alone
def _tied(function: LossFunction, case: CheckCase, inputs: Inputs) -> Observed:
    """The weight is the embedding, too: both gradients add up."""
    weight = inputs.weight.detach().clone().requires_grad_()
    ids = torch.arange(inputs.problem.tokens, device=weight.device) % inputs.problem.vocab
    keywords = inputs.problem.keywords(inputs.class_weight)
    function(weight[ids], weight, inputs.target, **keywords).backward()  # type: ignore[no-untyped-call]
    return Observed({"dw": weight.grad})


def _label_out_of_range(function: LossFunction, case: CheckCase, inputs: Inputs) -> Observed:
    """A label of V: an error or NaN, never a plausible loss."""
    inputs.target[inputs.problem.tokens // 2] = inputs.problem.vocab
    try:
        loss = _loss(function, inputs, _leaves(inputs))
        values = loss.detach().float().cpu()
    except Exception as error:
        # the context is gone: the process must end, which is an error, too
        if "CUDA error" in str(error) or "device-side assert" in str(error):
            raise
        return Observed(notes=[f"refused with {type(error).__name__}"])
    if bool(torch.isnan(values).any()):
        return Observed(notes=["NaN"])
    return Observed(faults=[f"a plausible loss ({float(values.flatten()[0]):.4g}) for label V"])


def _renewed(function: LossFunction, case: CheckCase, inputs: Inputs) -> Observed:
    """Other values in the same tensors: an answer kept from the first call is found out."""
    first = replace(inputs, x=inputs.x.clone(), weight=inputs.weight.clone())
    first = replace(first, target=inputs.target.flip(0).contiguous())
    _plain(function, case, first)
    first.x.copy_(inputs.x * 0.5)
    first.weight.copy_(inputs.weight.flip(0))
    first.target.copy_(inputs.target)
    return _plain(function, case, first)


def _resized(function: LossFunction, case: CheckCase, inputs: Inputs) -> Observed:
    """Half the tokens first, then all: nothing kept from the first size may leak."""
    half = inputs.problem.tokens // 2
    part = replace(
        inputs,
        problem=replace(inputs.problem, tokens=half),
        x=inputs.x[:half],
        target=inputs.target[:half],
    )
    _plain(function, case, part)
    return _plain(function, case, inputs)


def _side_stream(function: LossFunction, case: CheckCase, inputs: Inputs) -> Observed:
    """Outputs are read on the caller's stream at once: work elsewhere has not arrived yet."""
    _plain(function, case, inputs)
    torch.cuda.synchronize()
    leaves = _leaves(inputs)
    loss = _loss(function, inputs, leaves)
    torch.autograd.backward(loss, inputs.upstream.to(loss.dtype))
    outputs: dict[str, Tensor | None] = {"loss": loss.detach()}
    outputs |= {name: leaf.grad for name, leaf in leaves.named().items()}
    read = {name: None if value is None else value.clone() for name, value in outputs.items()}
    torch.cuda.synchronize()
    return Observed(read)


def _tail_of_dw(function: LossFunction, case: CheckCase, inputs: Inputs) -> Observed:
    """The rows of dW that are no label, relative to their own size."""
    seen = _plain(function, case, inputs)
    dw = seen.outputs["dw"]
    others = torch.arange(inputs.problem.vocab, device=inputs.x.device) != CONSTANT_LABEL
    seen.outputs["dw_rest"] = None if dw is None else dw[others]
    return seen


def _last_rows(function: LossFunction, case: CheckCase, inputs: Inputs) -> Observed:
    """dx of the last rows of a case too big for a whole truth, and what it took."""
    leaves = _leaves(inputs)
    on_gpu = inputs.x.is_cuda
    if on_gpu:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated() if on_gpu else 0
    loss = _loss(function, inputs, leaves)
    torch.autograd.backward(loss, inputs.upstream.to(loss.dtype))
    notes = []
    if on_gpu and inputs.problem.tokens > TAIL_ROWS:
        extra = torch.cuda.max_memory_allocated() - before
        notes.append(f"extra memory {extra / 2**30:.2f} GiB, outputs included")
    dx = leaves.x.grad
    return Observed({"dx": None if dx is None else dx[-TAIL_ROWS:]}, notes=notes)


CALLS: Mapping[str, Call] = {
    "plain": _plain,
    "nothing_to_train": _nothing_to_train,
    "no_grad": _no_grad,
    "two_backwards": _two_backwards,
    "nonleaf": _nonleaf,
    "autocast": _autocast,
    "micro_batches": _micro_batches,
    "tied": _tied,
    "label_out_of_range": _label_out_of_range,
    "renewed": _renewed,
    "resized": _resized,
    "side_stream": _side_stream,
    "tail_of_dw": _tail_of_dw,
    "last_rows": _last_rows,
}

WITHOUT_TRUTH = frozenset({"nothing_to_train", "label_out_of_range"})
"""Calls whose right answer is known without computing it."""


def observe(function: LossFunction, case: CheckCase, inputs: Inputs) -> Observed:
    """Call a contender as the case says. Raises whatever the contender raises."""
    return CALLS[case.call](function, case, inputs)


def part_with_truth(case: CheckCase, inputs: Inputs) -> Inputs:
    """The part of the inputs that truth and yardstick are computed on: all, or the last rows."""
    if case.call != "last_rows":
        return inputs
    problem: Any = replace(inputs.problem, tokens=min(TAIL_ROWS, inputs.problem.tokens))
    return replace(
        inputs, problem=problem, x=inputs.x[-TAIL_ROWS:], target=inputs.target[-TAIL_ROWS:]
    )
