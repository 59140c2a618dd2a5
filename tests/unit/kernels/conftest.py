"""One torch thread: shapes here are small, and spinning threads slow each other down on 2 cores.

Stand-ins for packages of others: modules that exist only in a test, with torch's arithmetic.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from lossbench.kernels.adapters.torch_plain import loss_of_logits
from lossbench.kernels.catalogue import build
from lossbench.kernels.inputs import make_inputs
from lossbench.kernels.problem import Inputs, Problem
from lossbench.kernels.protocol import LossFunction

torch.set_num_threads(1)


@dataclass
class Peer:
    """What a stand-in stands for, the cases it takes, and what it was called with."""

    kernel: str
    params: dict[str, Any]
    sizes: tuple[int, int, int]
    dtype: str
    calls: list[dict[str, Any]] = field(default_factory=list)

    def inputs(self, **options: Any) -> Inputs:
        """Inputs of a case with these options."""
        problem = Problem(*self.sizes, self.dtype, upstream="random", **options)
        return make_inputs(problem, "cpu", 0)

    def build(self, **params: Any) -> LossFunction:
        """The contender."""
        return build(self.kernel, None, {**self.params, **params})

    def loss(self, x: Tensor, weight: Tensor, target: Tensor, **options: Any) -> Tensor:
        """Torch's loss of half-precision operands in float32; weight is (V, H)."""
        bias = options.pop("bias", None)
        logits = F.linear(x.float(), weight.float(), None if bias is None else bias.float())
        return loss_of_logits(logits, target, **options)


@pytest.fixture
def make_peer() -> type[Peer]:
    """The class of stand-ins."""
    return Peer


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, dict[str, Any]], None]:
    """Make a module importable by its full name."""

    def put(name: str, members: dict[str, Any]) -> None:
        parts = name.split(".")
        for length in range(1, len(parts)):
            package = ModuleType(".".join(parts[:length]))
            package.__path__ = []
            monkeypatch.setitem(sys.modules, package.__name__, package)
        module = ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)

    return put
