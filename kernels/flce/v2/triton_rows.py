"""Row passes in Triton: loss and log-sum-exp of each row, and dZ written over logits.

`_row_kernel` does both for a row at a time; where a chunk has few rows, `_statistics_kernel`,
`_loss_kernel` and `_gradient_kernel` share each row among programs. `_gradient_kernel` also makes
dZ of a block of columns in a second sweep. Formulas: `triton_parts`.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
import triton
import triton.language as tl

from .triton_parts import statistics, store_ignored, store_row, write_gradient, write_zeros


@triton.jit
def _row_kernel(  # noqa: PLR0913
    logits_ptr,
    stride_n,
    target_ptr,
    loss_ptr,
    lse_ptr,
    hit_ptr,
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
    """A row each: statistics, loss and, if asked, dZ."""
    row = tl.program_id(0).to(tl.int64)
    row_ptr = logits_ptr + row * stride_n
    target = tl.load(target_ptr + row)
    if target == ignore_index:
        store_ignored(row, loss_ptr, lse_ptr, hit_ptr)
        if WITH_GRADIENT:
            write_zeros(row_ptr, 0, V, BLOCK_V)
        return
    largest, total, weighted = statistics(
        row_ptr,
        class_weight_ptr,
        0,
        V,
        softcap,
        logit_scale,
        HAS_CLASS_WEIGHT,
        HAS_SMOOTHING,
        HAS_SOFTCAP,
        BLOCK_V,
    )
    lse = store_row(
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
        HAS_CLASS_WEIGHT,
        HAS_SMOOTHING,
        HAS_LSE_SQUARE,
        HAS_SOFTCAP,
    )
    if WITH_GRADIENT:
        write_gradient(
            row,
            row_ptr,
            target,
            lse,
            0,
            0,
            V,
            class_weight_ptr,
            class_weight_sum_ptr,
            lse_square_scale_ptr,
            gradient_scale_ptr,
            row_scale_ptr,
            V,
            label_smoothing,
            softcap,
            logit_scale,
            HAS_CLASS_WEIGHT,
            HAS_SMOOTHING,
            HAS_LSE_SQUARE,
            HAS_GRADIENT_SCALE,
            HAS_ROW_SCALE,
            HAS_SOFTCAP,
            BLOCK_V,
        )


@triton.jit
def _statistics_kernel(  # noqa: PLR0913
    logits_ptr,
    stride_n,
    target_ptr,
    partial_ptr,
    class_weight_ptr,
    V,
    part_columns,
    ignore_index,
    softcap,
    logit_scale,
    HAS_CLASS_WEIGHT: tl.constexpr,
    HAS_SMOOTHING: tl.constexpr,
    HAS_SOFTCAP: tl.constexpr,
    PARTS: tl.constexpr,
    BLOCK_V: tl.constexpr,
):
    """Statistics of one part of a row, into partial (rows, 3, PARTS)."""
    row = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    if tl.load(target_ptr + row) == ignore_index:
        return
    begin = part * part_columns
    largest, total, weighted = statistics(
        logits_ptr + row * stride_n,
        class_weight_ptr,
        begin,
        tl.minimum(begin + part_columns, V),
        softcap,
        logit_scale,
        HAS_CLASS_WEIGHT,
        HAS_SMOOTHING,
        HAS_SOFTCAP,
        BLOCK_V,
    )
    at = partial_ptr + row * 3 * PARTS + part
    tl.store(at, largest)
    tl.store(at + PARTS, total)
    tl.store(at + 2 * PARTS, weighted)


@triton.jit
def _loss_kernel(  # noqa: PLR0913
    logits_ptr,
    stride_n,
    target_ptr,
    partial_ptr,
    loss_ptr,
    lse_ptr,
    hit_ptr,
    class_weight_ptr,
    class_weight_sum_ptr,
    lse_square_scale_ptr,
    V,
    ignore_index,
    label_smoothing,
    softcap,
    logit_scale,
    HAS_CLASS_WEIGHT: tl.constexpr,
    HAS_SMOOTHING: tl.constexpr,
    HAS_LSE_SQUARE: tl.constexpr,
    HAS_SOFTCAP: tl.constexpr,
    PARTS: tl.constexpr,
):
    """Loss, log-sum-exp and hit of each row from the statistics of its parts."""
    row = tl.program_id(0).to(tl.int64)
    target = tl.load(target_ptr + row)
    if target == ignore_index:
        store_ignored(row, loss_ptr, lse_ptr, hit_ptr)
        return
    at = partial_ptr + row * 3 * PARTS + tl.arange(0, PARTS)
    each = tl.load(at)
    largest = tl.max(each)
    anchor = tl.where(largest == -float("inf"), 0.0, largest)
    total = tl.sum(tl.load(at + PARTS) * tl.exp(each - anchor))
    store_row(
        row,
        logits_ptr + row * stride_n,
        target,
        largest,
        total,
        tl.sum(tl.load(at + 2 * PARTS)),
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
        HAS_CLASS_WEIGHT,
        HAS_SMOOTHING,
        HAS_LSE_SQUARE,
        HAS_SOFTCAP,
    )


@triton.jit
def _gradient_kernel(  # noqa: PLR0913
    logits_ptr,
    stride_n,
    target_ptr,
    lse_ptr,
    class_weight_ptr,
    class_weight_sum_ptr,
    lse_square_scale_ptr,
    gradient_scale_ptr,
    row_scale_ptr,
    first,
    columns,
    part_columns,
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
    BLOCK_V: tl.constexpr,
):
    """dZ of one part of a row over logits of `columns` classes from class `first`."""
    row = tl.program_id(0).to(tl.int64)
    row_ptr = logits_ptr + row * stride_n
    target = tl.load(target_ptr + row)
    begin = tl.program_id(1) * part_columns
    end = tl.minimum(begin + part_columns, columns)
    if target == ignore_index:
        write_zeros(row_ptr, begin, end, BLOCK_V)
        return
    write_gradient(
        row,
        row_ptr,
        target,
        tl.load(lse_ptr + row),
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
        HAS_CLASS_WEIGHT,
        HAS_SMOOTHING,
        HAS_LSE_SQUARE,
        HAS_GRADIENT_SCALE,
        HAS_ROW_SCALE,
        HAS_SOFTCAP,
        BLOCK_V,
    )


@triton.jit
def _scale_kernel(gradient_ptr, scale_ptr, size, BLOCK: tl.constexpr):
    """gradient x scale in place; memory is not touched where the scale is 1."""
    scale = tl.load(scale_ptr)
    if scale == 1.0:
        return
    step = tl.num_programs(0).to(tl.int64) * BLOCK
    for start in range(tl.program_id(0).to(tl.int64) * BLOCK, size, step):
        offsets = start + tl.arange(0, BLOCK)
        mask = offsets < size
        scaled = tl.load(gradient_ptr + offsets, mask=mask, other=0.0).to(tl.float32) * scale
        tl.store(gradient_ptr + offsets, scaled.to(gradient_ptr.dtype.element_ty), mask=mask)
