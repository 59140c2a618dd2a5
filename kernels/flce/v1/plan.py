"""Which chunks a call runs in, and what they take."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from ...chunk_rules import ceil_div, flce_chunk_rows


@dataclass(frozen=True)
class Plan:
    """Chunks of `chunk_rows` tokens (the last may be smaller).

    `sum_in_float32`: dW is summed in float32, because it takes more than one product or because
    float16 could overflow.
    """

    tokens: int
    hidden: int
    vocab: int
    dtype: torch.dtype
    chunk_rows: int
    sum_in_float32: bool

    @property
    def chunks(self) -> int:
        """Number of chunks; 0 if there are no tokens."""
        return ceil_div(self.tokens, self.chunk_rows)

    @property
    def workspace_bytes(self) -> int:
        """Bytes beyond inputs and outputs at the peak on CUDA, with gradients for x and weight.

        Forward: a chunk of logits, and what dX and dW take more than as outputs. Backward: the
        unscaled dX and dW beside the scaled ones.
        """
        size = self.dtype.itemsize
        dx, dw = self.tokens * self.hidden, self.vocab * self.hidden
        dx_size, dw_size = max(4, size), 4 if self.sum_in_float32 else size
        logits = size * min(self.chunk_rows, self.tokens) * self.vocab
        forward = logits + (dx_size - size) * dx + (dw_size - size) * dw
        return max(forward, dx_size * dx + dw_size * dw)

    def rows(self) -> Iterator[slice]:
        """The chunks as slices of the tokens."""
        for start in range(0, self.tokens, self.chunk_rows):
            yield slice(start, min(start + self.chunk_rows, self.tokens))


def make_plan(
    tokens: int, hidden: int, vocab: int, dtype: torch.dtype, chunk_rows: int | None = None
) -> Plan:
    """The plan of a call; `chunk_rows` None chooses by size (see `chunk_rules`)."""
    rows = flce_chunk_rows(tokens, hidden, vocab, dtype.itemsize, chunk_rows)
    several = rows < tokens
    halves = dtype in (torch.float16, torch.bfloat16)
    return Plan(tokens, hidden, vocab, dtype, rows, halves and (several or dtype is torch.float16))
