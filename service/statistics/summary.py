"""Summaries of timing samples, and ratios with the process as the unit of replication.

Samples pooled over processes called A/A pairs different in 5 to 76 % of simulated trials
(docs/measuring.md): so a ratio is one number per process, and its interval a t interval over them.
"""

import math
from collections.abc import Sequence

import numpy as np

from ..contract.run import Interval, LatencySummary
from .student_t import quantile

OUTLIER_IQR = 3.0
"""Tukey's outer fence. Outliers are counted, never removed."""
NOISY_IQR_SHARE = 0.03
UNEVEN_VISITS = 1.10


def summarise(latency_ms: Sequence[float], host_ms: Sequence[float] = ()) -> LatencySummary:
    """Summary of samples in milliseconds; `host_ms` are launch times. Raises ValueError."""
    if not latency_ms:
        raise ValueError("no samples to summarise")
    values = np.asarray(latency_ms, dtype=np.float64)
    q1, median, q3, p95 = (float(v) for v in np.quantile(values, [0.25, 0.5, 0.75, 0.95]))
    fence = OUTLIER_IQR * (q3 - q1)
    outside = (values < q1 - fence) | (values > q3 + fence)
    return LatencySummary(
        n=len(values),
        median_ms=median,
        mean_ms=float(values.mean()),
        minimum_ms=float(values.min()),
        q1_ms=q1,
        q3_ms=q3,
        p95_ms=p95,
        mad_ms=float(np.median(np.abs(values - median))),
        outliers=int(outside.sum()),
        host_launch_median_ms=float(np.median(host_ms)) if len(host_ms) else None,
    )


def is_noisy(summary: LatencySummary) -> bool:
    """Whether the middle half of the samples spreads over more than 3 % of the median."""
    return summary.q3_ms - summary.q1_ms > NOISY_IQR_SHARE * summary.median_ms


def visits_differ(visits: Sequence[Sequence[float]]) -> bool:
    """Whether the medians of one arm's visits in a process lie more than 10 % apart.

    A few disturbed visits move a ratio of visits, while the pooled quartiles hide them.
    """
    medians = [float(np.median(visit)) for visit in visits if len(visit)]
    return bool(medians) and max(medians) > UNEVEN_VISITS * min(medians)


def visit_log_ratio(
    candidate: Sequence[Sequence[float]], base: Sequence[Sequence[float]]
) -> float | None:
    """One process's log ratio: mean over pairs of visits of log(median / median).

    Visits of both arms are paired in the order they were made; None where a pair is missing.
    """
    pairs = [(a, b) for a, b in zip(candidate, base, strict=False) if len(a) and len(b)]
    if not pairs:
        return None
    return float(np.mean([math.log(float(np.median(a) / np.median(b))) for a, b in pairs]))


def ratio_interval(log_ratios: Sequence[float], confidence: float = 0.95) -> Interval | None:
    """Ratio with its t interval over processes; without bounds for one process, None for none."""
    if not log_ratios:
        return None
    values = np.asarray(log_ratios, dtype=np.float64)
    centre = float(values.mean())
    if len(values) == 1:
        return Interval(value=math.exp(centre), processes=1)
    half = quantile(0.5 + confidence / 2, len(values) - 1) * float(
        values.std(ddof=1) / math.sqrt(len(values))
    )
    return Interval(
        value=math.exp(centre),
        low=math.exp(centre - half),
        high=math.exp(centre + half),
        processes=len(values),
    )


def spread(values: Sequence[float]) -> Interval | None:
    """Median with the smallest and largest value: how a clock or a temperature moved."""
    if not values:
        return None
    return Interval(value=float(np.median(values)), low=min(values), high=max(values))
