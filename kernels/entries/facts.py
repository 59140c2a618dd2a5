"""Sets and counts that several entries share."""

from __future__ import annotations

from ..kernel_spec import OPTIONS

__all__ = [
    "ALL_DTYPES",
    "AUTOGRAD_PRODUCTS",
    "FORWARD_PRODUCTS",
    "OPTIONS",
    "RECOMPUTED_PRODUCTS",
    "THREE_DTYPES",
]

ALL_DTYPES = frozenset({"bfloat16", "float16", "float32", "float64"})
THREE_DTYPES = frozenset({"bfloat16", "float16", "float32"})
AUTOGRAD_PRODUCTS = {"forward": 1, "backward": 2, "forward_backward": 3}
FORWARD_PRODUCTS = {"forward": 3, "backward": 0, "forward_backward": 3}
RECOMPUTED_PRODUCTS = {"forward": 1, "backward": 3, "forward_backward": 4}
"""The backward makes the logits again: nothing of size N x V is ever stored."""
