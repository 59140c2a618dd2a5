"""liger: every release through its autograd function, called by the names in its signature.

The package is whatever `liger_kernel` is first on the path: the caller puts a version's own folder
there. The `transformers` sub-package of old releases does not import today and is not touched.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..errors import UnsupportedHere
from ..kernel_spec import ParamValue
from ..protocol import LossFunction, Reduction
from . import liger_hopper
from .interpreter_gaps import fill_gaps

_MODULE = "liger_kernel.ops.fused_linear_cross_entropy"
_ROW_MODULE = "liger_kernel.ops.cross_entropy"
_FUNCTION = "LigerFusedLinearCrossEntropyFunction"

# Liger's own default of each optional argument, under our word for it: only another value needs
# the release to have the parameter.
_NEUTRAL: Mapping[str, object] = {
    "bias": None,
    "ce_weight": None,
    "ignore_index": -100,
    "lse_square_scale": 0.0,
    "label_smoothing": 0.0,
    "reduction": "mean",
    "softcap": None,
    "accum_dtype": None,
    "chunk_mem_const": 1,
}
_OUR_WORD = {"ce_weight": "class_weight"}


@dataclass(frozen=True)
class _Signature:
    """Parameters of the release's forward after ctx: name to default (`empty` if required)."""

    defaults: Mapping[str, object]

    @property
    def positional(self) -> tuple[str, ...]:
        return tuple(self.defaults)


def _read_signature(function: Any) -> _Signature:
    parameters = list(inspect.signature(function.forward).parameters.values())[1:]
    known = {"_input", "weight", "linear", "target", *_NEUTRAL}
    for parameter in parameters:
        required = parameter.default is inspect.Parameter.empty
        if parameter.kind is not inspect.Parameter.POSITIONAL_OR_KEYWORD or (
            required and parameter.name not in known
        ):
            raise UnsupportedHere(f"liger's forward asks for {parameter.name!r}, unknown here")
    return _Signature({parameter.name: parameter.default for parameter in parameters})


def _arguments(
    signature: _Signature, tensors: Mapping[str, object], options: Mapping[str, object]
) -> list[object]:
    """Values in the order of the signature. Raises: UnsupportedHere for an option it lacks."""
    for name, value in options.items():
        if name not in signature.defaults and value != _NEUTRAL[name]:
            word = _OUR_WORD.get(name, name)
            raise UnsupportedHere(f"this release of liger has no {word}")
    given = {**tensors, **options}
    return [given.get(name, default) for name, default in signature.defaults.items()]


def _linear_cross_entropy(  # noqa: PLR0913
    input: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None = None,
    *,
    class_weight: Tensor | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    softcap: float | None = None,
    logit_scale: float | None = None,
    lse_square_scale: float = 0.0,
    reduction: Reduction = "mean",
    function: Any,
    signature: _Signature,
    settings: Mapping[str, object],
) -> Tensor:
    if logit_scale is not None and logit_scale != 1:
        raise UnsupportedHere("liger has no logit_scale")
    options = {
        "ignore_index": ignore_index,
        "lse_square_scale": lse_square_scale,
        "label_smoothing": label_smoothing,
        "reduction": reduction,
        "softcap": softcap,
        **settings,
    }
    optional = {"bias": bias, "ce_weight": class_weight}
    for name, tensor in optional.items():
        if tensor is not None and name not in signature.defaults:
            word = _OUR_WORD.get(name, name)
            raise UnsupportedHere(f"this release of liger has no {word}")
    tensors = {"_input": input, "weight": weight, "linear": weight, "target": target, **optional}
    result = function.apply(*_arguments(signature, tensors, options))
    # A tuple (loss, z_loss, ...) since 0.5.3; its length grew with later releases.
    loss: Tensor = result[0] if isinstance(result, tuple) else result
    return loss


def build(version: str | None, params: Mapping[str, ParamValue]) -> LossFunction:
    """The release on the path as a contender; `version` is not looked at.

    Raises: UnsupportedHere if the package does not import or its signature is unknown.
    """
    impl = str(params.get("impl", "triton"))
    if impl != "triton":
        return liger_hopper.build(impl, params)
    try:
        module = importlib.import_module(_MODULE)
        function = getattr(module, _FUNCTION)
        fill_gaps(module, importlib.import_module(_ROW_MODULE))
    except (ImportError, AttributeError) as error:
        raise UnsupportedHere(f"liger does not import here: {error}") from error
    accum_dtype = params.get("accum_dtype")
    settings = {
        "accum_dtype": None if accum_dtype is None else getattr(torch, str(accum_dtype)),
        "chunk_mem_const": params.get("chunk_mem_const", 1),
    }
    signature = _read_signature(function)
    return partial(_linear_cross_entropy, function=function, signature=signature, settings=settings)
