"""geiping: Jonas Geiping's linear_cross_entropy, from a checkout that the operator points to.

Its weight is (H, V): ours goes in as a transposed view, without a copy, and its gradient comes back
through the view. It checks no bounds, so sizes that its author excludes are refused here.
Source: linear_cross_entropy/ops.py at 3da8e5f.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from torch import Tensor

from ..errors import UnsupportedHere
from ..kernel_spec import ParamValue
from ..protocol import LossFunction
from .loss_options import LossOptions

_HAS = frozenset({"logit_scale", "lse_square_scale"})


def _refuse_sizes(tokens: int, hidden: int, vocab: int, chunk_rows: int) -> None:
    limits = {
        "N": (tokens, 512),
        "H": (hidden, 256),
        "V": (vocab, 4096),
        "chunk_rows": (chunk_rows, 512),
    }
    for name, (size, multiple) in limits.items():
        if size % multiple:
            raise UnsupportedHere(f"geiping needs {name} % {multiple} == 0; here is {size}")
    if tokens > chunk_rows and tokens % chunk_rows:
        raise UnsupportedHere(f"geiping needs N % {chunk_rows} == 0 above that; here is {tokens}")


def _linear_cross_entropy(
    input: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None = None,
    *,
    function: Callable[..., tuple[Tensor, ...]],
    chunk_rows: int,
    **options: Any,
) -> Tensor:
    asked = LossOptions(bias, **options)
    asked.refuse_beyond("geiping", _HAS)
    _refuse_sizes(input.shape[0], input.shape[1], weight.shape[0], chunk_rows)
    # loss, then figures of its monitoring
    return function(
        input,
        target,
        weight.t(),
        ignore_index=asked.ignore_index,
        z_regularization=asked.lse_square_scale,
        logit_scale=1.0 if asked.logit_scale is None else asked.logit_scale,
        N_chunk_size=chunk_rows,
    )[0]


def build(version: str | None, params: Mapping[str, ParamValue]) -> LossFunction:
    """The checkout on the path as a contender; `version` is not looked at.

    Raises: UnsupportedHere if there is none, or another package has its name.
    """
    try:
        function = importlib.import_module("linear_cross_entropy").linear_cross_entropy
    except (ImportError, AttributeError) as error:
        raise UnsupportedHere(f"geiping does not import here: {error}") from error
    chunk_rows = int(params.get("chunk_rows") or 4096)
    return partial(_linear_cross_entropy, function=function, chunk_rows=chunk_rows)
