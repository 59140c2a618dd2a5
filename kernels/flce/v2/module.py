"""The call as a module that holds its options, as `torch.nn` losses do."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from ...protocol import Reduction
from ..arguments import check_numbers
from ..rows import RowOptions
from .loss import check_workspace, linear_cross_entropy
from .plan import Workspace


@dataclass(frozen=True)
class LossOptions:
    """Options of the loss and of how it runs; see `linear_cross_entropy`."""

    ignore_index: int = -100
    label_smoothing: float = 0.0
    softcap: float | None = None
    logit_scale: float | None = None
    lse_square_scale: float = 0.0
    reduction: Reduction = "mean"
    workspace: Workspace = "fast"
    compact: bool = False


class LinearCrossEntropyLoss(torch.nn.Module):
    """`linear_cross_entropy` with its options fixed.

        loss_function = LinearCrossEntropyLoss(LossOptions(label_smoothing=0.1))
        loss = loss_function(hidden_states, lm_head.weight, labels)

    class_weight (V,) is a buffer and moves with the module. Raises: ValueError naming the option.
    """

    def __init__(
        self, options: LossOptions = LossOptions(), class_weight: Tensor | None = None
    ) -> None:
        super().__init__()
        rows = RowOptions(
            options.ignore_index, options.label_smoothing, options.softcap, options.logit_scale
        )
        check_numbers(rows, options.lse_square_scale, options.reduction)
        check_workspace(options.workspace)
        self.options = options
        self.class_weight: Tensor | None
        self.register_buffer("class_weight", class_weight)

    def forward(
        self, input: Tensor, weight: Tensor, target: Tensor, bias: Tensor | None = None
    ) -> Tensor:
        """The loss; shapes as in `linear_cross_entropy`."""
        loss: Tensor = linear_cross_entropy(
            input, weight, target, bias, class_weight=self.class_weight, **asdict(self.options)
        )
        return loss

    def extra_repr(self) -> str:
        """Options that are not the default."""
        usual = asdict(LossOptions())
        return ", ".join(f"{k}={v!r}" for k, v in asdict(self.options).items() if v != usual[k])
