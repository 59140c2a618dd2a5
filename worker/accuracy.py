"""Errors of a contender's outputs against the float64 reference, in blocks so that memory is small.

Headline: relative L2. Beside it largest absolute error, cosine distance, signed bias, best-fit
scale, share of outputs that are zero where the truth is not, distance in units in the last place.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

BLOCK_ELEMENTS = 2**26
ULP_SAMPLES = 2**20
ULP_THRESHOLD = 2.0**-8
"""Distances in units in the last place count where |truth| is above this share of its rms."""
ROW_SHARE = 0.1
"""A row whose true norm is above this share of the median row's cannot be zero by rounding."""


@dataclass(frozen=True)
class OutputComparison:
    """Error statistics of one output; None where they do not exist (no elements, all zero)."""

    relative_l2: float | None
    max_abs: float | None = None
    cosine_distance: float | None = None
    bias: float | None = None
    best_fit_scale: float | None = None
    zero_share: float | None = None
    ulp_p50: float | None = None
    ulp_p99: float | None = None
    not_finite: int = 0


MISSING = OutputComparison(relative_l2=None)
"""A contender gave no gradient where it must."""


@dataclass
class _Sums:
    error2: float = 0.0
    truth2: float = 0.0
    got2: float = 0.0
    product: float = 0.0
    error: float = 0.0
    max_abs: float = 0.0
    zeros: int = 0
    nonzero_truth: int = 0
    not_finite: int = 0


def compare_output(got: Tensor | None, truth: Tensor) -> OutputComparison:
    """Error of `got` (any dtype) against `truth` (float64) of the same shape.

    NaN or infinity where the truth is finite is counted and never averaged away.
    """
    if got is None or got.shape != truth.shape:
        return MISSING
    if truth.numel() == 0:
        return OutputComparison(relative_l2=0.0)
    sums = _sum_blocks(got.reshape(-1), truth.reshape(-1))
    if sums.not_finite:
        return OutputComparison(relative_l2=None, not_finite=sums.not_finite)
    rms = math.sqrt(sums.truth2 / truth.numel())
    p50, p99 = _ulp_distances(got.reshape(-1), truth.reshape(-1), rms)
    scale = sums.product / sums.truth2 if sums.truth2 else None
    norms = math.sqrt(sums.truth2 * sums.got2)
    # a truth of exact zeros has no relative error: any other value is infinitely wrong
    exact = 0.0 if sums.error2 == 0 else math.inf
    return OutputComparison(
        relative_l2=math.sqrt(sums.error2 / sums.truth2) if sums.truth2 else exact,
        max_abs=sums.max_abs,
        cosine_distance=max(0.0, 1.0 - sums.product / norms) if norms else None,
        bias=sums.error / truth.numel() / rms if rms else None,
        best_fit_scale=scale,
        zero_share=sums.zeros / sums.nonzero_truth if sums.nonzero_truth else 0.0,
        ulp_p50=p50,
        ulp_p99=p99,
    )


def unwritten_rows(got: Tensor, truth: Tensor, rows: Tensor) -> int:
    """How many of the chosen rows are exactly zero though the truth's are as large as others.

    got and truth (R, H), of one shape; rows (R,) bool. A few such rows are lost in any error norm.
    """
    size = torch.linalg.vector_norm(truth, dim=1)
    chosen = rows & (size > 0)
    if got.shape != truth.shape or not bool(chosen.any()):
        return 0
    large = chosen & (size > ROW_SHARE * size[chosen].median())
    zero = torch.linalg.vector_norm(got, ord=math.inf, dim=1) == 0
    return int((large & zero).sum())


def _sum_blocks(got: Tensor, truth: Tensor) -> _Sums:
    sums = _Sums()
    for start in range(0, truth.numel(), BLOCK_ELEMENTS):
        g = got[start : start + BLOCK_ELEMENTS].double()
        t = truth[start : start + BLOCK_ELEMENTS]
        sums.not_finite += int((~torch.isfinite(g) & torch.isfinite(t)).sum())
        error = g - t
        sums.error2 += float(error.square().sum())
        sums.truth2 += float(t.square().sum())
        sums.got2 += float(g.square().sum())
        sums.product += float((g * t).sum())
        sums.error += float(error.sum())
        sums.max_abs = max(sums.max_abs, float(error.abs().max()))
        nonzero = t != 0
        sums.zeros += int(((g == 0) & nonzero).sum())
        sums.nonzero_truth += int(nonzero.sum())
    return sums


def _ulp_distances(got: Tensor, truth: Tensor, rms: float) -> tuple[float | None, float | None]:
    """Median and 99th percentile of the distance in units in the last place of got's dtype."""
    if not rms or not got.dtype.is_floating_point:
        return None, None
    stride = max(1, truth.numel() // ULP_SAMPLES)
    g, t = got[::stride].double(), truth[::stride]
    kept = t.abs() > ULP_THRESHOLD * rms
    if not bool(kept.any()):
        return None, None
    g, t = g[kept], t[kept]
    _, exponent = torch.frexp(t)
    unit = torch.ldexp(torch.full_like(t, torch.finfo(got.dtype).eps), exponent - 1)
    distance = ((g - t).abs() / unit).sort().values
    last = distance.numel() - 1
    return float(distance[last // 2]), float(distance[int(last * 0.99)])


def checksum(tensors: list[Tensor | None]) -> str:
    """Digest of the exact bits: equal for equal outputs, on the device and without a copy."""
    parts = []
    for tensor in tensors:
        if tensor is None or tensor.numel() == 0:
            parts.append("-")
            continue
        words = {2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()]
        flat = tensor.detach().contiguous().reshape(-1).view(words)
        total = mixed = 0
        for start in range(0, flat.numel(), BLOCK_ELEMENTS):
            block = flat[start : start + BLOCK_ELEMENTS].to(torch.int64)
            place = torch.arange(start, start + block.numel(), device=block.device)
            total += int(block.sum())
            # odd multipliers by place, so that swapped values change the sum
            mixed += int((block * (2 * (place * 2654435761 % 2**31) + 1) % 2**61).sum())
        parts.append(f"{total & 0xFFFFFFFFFFFFFFFF:016x}{mixed & 0xFFFFFFFFFFFFFFFF:016x}")
    return ":".join(parts)
