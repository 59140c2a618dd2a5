"""The one call that every contender answers."""

from __future__ import annotations

from typing import Literal, Protocol

from torch import Tensor

Reduction = Literal["none", "mean", "sum"]


class LossFunction(Protocol):
    """Loss of `cross_entropy(logit_scale * (input @ weight.T + bias), target)`.

    input (N, H), weight (V, H), target (N,) int64, bias (V,) or None, class_weight (V,) or None.
    Returns a scalar, or (N,) for reduction "none". An option that the contender lacks raises
    `UnsupportedHere`; it is never dropped.
    """

    def __call__(  # noqa: PLR0913
        self,
        input: Tensor,
        weight: Tensor,
        target: Tensor,
        bias: Tensor | None = None,
        *,
        class_weight: Tensor | None = None,
        ignore_index: int = -100,
        label_smoothing: float = 0.0,
        softcap: float | None = None,
        logit_scale: float | None = None,
        lse_square_scale: float = 0.0,
        reduction: Reduction = "mean",
    ) -> Tensor: ...
