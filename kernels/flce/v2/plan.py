"""How a call is cut up, what that takes, and which cut fits a budget: arithmetic, no tensors.

Every plan rounds dX and dW once. Products are counted in units of 2 N H V operations.

one pass      logits of all tokens, dZ over them, two products. 3 products, 2NV.
token chunks  the same for chunks of tokens; dW is summed in float32. 3 products; the larger of
              2CV + 2VH and 4VH.
two sweeps    sweep 1 over chunks of tokens: loss, log-sum-exps, dZ, rows of dX; sweep 2 over blocks
              of the vocabulary: logits again, dZ, a block of dW. 4 products less the share of rows
              whose dZ is kept; 2KV and the larger of 2CV and 2NB.

(bytes for bfloat16; C tokens of a chunk, B columns of a block, K rows kept)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from ...chunk_rules import ceil_div

Workspace = Literal["fast", "lean"] | int
Kind = Literal["one pass", "token chunks", "two sweeps"]

FAST_BYTES = 8 * 2**30
"""What "fast" may take where 4VH is less."""
CHUNK_ROWS = (8192, 4096)
"""Token chunks: below 4096 rows the sum of dW in float32 costs over 18 % of its product."""
SWEEP_ROWS = (4096, 2048, 1024, 512, 256)
"""Two sweeps: tokens of a chunk. Below 256 the products fall far off their rate."""
BLOCK_MULTIPLE = 128
"""Columns of a block, and rows kept, come in tiles of a product."""
LEAST_BLOCK = 1024
ROW_BYTES = 32
"""Of each token: loss, log-sum-exp, hit, labels and their sums, rounded up."""


@dataclass(frozen=True)
class Rates:
    """What a device sustains: operations and bytes per second, seconds of one launch."""

    operations: float
    bytes: float
    launch: float = 1e-5


H200 = Rates(6.76e14, 4.2e12)
"""bf16 at the power limit: the three products with the true dZ, and a copy (2026-11-30)."""


@dataclass(frozen=True)
class Sizes:
    """Of a call: tokens N, hidden H, vocab V, bytes of an element, and which gradients it makes."""

    tokens: int
    hidden: int
    vocab: int
    width: int = 2
    dx: bool = True
    dw: bool = True


@dataclass(frozen=True)
class Plan:
    """A cut. `chunk_rows` tokens at a time; `block` columns at a time, 0 without a second sweep.

    `kept` rows, from the first, keep their dZ for the second sweep.
    """

    kind: Kind
    sizes: Sizes
    chunk_rows: int
    block: int = 0
    kept: int = 0

    @property
    def chunks(self) -> int:
        """Number of token chunks; 0 without tokens."""
        return ceil_div(self.sizes.tokens, self.chunk_rows)

    @property
    def sums_in_float32(self) -> bool:
        """Whether dW takes a float32 buffer: it is summed over chunks."""
        return self.kind == "token chunks" and self.sizes.dw and self.sizes.width == 2

    def rows(self) -> Iterator[slice]:
        """Token chunks; one never reaches over the end of the kept rows."""
        start = 0
        while start < self.sizes.tokens:
            end = self.kept if start < self.kept else self.sizes.tokens
            stop = min(start + self.chunk_rows, end)
            yield slice(start, stop)
            start = stop

    def columns(self) -> Iterator[slice]:
        """Blocks of the vocabulary; none without a second sweep."""
        for start in range(0, self.sizes.vocab if self.block else 0, self.block or 1):
            yield slice(start, min(start + self.block, self.sizes.vocab))

    @property
    def workspace_bytes(self) -> int:
        """Bytes beyond inputs and outputs at the peak."""
        of = self.sizes
        rows = ROW_BYTES * of.tokens
        # a chunk has a buffer only where its rows are not kept
        loose = min(self.chunk_rows, of.tokens - self.kept)
        sweep = of.width * max(0, loose) * of.vocab
        if self.kind == "two sweeps":
            again = of.width * of.tokens * self.block if of.dw else 0
            return rows + of.width * self.kept * of.vocab + max(sweep, again)
        if not self.sums_in_float32:
            return rows + sweep
        wide, out = 4 * of.vocab * of.hidden, of.width * of.vocab * of.hidden
        # while it is summed dW is no output yet; when it is rounded both are there
        return rows + max(sweep + wide - out, wide)

    @property
    def products(self) -> float:
        """Products of a forward and backward."""
        of = self.sizes
        again = 0.0
        if self.kind == "two sweeps" and of.dw:
            again = 1.0 - self.kept / max(1, of.tokens)
        return 1.0 + of.dx + of.dw + again

    def seconds(self, rates: Rates = H200) -> float:
        """Predicted time of a forward and backward; rates are the device's at steady power."""
        of = self.sizes
        operations = 2.0 * of.tokens * of.hidden * of.vocab
        logits = float(of.width) * of.tokens * of.vocab
        moved = 3.0 * logits if of.dx or of.dw else logits
        launches = 20 + 4 * self.chunks
        if self.kind == "two sweeps" and of.dw:
            share = 1.0 - self.kept / max(1, of.tokens)
            # recomputed: written by the product, read and written as dZ; kept: copied
            moved += 2.0 * logits
            launches += 4 * ceil_div(of.vocab, self.block)
            return (
                (
                    (1.0 + of.dx) * operations * self._slowdown(self.chunk_rows)
                    + (1.0 + share) * operations
                )
                / rates.operations
                + moved / rates.bytes
                + launches * rates.launch
            )
        if self.sums_in_float32:
            per_chunk = 8.0 * of.vocab * of.hidden
            moved += per_chunk * (self.chunks - 1) + 6.0 * of.vocab * of.hidden
        return self.products * operations / rates.operations + (
            moved / rates.bytes + launches * rates.launch
        )

    @staticmethod
    def _slowdown(rows: int) -> float:
        """How much longer a product of few rows takes than one of many.

        From two sweeps on an H200: 57.0, 54.9, 53.5 and 53.0 ms at 256, 512, 1024 and 2048 rows.
        """
        return 1.0 + 37.0 / max(1, rows)


def plans_for(sizes: Sizes) -> Iterator[Plan]:
    """Every plan worth a look, whatever its workspace, without kept rows."""
    tokens = max(1, sizes.tokens)
    yield Plan("one pass", sizes, tokens)
    for rows in CHUNK_ROWS:
        if rows < tokens:
            yield Plan("token chunks", sizes, balanced(tokens, rows))
    for rows in SWEEP_ROWS:
        if rows <= tokens:
            yield Plan("two sweeps", sizes, rows, block_of(sizes, rows))


def balanced(tokens: int, rows: int) -> int:
    """Rows of a chunk where `tokens` are cut into equal chunks of about `rows`, in whole tiles."""
    chunks = max(1, round(tokens / rows))
    return min(tokens, ceil_div(ceil_div(tokens, chunks), BLOCK_MULTIPLE) * BLOCK_MULTIPLE)


def block_of(sizes: Sizes, rows: int) -> int:
    """Columns of a block that take as much as a chunk of `rows` tokens."""
    columns = rows * sizes.vocab // max(1, sizes.tokens)
    tiles = max(LEAST_BLOCK, columns // BLOCK_MULTIPLE * BLOCK_MULTIPLE)
    return min(sizes.vocab, tiles)


def with_kept(plan: Plan, budget: int) -> Plan:
    """The plan with as many rows kept as the budget has room for."""
    of = plan.sizes
    if plan.kind != "two sweeps" or not of.dw:
        return plan
    spare = budget - plan.workspace_bytes
    kept = spare // max(1, of.width * of.vocab) // BLOCK_MULTIPLE * BLOCK_MULTIPLE
    kept = max(0, min(kept, of.tokens))
    return Plan(plan.kind, of, plan.chunk_rows, plan.block, kept)


def budget_of(sizes: Sizes, workspace: Workspace) -> int:
    """Bytes that a setting allows; for "lean" the least that any plan takes."""
    if workspace == "fast":
        return max(4 * sizes.vocab * sizes.hidden, FAST_BYTES)
    if workspace == "lean":
        return min(plan.workspace_bytes for plan in plans_for(sizes))
    return workspace


def make_plan(sizes: Sizes, workspace: Workspace = "fast", rates: Rates = H200) -> Plan:
    """The fastest plan, as predicted, that keeps to the budget.

    A call too large for "fast" gets the plan of least workspace. Raises: ValueError for a budget
    in bytes that no plan keeps to, naming the least.
    """
    budget = budget_of(sizes, workspace)
    found = [plan for plan in plans_for(sizes) if plan.workspace_bytes <= budget]
    if not found:
        least = min(plans_for(sizes), key=lambda plan: plan.workspace_bytes)
        if workspace == "fast":
            return least
        raise ValueError(
            f"workspace={workspace}: no plan of {sizes.tokens} x {sizes.hidden} x {sizes.vocab} "
            f"takes less than {least.workspace_bytes} bytes"
        )
    filled = [with_kept(plan, budget) for plan in found]
    return min(filled, key=lambda plan: plan.seconds(rates))
