"""One case of the loss: its sizes, dtype and options, and the inputs it is measured on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from .protocol import LossFunction, Reduction

Recipe = Literal["normal", "unit_normal", "trained", "zipf_labels", "large_logits"]
Frozen = Literal["input", "weight"]
Upstream = Literal["one", "random"]

DTYPES: Mapping[str, torch.dtype] = {
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float32": torch.float32,
    "float64": torch.float64,
}
_CHOICES: Mapping[str, tuple[object, ...]] = {
    "dtype": tuple(DTYPES),
    "reduction": ("none", "mean", "sum"),
    "frozen": (None, "input", "weight"),
    "upstream": ("one", "random"),
    "recipe": ("normal", "unit_normal", "trained", "zipf_labels", "large_logits"),
}


@dataclass(frozen=True)
class Problem:
    """A case: `tokens` N, `hidden` H, `vocab` V, dtype, options and input recipe.

    `ignored_share` in [0, 1] is the share of labels set to `ignore_index`; `frozen` names the
    tensor that needs no gradient; `upstream` is the gradient of the loss: 1, or random.

    Raises: ValueError naming the field and the value it got.
    """

    tokens: int
    hidden: int
    vocab: int
    dtype: str = "bfloat16"
    bias: bool = False
    class_weight: bool = False
    ignore_index: int = -100
    ignored_share: float = 0.0
    label_smoothing: float = 0.0
    softcap: float | None = None
    logit_scale: float | None = None
    lse_square_scale: float = 0.0
    reduction: Reduction = "mean"
    frozen: Frozen | None = None
    upstream: Upstream = "one"
    recipe: Recipe = "normal"

    def __post_init__(self) -> None:
        for name, minimum in (("tokens", 0), ("hidden", 1), ("vocab", 1)):
            if getattr(self, name) < minimum:
                raise ValueError(f"{name}={getattr(self, name)}: must be >= {minimum}")
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise ValueError(f"{name}={getattr(self, name)!r}: must be one of {choices}")
        if not 0.0 <= self.ignored_share <= 1.0:
            raise ValueError(f"ignored_share={self.ignored_share}: must be in [0, 1]")
        if not 0.0 <= self.label_smoothing < 1.0:
            raise ValueError(f"label_smoothing={self.label_smoothing}: must be in [0, 1)")
        if self.softcap is not None and not self.softcap > 0:
            raise ValueError(f"softcap={self.softcap}: must be > 0")
        if self.logit_scale == 0:
            raise ValueError("logit_scale=0: must not be 0")

    @property
    def torch_dtype(self) -> torch.dtype:
        """The dtype of input, weight and bias."""
        return DTYPES[self.dtype]

    @property
    def options_used(self) -> frozenset[str]:
        """The options, by their catalogue names, that differ from the plain call."""
        used = {
            "bias": self.bias,
            "class_weight": self.class_weight,
            "ignore_index": self.ignored_share > 0 or self.ignore_index != -100,
            "label_smoothing": self.label_smoothing != 0,
            "softcap": self.softcap is not None,
            "logit_scale": self.logit_scale is not None and self.logit_scale != 1,
            "lse_square_scale": self.lse_square_scale != 0,
            "reduction_sum": self.reduction == "sum",
            "reduction_none": self.reduction == "none",
            "frozen_input": self.frozen == "input",
            "frozen_weight": self.frozen == "weight",
        }
        return frozenset(name for name, is_used in used.items() if is_used)

    def keywords(self, class_weight: Tensor | None) -> dict[str, Any]:
        """Keyword arguments of the normalised call."""
        return {
            "class_weight": class_weight,
            "ignore_index": self.ignore_index,
            "label_smoothing": self.label_smoothing,
            "softcap": self.softcap,
            "logit_scale": self.logit_scale,
            "lse_square_scale": self.lse_square_scale,
            "reduction": self.reduction,
        }


@dataclass(frozen=True)
class Inputs:
    """Tensors of a case on one device.

    x (N, H), weight (V, H) and bias (V,) in the case dtype; target (N,) int64; class_weight (V,)
    float32 (float64 for a float64 case), exact in every dtype; upstream () or (N,) likewise.
    """

    problem: Problem
    x: Tensor
    weight: Tensor
    target: Tensor
    bias: Tensor | None
    class_weight: Tensor | None
    upstream: Tensor

    def fresh(self) -> Inputs:
        """Clones whose x, weight and bias are leaves that need gradients as the problem says."""
        frozen = self.problem.frozen
        bias = None if self.bias is None else self.bias.clone().requires_grad_()
        return Inputs(
            self.problem,
            self.x.clone().requires_grad_(frozen != "input"),
            self.weight.clone().requires_grad_(frozen != "weight"),
            self.target.clone(),
            bias,
            None if self.class_weight is None else self.class_weight.clone(),
            self.upstream.clone(),
        )

    def loss(self, function: LossFunction) -> Tensor:
        """Call a contender on these tensors."""
        keywords = self.problem.keywords(self.class_weight)
        return function(self.x, self.weight, self.target, self.bias, **keywords)


@dataclass(frozen=True)
class Outputs:
    """What a contender gave: loss () or (N,), and the gradients; None where there is none."""

    loss: Tensor
    dx: Tensor | None
    dw: Tensor | None
    db: Tensor | None


def forward_backward(function: LossFunction, inputs: Inputs) -> Outputs:
    """Run a contender forward and backward on fresh leaves."""
    leaves = inputs.fresh()
    loss = leaves.loss(function)
    torch.autograd.backward(loss, leaves.upstream.to(loss.dtype))
    return Outputs(
        loss.detach(),
        leaves.x.grad,
        leaves.weight.grad,
        None if leaves.bias is None else leaves.bias.grad,
    )
