"""How each kernel splits N tokens into chunks: pure arithmetic, shared by ops and estimates."""

from __future__ import annotations

# One pass is the fastest and most exact plan wherever it fits; 2 GiB of logits fit beside any
# model that trains on an 80 GB card.
SINGLE_CHUNK_BYTES = 2 * 2**30
# Below 4096 rows the fp32 read-modify-write of dW costs over 18 % of its product on an H200.
MINIMUM_CHUNK_ROWS = 4096
# Tensor-core tiles are at most 128 rows tall.
ROW_MULTIPLE = 128


def ceil_div(value: int, divisor: int) -> int:
    """Smallest integer >= value / divisor."""
    return -(-value // divisor)


def flce_chunk_rows(
    tokens: int, hidden: int, vocab: int, dtype_bytes: int, chunk_rows: int | None = None
) -> int:
    """Rows per chunk of flce version 1; the last chunk may have fewer.

    A single chunk if the logits take at most max(4 V H bytes, 2 GiB), else balanced chunks of at
    least 4096 rows. A given `chunk_rows` is kept.
    """
    if chunk_rows is not None:
        return max(1, min(chunk_rows, tokens))
    if dtype_bytes * tokens * vocab <= max(4 * vocab * hidden, SINGLE_CHUNK_BYTES):
        return max(1, tokens)
    chunks = max(1, tokens // MINIMUM_CHUNK_ROWS)
    rows = ceil_div(ceil_div(tokens, chunks), ROW_MULTIPLE) * ROW_MULTIPLE
    return min(rows, tokens)


def _power_of_two(value: int) -> int:
    """Smallest power of two >= value, for a value >= 1."""
    return 1 << (value - 1).bit_length()


def liger_chunk_rows(tokens: int, hidden: int, vocab: int, chunk_mem_const: int = 1) -> int:
    """Rows per chunk of Liger's default rule: a power of two near N / ceil(V / (k H))."""
    if tokens == 0:
        return 1
    chunks = ceil_div(vocab, chunk_mem_const * hidden)
    return min(tokens, _power_of_two(ceil_div(tokens, chunks)))


def split_chunk_rows(tokens: int, hidden: int, vocab: int, most_chunks: int) -> int:
    """Rows per chunk of FLA: a power of two, for at most `most_chunks` and ceil(V / H) chunks."""
    if tokens == 0:
        return 1
    return min(tokens, _power_of_two(ceil_div(tokens, min(most_chunks, ceil_div(vocab, hidden)))))


def aspect_chunk_rows(tokens: int, hidden: int, vocab: int, chunk_rows: int | None = None) -> int:
    """Rows per chunk of torch 2.13's "aspect_ratio:2": half of Liger's. A given size is kept."""
    if chunk_rows is not None:
        return max(1, min(chunk_rows, tokens))
    return max(1, _power_of_two(max(1, ceil_div(tokens, ceil_div(vocab, hidden)))) // 2)


def even_chunk_rows(tokens: int, chunk_rows: int) -> int:
    """Rows per chunk when N is split evenly into chunks of at most `chunk_rows`."""
    return max(1, ceil_div(tokens, max(1, ceil_div(tokens, chunk_rows))))
