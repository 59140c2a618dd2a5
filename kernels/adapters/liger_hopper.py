"""liger's two other implementations of this loss, both for Hopper alone: CuTe DSL and cuTile.

CuTe DSL's is called directly: LIGER_KERNEL_IMPL=cutedsl leads to the one for sm_100 alone.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..errors import UnsupportedHere
from ..kernel_spec import ParamValue
from ..protocol import LossFunction
from .loss_options import LossOptions

_PLACES = {
    "cutedsl": ("fused_linear_cross_entropy_sm90", "LigerFusedLinearCrossEntropySM90Function"),
    "cutile": ("fused_linear_cross_entropy", "LigerFusedLinearCrossEntropyFunction"),
}
_PIECES = ("tileiras", "driver version")  # named by cuTile where it misses one


def on_hopper(tensor: Tensor) -> bool:
    """Whether it lies on a GPU of compute capability 9.0."""
    return tensor.is_cuda and torch.cuda.get_device_capability(tensor.device) == (9, 0)


def _refuse(impl: str, input: Tensor, vocab: int) -> None:
    if not on_hopper(input):
        raise UnsupportedHere(f"liger's {impl} needs a Hopper GPU (sm_90)")
    if input.dtype is not torch.bfloat16:
        raise UnsupportedHere(f"liger's {impl} takes bfloat16 only; here is {input.dtype}")
    if impl == "cutedsl" and (input.shape[0] % 128 or vocab % 256):
        raise UnsupportedHere("liger's cutedsl needs N % 128 == 0 and V % 256 == 0")


def _linear_cross_entropy(
    input: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None = None,
    *,
    function: Any,
    impl: str,
    **options: Any,
) -> Tensor:
    asked = LossOptions(bias, **options)
    asked.refuse_beyond(f"liger's {impl}", frozenset({"reduction_sum"}))
    _refuse(impl, input, weight.shape[0])
    rest: tuple[object, ...] = (asked.ignore_index, asked.reduction)
    if impl == "cutile":
        rest = (None, None, asked.ignore_index, 0.0, 0.0, asked.reduction)
    try:
        result = function.apply(input, weight, target, *rest)
    except (FileNotFoundError, RuntimeError) as error:
        if any(piece in str(error) for piece in _PIECES):
            raise UnsupportedHere(f"liger's {impl}: {error}") from error
        raise
    return result[0] if isinstance(result, tuple) else result  # type: ignore[no-any-return]


def build(impl: str, params: Mapping[str, ParamValue]) -> LossFunction:
    """The implementation "cutedsl" or "cutile" of the release on the path.

    Raises: UnsupportedHere for params of the Triton one, or if what it needs does not import:
    liger raises RuntimeError where LIGER_KERNEL_IMPL names what the device cannot run.
    """
    if params.get("accum_dtype") is not None or params.get("chunk_mem_const", 1) != 1:
        raise UnsupportedHere(f"liger's {impl} has neither accum_dtype nor chunk_mem_const")
    module, name = _PLACES[impl]
    try:
        function = getattr(importlib.import_module(f"liger_kernel.ops.{impl}.ops.{module}"), name)
    except (ImportError, AttributeError, RuntimeError) as error:
        raise UnsupportedHere(f"liger's {impl} does not import here: {error}") from error
    return partial(_linear_cross_entropy, function=function, impl=impl)
