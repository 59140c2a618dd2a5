"""Mutants that compute the right thing and cheat about when or how.

Each would look fast in a careless benchmark: an answer kept from the first call, work that is still
under way when the call returns, an output that is computed on first use, a clock that runs slow.
"""

from __future__ import annotations

import time
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .adapters.torch_plain import build_upcast
from .protocol import LossFunction

_right = build_upcast(None, {})


class _Kept(torch.autograd.Function):
    """Gradients made once, given again and again."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, weight: Tensor, bias: Tensor | None, kept: Any) -> Tensor:
        ctx.gradients = kept["gradients"]
        return cast("Tensor", kept["loss"].clone())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        return (*ctx.gradients, None)


class _ReplayedOutput:
    """Keeps loss and gradients by the addresses of its inputs."""

    def __init__(self) -> None:
        self._kept: dict[tuple[object, ...], dict[str, Any]] = {}

    def __call__(
        self, input: Tensor, weight: Tensor, target: Tensor, bias: Tensor | None = None, **rest: Any
    ) -> Tensor:
        key = (input.data_ptr(), weight.data_ptr(), target.data_ptr(), tuple(input.shape))
        if key not in self._kept:
            leaves = [t.detach().requires_grad_() for t in (input, weight, bias) if t is not None]
            with torch.enable_grad():
                loss = _right(leaves[0], leaves[1], target, *leaves[2:], **rest)
                gradients = torch.autograd.grad(loss, leaves, torch.ones_like(loss))
            padded = [*gradients, None][:3]
            self._kept[key] = {"loss": loss.detach(), "gradients": padded}
        loss_again: Tensor = _Kept.apply(input, weight, bias, self._kept[key])  # type: ignore[no-untyped-call]
        return loss_again


class _Deferred(Tensor):
    """Stands for a tensor that computes itself on first use."""


class _LazyLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, loss: Tensor) -> Tensor:
        return cast("Tensor", loss.clone().as_subclass(_Deferred))

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> Tensor:
        return upstream


def _lazy_output(*tensors: Any, **rest: Any) -> Tensor:
    lazy: Tensor = _LazyLoss.apply(_right(*tensors, **rest))  # type: ignore[no-untyped-call]
    return lazy


class _BackwardElsewhere(torch.autograd.Function):
    """Gradients made on a stream of its own that nobody waits for."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, weight: Tensor, bias: Tensor | None, call: Any) -> Tensor:
        ctx.call, ctx.leaves = call, (input.detach(), weight.detach(), bias)
        return cast("Tensor", call(input, weight, bias))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        leaves = [None if t is None else t.detach().requires_grad_() for t in ctx.leaves]
        with torch.cuda.stream(stream), torch.enable_grad():
            wanted = [leaf for leaf in leaves if leaf is not None]
            made = torch.autograd.grad(ctx.call(*leaves), wanted, upstream)
        padded = [*made, None][:3]
        return (*padded, None)


def _side_stream(
    input: Tensor, weight: Tensor, target: Tensor, bias: Tensor | None = None, **rest: Any
) -> Tensor:
    if not input.is_cuda:
        return _right(input, weight, target, bias, **rest)

    def call(x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
        return _right(x, w, target, b, **rest)

    loss: Tensor = _BackwardElsewhere.apply(input, weight, bias, call)  # type: ignore[no-untyped-call]
    return loss


def _patched_timer(*tensors: Any, **rest: Any) -> Tensor:
    clock = time.perf_counter
    if not getattr(clock, "slow", False):

        def slow_clock() -> float:
            return clock() / 100

        slow_clock.slow = True  # type: ignore[attr-defined]
        time.perf_counter = slow_clock
    return _right(*tensors, **rest)


CHEATS: dict[str, LossFunction] = {
    "replayed_output": cast("LossFunction", _ReplayedOutput()),
    "lazy_output": cast("LossFunction", _lazy_output),
    "side_stream": cast("LossFunction", _side_stream),
    "patched_timer": cast("LossFunction", _patched_timer),
}
"""By name; called wrong by the cases `cheats/...` and by the guard of the clocks."""
