"""Parts of the row passes: device functions of the kernels in `triton_rows`.

    row = (1 - e) w_y (lse - z_y) + e/V sum_c w_c (lse - z_c) + s lse^2
    dz_c = [(1 - e) w_y + e/V sum w + 2 s lse] p_c - (1 - e) w_y [c = y] - e/V w_c
    p_c = exp(z_c - lse)

with z = softcap tanh(logit_scale logits / softcap), in float32. dZ of any block of columns follows
from the row's log-sum-exp alone, so a second sweep over the vocabulary needs no statistics.
Source: online softmax, Milakov and Gimelshein 2018 (arXiv 1805.02867).
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
import triton
import triton.language as tl

from ..v1.triton_cross_entropy import cap


@triton.jit
def statistics(  # noqa: PLR0913
    row_ptr,
    class_weight_ptr,
    begin,
    end,
    softcap,
    logit_scale,
    HAS_CLASS_WEIGHT: tl.constexpr,
    HAS_SMOOTHING: tl.constexpr,
    HAS_SOFTCAP: tl.constexpr,
    BLOCK_V: tl.constexpr,
):
    """Of columns begin to end: largest z, sum of exp(z - largest), weighted sum of z."""
    lanes = tl.arange(0, BLOCK_V)
    # A running maximum of -inf would give -inf - -inf = NaN while only masked classes were seen.
    largest = -float("inf")
    total = 0.0
    weighted = 0.0
    for start in range(begin, end, BLOCK_V):
        offs_v = start + lanes
        mask_v = offs_v < end
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
    return largest, total, weighted


@triton.jit
def store_row(  # noqa: PLR0913
    row,
    row_ptr,
    target,
    largest,
    total,
    weighted,
    loss_ptr,
    lse_ptr,
    hit_ptr,
    class_weight_ptr,
    class_weight_sum_ptr,
    lse_square_scale_ptr,
    V,
    label_smoothing,
    softcap,
    logit_scale,
    HAS_CLASS_WEIGHT: tl.constexpr,
    HAS_SMOOTHING: tl.constexpr,
    HAS_LSE_SQUARE: tl.constexpr,
    HAS_SOFTCAP: tl.constexpr,
):
    """Loss, log-sum-exp and hit of a row from its statistics; returns the log-sum-exp."""
    log_total = tl.log(total)
    lse = largest + log_total
    inside = (target >= 0) & (target < V)
    raw_target = tl.load(row_ptr + target, mask=inside, other=0.0)
    z_target, _ = cap(raw_target, logit_scale, softcap, HAS_SOFTCAP)
    to_target = 1.0 - label_smoothing
    if HAS_CLASS_WEIGHT:
        to_target *= tl.load(class_weight_ptr + target, mask=inside, other=0.0)
    loss = to_target * (log_total - (z_target - largest))
    if HAS_SMOOTHING:
        weight_sum = V * 1.0
        if HAS_CLASS_WEIGHT:
            weight_sum = tl.load(class_weight_sum_ptr)
        loss += label_smoothing / V * (weight_sum * lse - weighted)
    if HAS_LSE_SQUARE:
        loss += tl.load(lse_square_scale_ptr) * lse * lse
    # A label outside the vocabulary must never give a plausible number.
    tl.store(loss_ptr + row, tl.where(inside, loss, float("nan")))
    tl.store(lse_ptr + row, lse)
    tl.store(hit_ptr + row, tl.where(z_target >= largest, 1.0, 0.0))
    return lse


@triton.jit
def write_gradient(  # noqa: PLR0913
    row,
    row_ptr,
    target,
    lse,
    first,
    begin,
    end,
    class_weight_ptr,
    class_weight_sum_ptr,
    lse_square_scale_ptr,
    gradient_scale_ptr,
    row_scale_ptr,
    V,
    label_smoothing,
    softcap,
    logit_scale,
    HAS_CLASS_WEIGHT: tl.constexpr,
    HAS_SMOOTHING: tl.constexpr,
    HAS_LSE_SQUARE: tl.constexpr,
    HAS_GRADIENT_SCALE: tl.constexpr,
    HAS_ROW_SCALE: tl.constexpr,
    HAS_SOFTCAP: tl.constexpr,
    BLOCK_V: tl.constexpr,
):
    """dZ over columns begin to end of a row whose first column is class `first` of V."""
    lanes = tl.arange(0, BLOCK_V)
    inside = (target >= 0) & (target < V)
    to_target = 1.0 - label_smoothing
    if HAS_CLASS_WEIGHT:
        to_target *= tl.load(class_weight_ptr + target, mask=inside, other=0.0)
    to_softmax = to_target
    smooth = label_smoothing / V
    if HAS_SMOOTHING:
        weight_sum = V * 1.0
        if HAS_CLASS_WEIGHT:
            weight_sum = tl.load(class_weight_sum_ptr)
        to_softmax += smooth * weight_sum
    if HAS_LSE_SQUARE:
        to_softmax += 2.0 * tl.load(lse_square_scale_ptr) * lse
    factor = tl.where(inside, logit_scale, float("nan"))
    if HAS_GRADIENT_SCALE:
        factor *= tl.load(gradient_scale_ptr)
    if HAS_ROW_SCALE:
        factor *= tl.load(row_scale_ptr + row)
    for start in range(begin, end, BLOCK_V):
        offs_v = start + lanes
        mask_v = offs_v < end
        raw = tl.load(row_ptr + offs_v, mask=mask_v, other=0.0)
        z, slope = cap(raw, logit_scale, softcap, HAS_SOFTCAP)
        gradient = to_softmax * tl.exp(z - lse)
        if HAS_SMOOTHING:
            if HAS_CLASS_WEIGHT:
                weight = tl.load(class_weight_ptr + first + offs_v, mask=mask_v, other=0.0)
                gradient -= smooth * weight
            else:
                gradient -= smooth
        gradient = tl.where(first + offs_v == target, gradient - to_target, gradient)
        gradient *= slope * factor
        tl.store(row_ptr + offs_v, gradient.to(row_ptr.dtype.element_ty), mask=mask_v)


@triton.jit
def write_zeros(row_ptr, begin, end, BLOCK_V: tl.constexpr):
    """Zeros over columns begin to end."""
    lanes = tl.arange(0, BLOCK_V)
    for start in range(begin, end, BLOCK_V):
        zero = tl.zeros((BLOCK_V,), dtype=row_ptr.dtype.element_ty)
        tl.store(row_ptr + start + lanes, zero, mask=start + lanes < end)


@triton.jit
def store_ignored(row, loss_ptr, lse_ptr, hit_ptr):
    """What an ignored row leaves."""
    tl.store(loss_ptr + row, 0.0)
    tl.store(lse_ptr + row, 0.0)
    tl.store(hit_ptr + row, 0.0)
