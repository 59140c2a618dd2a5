"""Row pass in Triton: loss of each row, and dZ written over the logits.

    row = (1 - e) w_y (lse - z_y) + e/V sum_c w_c (lse - z_c) + s lse^2
    dz_c = [(1 - e) w_y + e/V sum w + 2 s lse] p_c - (1 - e) w_y [c = y] - e/V w_c

with z = softcap tanh(logit_scale logits / softcap), in float32.

Bytes moved: two reads and one write of the logits (6 N V in bf16); one read without gradients.
Source: online softmax, Milakov and Gimelshein 2018 (arXiv 1805.02867).
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
import contextlib

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..rows import RowOptions, RowTensors

# 8192 x 128256 bf16 on an H200 (2026-11-30): 4.05 TB/s with 4096 lanes and 8 warps, 3.62 with 2048,
# 3.82 with 8192 and 16 warps, 3.02 with 32768.
_LARGEST_BLOCK = 4096
_SCALE_BLOCK = 4096


@triton.jit
def cap(raw, logit_scale, softcap, HAS_SOFTCAP: tl.constexpr):
    """Capped logits and d capped / d scaled, from e = exp(-2 |u|), exact for large |u|."""
    z = raw.to(tl.float32) * logit_scale
    slope = tl.full(z.shape, 1.0, tl.float32)
    if HAS_SOFTCAP:
        u = z / softcap
        e = tl.exp(-2.0 * tl.abs(u))
        tanh = (1.0 - e) / (1.0 + e)
        z = softcap * tl.where(u < 0, -tanh, tanh)
        slope = 4.0 * e / ((1.0 + e) * (1.0 + e))
    return z, slope


@triton.jit
def _row_kernel(  # noqa: C901, PLR0913
    logits_ptr,
    stride_n,
    target_ptr,
    loss_ptr,
    class_weight_ptr,
    class_weight_sum_ptr,
    lse_square_scale_ptr,
    gradient_scale_ptr,
    row_scale_ptr,
    V,
    ignore_index,
    label_smoothing,
    softcap,
    logit_scale,
    HAS_CLASS_WEIGHT: tl.constexpr,
    HAS_SMOOTHING: tl.constexpr,
    HAS_LSE_SQUARE: tl.constexpr,
    HAS_GRADIENT_SCALE: tl.constexpr,
    HAS_ROW_SCALE: tl.constexpr,
    HAS_SOFTCAP: tl.constexpr,
    WITH_GRADIENT: tl.constexpr,
    BLOCK_V: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    row_ptr = logits_ptr + row * stride_n
    target = tl.load(target_ptr + row)
    lanes = tl.arange(0, BLOCK_V)
    if target == ignore_index:
        tl.store(loss_ptr + row, 0.0)
        if WITH_GRADIENT:
            for start in range(0, V, BLOCK_V):
                offs_v = start + lanes
                zero = tl.zeros((BLOCK_V,), dtype=logits_ptr.dtype.element_ty)
                tl.store(row_ptr + offs_v, zero, mask=offs_v < V)
        return

    # A running maximum of -inf would give -inf - -inf = NaN while only masked classes were seen.
    largest = -float("inf")
    total = 0.0
    weighted = 0.0
    for start in range(0, V, BLOCK_V):
        offs_v = start + lanes
        mask_v = offs_v < V
        raw = tl.load(row_ptr + offs_v, mask=mask_v, other=0.0)
        z, _ = cap(raw, logit_scale, softcap, HAS_SOFTCAP)
        if HAS_SMOOTHING:
            if HAS_CLASS_WEIGHT:
                weight = tl.load(class_weight_ptr + offs_v, mask=mask_v, other=0.0)
                weighted += tl.sum(tl.where(mask_v, z * weight, 0.0))
            else:
                weighted += tl.sum(tl.where(mask_v, z, 0.0))
        # Padded lanes leave after the cap, which would lift them to -softcap.
        z = tl.where(mask_v, z, -float("inf"))
        new_largest = tl.maximum(largest, tl.max(z))
        anchor = tl.where(new_largest == -float("inf"), 0.0, new_largest)
        total = total * tl.exp(largest - anchor) + tl.sum(tl.exp(z - anchor))
        largest = new_largest

    log_total = tl.log(total)
    lse = largest + log_total
    inside = (target >= 0) & (target < V)
    raw_target = tl.load(row_ptr + target, mask=inside, other=0.0)
    z_target, _ = cap(raw_target, logit_scale, softcap, HAS_SOFTCAP)
    to_target = 1.0 - label_smoothing
    if HAS_CLASS_WEIGHT:
        to_target *= tl.load(class_weight_ptr + target, mask=inside, other=0.0)
    loss = to_target * (log_total - (z_target - largest))
    to_softmax = to_target
    smooth = label_smoothing / V
    if HAS_SMOOTHING:
        weight_sum = V * 1.0
        if HAS_CLASS_WEIGHT:
            weight_sum = tl.load(class_weight_sum_ptr)
        loss += smooth * (weight_sum * lse - weighted)
        to_softmax += smooth * weight_sum
    if HAS_LSE_SQUARE:
        lse_square_scale = tl.load(lse_square_scale_ptr)
        loss += lse_square_scale * lse * lse
        to_softmax += 2.0 * lse_square_scale * lse
    # A label outside the vocabulary must never give a plausible number.
    poison = tl.where(inside, 1.0, float("nan"))
    tl.store(loss_ptr + row, loss * poison)

    if WITH_GRADIENT:
        factor = logit_scale * poison
        if HAS_GRADIENT_SCALE:
            factor *= tl.load(gradient_scale_ptr)
        if HAS_ROW_SCALE:
            factor *= tl.load(row_scale_ptr + row)
        inverse_total = 1.0 / total
        for start in range(0, V, BLOCK_V):
            offs_v = start + lanes
            mask_v = offs_v < V
            raw = tl.load(row_ptr + offs_v, mask=mask_v, other=0.0)
            z, slope = cap(raw, logit_scale, softcap, HAS_SOFTCAP)
            probability = tl.exp(z - largest) * inverse_total
            gradient = to_softmax * probability
            if HAS_SMOOTHING:
                if HAS_CLASS_WEIGHT:
                    gradient -= smooth * tl.load(class_weight_ptr + offs_v, mask=mask_v, other=0.0)
                else:
                    gradient -= smooth
            gradient = tl.where(offs_v == target, gradient - to_target, gradient)
            gradient *= slope * factor
            tl.store(row_ptr + offs_v, gradient.to(logits_ptr.dtype.element_ty), mask=mask_v)


@triton.jit
def _scale_kernel(out_ptr, in_ptr, scale_ptr, size, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < size
    scaled = tl.load(in_ptr + offsets, mask=mask, other=0.0).to(tl.float32) * tl.load(scale_ptr)
    tl.store(out_ptr + offsets, scaled.to(out_ptr.dtype.element_ty), mask=mask)


def _on_device_of(tensor: Tensor) -> contextlib.AbstractContextManager[object]:
    """Triton launches on the current device, which need not be the tensor's."""
    if tensor.device.type == "cuda":
        return torch.cuda.device(tensor.device)
    return contextlib.nullcontext()


def _pointer(tensor: Tensor | None, stand_in: Tensor) -> Tensor:
    return stand_in if tensor is None else tensor


def cross_entropy_in_place(
    logits: Tensor,
    target: Tensor,
    loss: Tensor,
    options: RowOptions,
    tensors: RowTensors,
    with_gradient: bool,
) -> None:
    """Write the loss of each row into `loss` and, if asked, dZ into `logits`.

    logits (rows, V) with unit column stride, bf16, fp16 or fp32; target (rows,) int64, contiguous;
    loss (rows,) float32. An ignored row has loss 0 and gradient 0; a label outside the vocabulary
    makes both NaN.
    """
    rows, vocab = logits.shape
    if rows == 0:
        return
    block = min(_LARGEST_BLOCK, triton.next_power_of_2(vocab))
    with _on_device_of(logits):
        _row_kernel[(rows,)](
            logits,
            logits.stride(0),
            target,
            loss,
            _pointer(tensors.class_weight, loss),
            _pointer(tensors.class_weight_sum, loss),
            _pointer(tensors.lse_square_scale, loss),
            _pointer(tensors.gradient_scale, loss),
            _pointer(tensors.row_scale, loss),
            vocab,
            options.ignore_index,
            options.label_smoothing,
            1.0 if options.softcap is None else options.softcap,
            1.0 if options.logit_scale is None else options.logit_scale,
            HAS_CLASS_WEIGHT=tensors.class_weight is not None,
            HAS_SMOOTHING=options.label_smoothing != 0,
            HAS_LSE_SQUARE=tensors.lse_square_scale is not None,
            HAS_GRADIENT_SCALE=tensors.gradient_scale is not None,
            HAS_ROW_SCALE=tensors.row_scale is not None,
            HAS_SOFTCAP=options.softcap is not None,
            WITH_GRADIENT=with_gradient,
            BLOCK_V=block,
            num_warps=8 if block >= 2048 else 4,
        )


def scale_into(out: Tensor, gradient: Tensor, scale: Tensor) -> None:
    """out = gradient x scale, rounded once; both contiguous, scale (1,) float32."""
    if gradient.numel() == 0:
        return
    with _on_device_of(gradient):
        _scale_kernel[(triton.cdiv(gradient.numel(), _SCALE_BLOCK),)](
            out, gradient, scale, gradient.numel(), BLOCK=_SCALE_BLOCK, num_warps=4
        )
