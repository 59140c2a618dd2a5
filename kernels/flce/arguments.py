"""What every version accepts: one clear error for each argument that cannot be."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .rows import RowOptions

_DTYPES = (torch.bfloat16, torch.float16, torch.float32, torch.float64)


def check_numbers(
    options: RowOptions, lse_square_scale: float, reduction: str, chunk_rows: int | None = None
) -> None:
    """Options on the host. Raises ValueError naming the argument."""
    if not 0.0 <= options.label_smoothing < 1.0:
        raise ValueError(f"label_smoothing={options.label_smoothing}: must be in [0, 1)")
    if options.softcap is not None and not 0.0 < options.softcap < math.inf:
        raise ValueError(f"softcap={options.softcap}: must be positive and finite, or None")
    scale = options.logit_scale
    if scale is not None and (scale == 0 or not math.isfinite(scale)):
        raise ValueError(f"logit_scale={scale}: must be finite and not 0, or None")
    if not math.isfinite(lse_square_scale):
        raise ValueError(f"lse_square_scale={lse_square_scale}: must be finite")
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"reduction={reduction!r}: must be 'none', 'mean' or 'sum'")
    if chunk_rows is not None and chunk_rows < 1:
        raise ValueError(f"chunk_rows={chunk_rows}: must be >= 1, or None")


def check_shapes(
    input: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None,
    class_weight: Tensor | None,
) -> None:
    """Shapes, devices and kinds of numbers. Raises ValueError naming the argument."""
    if weight.dim() != 2 or weight.shape[0] == 0:
        raise ValueError(f"weight has shape {tuple(weight.shape)}: must be (V, H) with V > 0")
    if input.dim() < 1 or input.shape[-1] != weight.shape[1]:
        raise ValueError(
            f"input has shape {tuple(input.shape)}: must be (..., {weight.shape[1]}), "
            f"as weight is {tuple(weight.shape)}"
        )
    if target.shape != input.shape[:-1]:
        raise ValueError(
            f"target has shape {tuple(target.shape)}: must be {tuple(input.shape[:-1])}"
        )
    if target.is_floating_point() or target.dtype is torch.bool:
        raise ValueError(f"target has dtype {target.dtype}: must be integers")
    for name, tensor in (("bias", bias), ("class_weight", class_weight)):
        if tensor is not None and tensor.shape != (weight.shape[0],):
            raise ValueError(
                f"{name} has shape {tuple(tensor.shape)}: must be ({weight.shape[0]},)"
            )
    for name, other in (("weight", weight), ("target", target), ("bias", bias)):
        if other is not None and other.device != input.device:
            raise ValueError(f"{name} is on {other.device}, input on {input.device}")


def product_dtype(input: Tensor, weight: Tensor, bias: Tensor | None) -> torch.dtype:
    """The dtype of the products: autocast's, or the one that all tensors share."""
    device_type = input.device.type
    if torch.is_autocast_enabled(device_type) and input.dtype is not torch.float64:
        return torch.get_autocast_dtype(device_type)
    if input.dtype not in _DTYPES:
        raise ValueError(f"input has dtype {input.dtype}: must be bf16, fp16, fp32 or fp64")
    for name, tensor in (("weight", weight), ("bias", bias)):
        if tensor is not None and tensor.dtype != input.dtype:
            raise ValueError(
                f"{name} has dtype {tensor.dtype}, input {input.dtype}: must agree outside autocast"
            )
    return input.dtype


def check_labels(target: Tensor, ignore_index: int, vocab: int) -> None:
    """On the CPU only: reading labels on a GPU would synchronise with it."""
    if target.device.type != "cpu" or target.numel() == 0:
        return
    outside = (target != ignore_index) & ((target < 0) | (target >= vocab))
    if bool(outside.any()):
        label = int(target[outside][0])
        raise ValueError(f"target has label {label}: must be in [0, {vocab}) or {ignore_index}")
