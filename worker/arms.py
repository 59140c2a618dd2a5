"""What is timed: a contender's call on the tensors of a case, and the bare products."""

import torch
from torch import Tensor

from lossbench.kernels.floor import Floor
from lossbench.kernels.problem import Inputs
from lossbench.kernels.protocol import LossFunction
from lossbench.service.contract.words import Pass


class Leaves:
    """The tensors that every arm of a case shares, and what to do with their gradients."""

    def __init__(self, inputs: Inputs, accumulate: bool) -> None:
        self.inputs = inputs.fresh()
        self._accumulate = accumulate

    @property
    def trained(self) -> list[Tensor]:
        """Tensors that need a gradient."""
        tensors = (self.inputs.x, self.inputs.weight, self.inputs.bias)
        return [t for t in tensors if t is not None and t.requires_grad]

    def clear(self) -> None:
        """Gradients to None; to zeros that stay where the case accumulates into them."""
        for tensor in (self.inputs.x, self.inputs.weight, self.inputs.bias):
            if tensor is None:
                continue
            if not self._accumulate or not tensor.requires_grad:
                tensor.grad = None
            elif tensor.grad is None:
                tensor.grad = torch.zeros_like(tensor)
            else:
                tensor.grad.zero_()

    def keep_or_drop(self) -> None:
        """What a training loop does before a step of this case."""
        if not self._accumulate:
            self.clear()

    def gradients(self) -> dict[str, Tensor | None]:
        """dx, dw, db as they are now."""
        bias = self.inputs.bias
        return {
            "dx": self.inputs.x.grad,
            "dw": self.inputs.weight.grad,
            "db": bias.grad if bias is not None else None,
        }


class ContenderArm:
    """One contender and pass, called as a training loop would call it."""

    def __init__(self, function: LossFunction, leaves: Leaves, pass_: Pass) -> None:
        self.function, self.leaves, self.pass_ = function, leaves, pass_
        self._loss: Tensor | None = None

    def forward(self) -> Tensor:
        """The loss, with its graph."""
        return self.leaves.inputs.loss(self.function)

    def backward(self, loss: Tensor) -> None:
        """Gradients of the case's upstream gradient."""
        torch.autograd.backward(loss, self.leaves.inputs.upstream.to(loss.dtype))

    def before(self) -> None:
        """Outside the clock: gradients away, and the forward where only the backward counts."""
        self._loss = None
        self.leaves.keep_or_drop()
        if self.pass_ is Pass.BACKWARD:
            self._loss = self.forward()

    def call(self) -> None:
        """The timed work."""
        loss = self._loss if self._loss is not None else self.forward()
        if self.pass_ is not Pass.FORWARD:
            self.backward(loss)


class FloorArm:
    """The bare products of a pass."""

    def __init__(self, floor: Floor, pass_: Pass) -> None:
        self._floor, self._pass = floor, pass_.value

    def before(self) -> None:
        """Nothing: outputs are allocated already."""

    def call(self) -> None:
        """The timed products."""
        self._floor.run(self._pass)
