"""What the row pass is told: shared by its Triton and its plain torch form."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class RowOptions:
    """Options that are numbers on the host."""

    ignore_index: int = -100
    label_smoothing: float = 0.0
    softcap: float | None = None
    logit_scale: float | None = None


@dataclass(frozen=True)
class RowTensors:
    """Options that live on the device, in the accumulation dtype.

    class_weight (V,) and its sum (1,); lse_square_scale (1,); gradient_scale (1,) multiplies every
    gradient; row_scale (rows,) multiplies the gradients of its row. None means 1, for
    lse_square_scale 0.
    """

    class_weight: Tensor | None = None
    class_weight_sum: Tensor | None = None
    lse_square_scale: Tensor | None = None
    gradient_scale: Tensor | None = None
    row_scale: Tensor | None = None

    def at(self, rows: slice) -> RowTensors:
        """The same for a chunk of rows."""
        if self.row_scale is None:
            return self
        return RowTensors(
            self.class_weight,
            self.class_weight_sum,
            self.lse_square_scale,
            self.gradient_scale,
            self.row_scale[rows],
        )
