"""Options of one call in the catalogue's words: an adapter refuses what its kernel lacks."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ..errors import UnsupportedHere
from ..protocol import Reduction


@dataclass(frozen=True)
class LossOptions:
    """What a `LossFunction` is given beside input, weight and target; the defaults are plain.

    bias (V,) or None, class_weight (V,) or None; an unknown keyword is a TypeError.
    """

    bias: Tensor | None = None
    class_weight: Tensor | None = None
    ignore_index: int = -100
    label_smoothing: float = 0.0
    softcap: float | None = None
    logit_scale: float | None = None
    lse_square_scale: float = 0.0
    reduction: Reduction = "mean"

    @property
    def used(self) -> frozenset[str]:
        """The options that differ from the plain call, but for `ignore_index`: all have it."""
        used = {
            "bias": self.bias is not None,
            "class_weight": self.class_weight is not None,
            "label_smoothing": self.label_smoothing != 0,
            "softcap": self.softcap is not None,
            "logit_scale": self.logit_scale is not None and self.logit_scale != 1,
            "lse_square_scale": self.lse_square_scale != 0,
            "reduction_sum": self.reduction == "sum",
            "reduction_none": self.reduction == "none",
        }
        return frozenset(name for name, is_used in used.items() if is_used)

    def refuse_beyond(self, kernel: str, has: frozenset[str]) -> None:
        """Raise UnsupportedHere for an option in use that is not one of those it has."""
        lacking = sorted(self.used - has)
        if lacking:
            raise UnsupportedHere(f"{kernel} has no {lacking[0]}")
