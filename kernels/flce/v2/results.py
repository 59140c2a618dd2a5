"""What a row pass leaves of each row."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class RowResults:
    """Of each token, in float32 (float64 for float64): loss, log-sum-exp, hit; each (rows,).

    `hit`: 1 where no class has a larger logit than the label's.
    """

    loss: Tensor
    lse: Tensor
    hit: Tensor

    def at(self, rows: slice) -> RowResults:
        """Views of a chunk of rows."""
        return RowResults(self.loss[rows], self.lse[rows], self.hit[rows])

    @staticmethod
    def empty(tokens: int, dtype: torch.dtype, device: torch.device) -> RowResults:
        """Room for all tokens."""
        return RowResults(*(torch.empty(tokens, dtype=dtype, device=device) for _ in range(3)))
