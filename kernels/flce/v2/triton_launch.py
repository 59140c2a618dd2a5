"""Launches of the row passes in Triton; the same functions as `torch_rows`."""

# mypy: allow-untyped-calls, allow-any-expr
from __future__ import annotations

import contextlib
from typing import Any

import torch
import triton
from torch import Tensor

from ...chunk_rules import ceil_div
from ..rows import RowOptions, RowTensors
from . import triton_rows as kernels
from .results import RowResults

LARGEST_BLOCK = 4096
FEW_ROWS = 512
"""Fewer rows than this are shared among programs, or most of the device would stand still."""
PARTS = 8
SCALE_BLOCK = 4096
SCALE_PROGRAMS = 1024


def _on_device_of(tensor: Tensor) -> contextlib.AbstractContextManager[object]:
    """Triton launches on the current device, which need not be the tensor's."""
    if tensor.device.type == "cuda":
        return torch.cuda.device(tensor.device)
    return contextlib.nullcontext()


def _numbers(options: RowOptions) -> dict[str, Any]:
    return {
        "ignore_index": options.ignore_index,
        "label_smoothing": options.label_smoothing,
        "softcap": 1.0 if options.softcap is None else options.softcap,
        "logit_scale": 1.0 if options.logit_scale is None else options.logit_scale,
        "HAS_SMOOTHING": options.label_smoothing != 0,
        "HAS_SOFTCAP": options.softcap is not None,
        "HAS_CLASS_WEIGHT": False,
    }


def _pointers(tensors: RowTensors, stand_in: Tensor) -> dict[str, Any]:
    """Pointers of the optional tensors, and flags that say which there are."""
    found: dict[str, Any] = {}
    for name in ("class_weight", "class_weight_sum", "lse_square_scale"):
        tensor = getattr(tensors, name)
        found[f"{name}_ptr"] = stand_in if tensor is None else tensor
    found["HAS_CLASS_WEIGHT"] = tensors.class_weight is not None
    found["HAS_LSE_SQUARE"] = tensors.lse_square_scale is not None
    return found


def _scales(tensors: RowTensors, stand_in: Tensor) -> dict[str, Any]:
    """The same for the factors of the gradient."""
    gradient, row = tensors.gradient_scale, tensors.row_scale
    return {
        "gradient_scale_ptr": stand_in if gradient is None else gradient,
        "row_scale_ptr": stand_in if row is None else row,
        "HAS_GRADIENT_SCALE": gradient is not None,
        "HAS_ROW_SCALE": row is not None,
    }


def _tile(columns: int) -> dict[str, int]:
    block = min(LARGEST_BLOCK, triton.next_power_of_2(columns))
    return {"BLOCK_V": block, "num_warps": 8 if block >= 2048 else 4}


def write_loss(
    logits: Tensor,
    target: Tensor,
    results: RowResults,
    options: RowOptions,
    tensors: RowTensors,
    with_gradient: bool,
) -> None:
    """Loss, log-sum-exp and hit of each row into `results`; if asked, dZ over `logits`.

    logits (rows, V) with unit column stride, bf16, fp16 or fp32; target (rows,) int64, contiguous.
    An ignored row gives 0 everywhere; a label outside the vocabulary makes loss and dZ NaN.
    """
    rows, vocab = logits.shape
    if rows == 0:
        return
    if rows < FEW_ROWS:
        _write_shared_rows(logits, target, results, options, tensors)
        if with_gradient:
            write_gradient(logits, target, results.lse, options, tensors, slice(0, vocab))
        return
    with _on_device_of(logits):
        kernels._row_kernel[(rows,)](
            logits,
            logits.stride(0),
            target,
            V=vocab,
            WITH_GRADIENT=with_gradient,
            **_stored(results),
            **_numbers(options) | _pointers(tensors, results.loss),
            **_scales(tensors, results.loss),
            **_tile(vocab),
        )


def _stored(results: RowResults) -> dict[str, Tensor]:
    return {"loss_ptr": results.loss, "lse_ptr": results.lse, "hit_ptr": results.hit}


def _write_shared_rows(
    logits: Tensor, target: Tensor, results: RowResults, options: RowOptions, tensors: RowTensors
) -> None:
    """Loss, log-sum-exp and hit, each row shared among programs."""
    rows, vocab = logits.shape
    numbers = _numbers(options) | _pointers(tensors, results.loss)
    part = _part_columns(vocab, PARTS)
    partial = torch.empty(rows, 3, PARTS, dtype=torch.float32, device=logits.device)
    own = ("class_weight_ptr", "ignore_index", "softcap", "logit_scale")
    flags = ("HAS_CLASS_WEIGHT", "HAS_SMOOTHING", "HAS_SOFTCAP")
    with _on_device_of(logits):
        kernels._statistics_kernel[(rows, PARTS)](
            logits,
            logits.stride(0),
            target,
            partial,
            V=vocab,
            part_columns=part,
            PARTS=PARTS,
            **{name: numbers[name] for name in own + flags},
            **_tile(part),
        )
        kernels._loss_kernel[(rows,)](
            logits,
            logits.stride(0),
            target,
            partial,
            V=vocab,
            PARTS=PARTS,
            num_warps=1,
            **_stored(results),
            **numbers,
        )


def write_gradient(
    logits: Tensor,
    target: Tensor,
    lse: Tensor,
    options: RowOptions,
    tensors: RowTensors,
    columns: slice,
    vocab: int | None = None,
) -> None:
    """dZ over `logits` (rows, columns of these classes) from each row's log-sum-exp.

    `vocab`: V where the columns are a block of it.
    """
    rows, width = logits.shape
    if rows == 0 or width == 0:
        return
    parts = PARTS if rows < FEW_ROWS else max(1, min(PARTS, width // LARGEST_BLOCK))
    part = _part_columns(width, parts)
    with _on_device_of(logits):
        kernels._gradient_kernel[(rows, triton.cdiv(width, part))](
            logits,
            logits.stride(0),
            target,
            lse,
            first=columns.start,
            columns=width,
            part_columns=part,
            V=width if vocab is None else vocab,
            **_numbers(options) | _pointers(tensors, lse),
            **_scales(tensors, lse),
            **_tile(part),
        )


def _part_columns(columns: int, parts: int) -> int:
    """Columns of a part: a multiple of 128, so that each begins at a whole cache line."""
    return max(128, ceil_div(ceil_div(columns, parts), 128) * 128)


def scale_in_place(gradient: Tensor, scale: Tensor) -> None:
    """gradient x scale, rounded once; nothing is read or written where scale (1,) is 1."""
    if gradient.numel() == 0:
        return
    with _on_device_of(gradient):
        programs = min(SCALE_PROGRAMS, triton.cdiv(gradient.numel(), SCALE_BLOCK))
        kernels._scale_kernel[(programs,)](
            gradient, scale, gradient.numel(), BLOCK=SCALE_BLOCK, num_warps=4
        )
