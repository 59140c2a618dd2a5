"""flce as a contender of the catalogue."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from ..kernel_spec import ParamValue
from ..protocol import LossFunction
from .v1.op import linear_cross_entropy


def build(version: str | None, params: Mapping[str, ParamValue]) -> LossFunction:
    """The normalised call with `chunk_rows` fixed. Version "1" is the only one."""
    if version not in (None, "1"):
        raise ValueError(f"flce has no version {version!r}: must be '1'")
    rows = params.get("chunk_rows")
    return partial(linear_cross_entropy, chunk_rows=None if rows is None else int(rows))
