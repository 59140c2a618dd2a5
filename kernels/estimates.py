"""Peak memory and time of a contender by formula, before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .chunk_rules import (
    aspect_chunk_rows,
    ceil_div,
    flce_chunk_rows,
    liger_chunk_rows,
    split_chunk_rows,
)
from .kernel_spec import KernelSpec, ParamValue, Term, is_at_least

# x, W, target; then loss, dx, dW. Every contender has these.
INPUTS_AND_OUTPUTS: tuple[Term, ...] = (
    Term("NH", elements=2),
    Term("VH", elements=2),
    Term("N", bytes=8),
    Term("V", elements=2),
)


@dataclass(frozen=True)
class Roof:
    """What a device sustains on this work: product rate, copy rate, cost of one launch."""

    flops_per_second: float
    bytes_per_second: float
    launch_seconds: float
    dtype_bytes: int


# H200 at its power cap, bf16: products ran at 680-735 TFLOP/s and elementwise passes at
# 2.7-3.6 TB/s (2026-11-30). The CPU row is two cores, fp32.
ROOFS: Mapping[str, Roof] = {
    "cpu": Roof(6e10, 6e9, 5e-5, 4),
    "cuda": Roof(7e14, 3.3e12, 1e-5, 2),
}


@dataclass(frozen=True)
class _Case:
    version: str | None
    params: Mapping[str, ParamValue]
    symbols: Mapping[str, int]
    dtype_bytes: int

    def total(self, terms: tuple[Term, ...]) -> float:
        return sum(self._size(term) for term in terms if self._applies(term))

    def _size(self, term: Term) -> float:
        each = max(0.0, term.elements * self.dtype_bytes + term.bytes)
        return each * self.symbols[term.symbol]

    def _applies(self, term: Term) -> bool:
        if any(self.params.get(name) != value for name, value in term.when.items()):
            return False
        if term.chunked is not None and term.chunked != (self.symbols["K"] > 1):
            return False
        if not is_at_least(self.version, term.since):
            return False
        if term.before is None:
            return True
        return self.version is not None and not is_at_least(self.version, term.before)


def chunk_rows_of(
    spec: KernelSpec, params: Mapping[str, object], tokens: int, hidden: int, vocab: int
) -> int:
    """Rows per chunk of this contender, by its `chunk_rule` (bf16 for "flce")."""
    return _chunk_rows(spec, spec.complete(params), (tokens, hidden, vocab), 2)


def _chunk_rows(
    spec: KernelSpec,
    params: Mapping[str, ParamValue],
    shape: tuple[int, int, int],
    dtype_bytes: int,
) -> int:
    tokens, hidden, vocab = shape
    rule, _, name = spec.chunk_rule.partition(":")
    if rule == "liger":
        return liger_chunk_rows(tokens, hidden, vocab, int(params.get("chunk_mem_const") or 1))
    if rule == "flce":
        rows = params.get("chunk_rows")
        return flce_chunk_rows(
            tokens, hidden, vocab, dtype_bytes, None if rows is None else int(rows)
        )
    if rule == "fixed":
        return int(params[name] or tokens)
    if rule == "split":
        return split_chunk_rows(tokens, hidden, vocab, int(params[name] or 1))
    if rule == "aspect":
        rows = params[name]
        return aspect_chunk_rows(tokens, hidden, vocab, None if rows is None else int(rows))
    return max(1, tokens)


def _case(
    spec: KernelSpec,
    params: Mapping[str, object],
    shape: tuple[int, int, int],
    dtype_bytes: int,
    version: str | None,
) -> _Case:
    complete = spec.complete(params)
    tokens, hidden, vocab = shape
    rows = _chunk_rows(spec, complete, shape, dtype_bytes)
    chunks = max(1, ceil_div(tokens, rows))
    symbols = {
        "N": tokens,
        "V": vocab,
        "NV": tokens * vocab,
        "CV": rows * vocab,
        "VH": vocab * hidden,
        "NH": tokens * hidden,
        "K": chunks,
        "KVH": chunks * vocab * hidden,
    }
    return _Case(version if spec.versions else None, complete, symbols, dtype_bytes)


def estimate_peak_bytes(
    spec: KernelSpec,
    params: Mapping[str, object],
    tokens: int,
    hidden: int,
    vocab: int,
    dtype_bytes: int,
    version: str | None = None,
) -> int:
    """Bytes alive at the peak of forward_backward: inputs, outputs and workspace.

    The allocator's rounding is not counted. `version` None means the newest.
    """
    chosen = version or (spec.versions[-1] if spec.versions else None)
    case = _case(spec, params, (tokens, hidden, vocab), dtype_bytes, chosen)
    memory, both = spec.memory, case.total(INPUTS_AND_OUTPUTS)
    workspace = max(case.total(memory.forward), case.total(memory.backward))
    # of NH and VH there are inputs and gradients
    gradients = case.total((Term("NH", elements=1), Term("VH", elements=1)))
    return int(both + max(workspace, case.total(memory.before_outputs) - gradients))


def estimate_seconds(
    spec: KernelSpec,
    params: Mapping[str, object],
    tokens: int,
    hidden: int,
    vocab: int,
    roof: Roof,
    version: str | None = None,
) -> float:
    """Seconds of one forward_backward: products at the product rate plus elementwise traffic.

    Good to about a third; it sizes jobs and is never shown as a result.
    """
    chosen = version or (spec.versions[-1] if spec.versions else None)
    case = _case(spec, params, (tokens, hidden, vocab), roof.dtype_bytes, chosen)
    products = spec.products["forward_backward"]
    flops = products * 2.0 * tokens * hidden * vocab
    launches = 10 + 8 * case.symbols["K"]
    return (
        spec.product_slowdown * flops / roof.flops_per_second
        + case.total(spec.traffic) / roof.bytes_per_second
        + launches * roof.launch_seconds
    )
