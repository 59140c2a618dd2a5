"""Sizes of the trained models: plain data, no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Shape:
    """Sizes of a model: `layers`, `hidden` H, attention `heads`, width of the `mlp`."""

    layers: int
    hidden: int
    heads: int
    mlp: int

    @property
    def head_size(self) -> int:
        """Width of one attention head."""
        return self.hidden // self.heads

    def parameters(self, vocab: int, tied: bool) -> int:
        """Number of parameters, embedding and head included."""
        layer = 4 * self.hidden**2 + 3 * self.hidden * self.mlp + 2 * self.hidden
        tables = vocab * self.hidden * (1 if tied else 2)
        return self.layers * layer + self.hidden + tables


SIZES: Mapping[str, Shape] = {
    "1m": Shape(layers=2, hidden=192, heads=3, mlp=512),
    "10m": Shape(layers=6, hidden=384, heads=6, mlp=1024),
    "40m": Shape(layers=8, hidden=640, heads=10, mlp=1728),
    "120m": Shape(layers=12, hidden=896, heads=14, mlp=2432),
    "370m": Shape(layers=24, hidden=1024, heads=16, mlp=2752),
}
"""By about the number of parameters: 370m with two tables of 32k rows, 1m and 10m with bytes."""


def shape_of(size: str) -> Shape:
    """The preset. Raises ValueError naming the ones there are."""
    if size not in SIZES:
        raise ValueError(f"size={size!r}: must be one of {', '.join(SIZES)}")
    return SIZES[size]
