"""Timing inside a measuring process: one call, one visit, and warm-up until the device is steady.

A visit is a stretch of calls of one arm: equal in time for all arms, its first 100 ms left out,
since the arm that ran before sets the power state (docs/measuring.md).
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Protocol

import torch

VISIT_S = 0.3
LEAD_IN_S = 0.1
VISITS = 6
SAMPLES_PER_ARM = 20
MINIMUM_CALLS = -(-SAMPLES_PER_ARM // VISITS)
WARM_UP_S = {"cuda": 1.0, "cpu": 0.3}
WARM_UP_CAP_S = 10.0
STEADY_SHARE = 0.01
GROUP = 5
FLUSH_BYTES = 256 * 2**20
AHEAD_MS = 1.0
"""How long the device is kept at work before a call, so that its launches are there in time."""
AHEAD_SIZE = 4096


class Timed(Protocol):
    """What is timed: `before` is outside the clock, `call` inside."""

    def before(self) -> None:
        """Make ready for one call."""

    def call(self) -> None:
        """The work that is timed."""


class Stopwatch(Protocol):
    """Times one call: (device milliseconds, host milliseconds to launch it)."""

    def time(self, arm: Timed) -> tuple[float, float]:
        """Run and time `arm` once."""


class CpuStopwatch:
    """Wall clock around the call; on a CPU launching is running."""

    def time(self, arm: Timed) -> tuple[float, float]:
        """Run and time `arm` once, in milliseconds."""
        arm.before()
        start = time.perf_counter()
        arm.call()
        elapsed_ms = (time.perf_counter() - start) * 1e3
        return elapsed_ms, elapsed_ms


class CudaStopwatch:
    """Device events around the call, behind products of our own and a write over twice the cache.

    The products keep the device at work, at the power of products, while the host launches the
    call's first kernels, as the layers before a loss do in training: no gap stands in the time.
    Cache lines of zeros can survive a flush by `zero_`, so the flush copies random data.
    """

    def __init__(self) -> None:
        l2_bytes = getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 0) or 0
        words = max(2 * l2_bytes, FLUSH_BYTES) // 4
        self._source = torch.empty(words, device="cuda", dtype=torch.int32).random_()
        self._target = torch.empty_like(self._source)
        self._start = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        self._end = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        side = (AHEAD_SIZE, AHEAD_SIZE)
        self._left = torch.randn(side, device="cuda", dtype=torch.float16)
        self._product = torch.empty_like(self._left)
        self.products_ahead = self._count_products()

    def _count_products(self) -> int:
        """Products that take AHEAD_MS on this device, from the fastest of a few."""
        self._multiply(3)
        taken: list[float] = []
        for _ in range(5):
            self._start.record()
            self._multiply(1)
            self._end.record()
            torch.cuda.synchronize()
            taken.append(self._start.elapsed_time(self._end))
        return max(1, math.ceil(AHEAD_MS / max(float(min(taken)), 1e-3)))

    def _multiply(self, count: int) -> None:
        for _ in range(count):
            torch.mm(self._left, self._left, out=self._product)

    def flush(self) -> None:
        """Write random data over at least twice the L2 cache."""
        self._target.copy_(self._source)

    def time(self, arm: Timed) -> tuple[float, float]:
        """Run and time `arm` once, in milliseconds."""
        arm.before()
        self._multiply(self.products_ahead)
        self.flush()
        self._start.record()
        launched = time.perf_counter()
        arm.call()
        host_ms = (time.perf_counter() - launched) * 1e3
        self._end.record()
        # every stream, not only this one: work left on a side stream would go unseen
        torch.cuda.synchronize()
        return self._start.elapsed_time(self._end), host_ms


@dataclass
class Visit:
    """Samples of one visit in milliseconds, lead-in left out."""

    latency_ms: list[float] = field(default_factory=list)
    host_ms: list[float] = field(default_factory=list)


Clock = Callable[[], float]


def make_visit(
    arm: Timed,
    stopwatch: Stopwatch,
    clock: Clock = time.perf_counter,
    lead_in_s: float = LEAD_IN_S,
    counted_s: float = VISIT_S,
) -> Visit:
    """One visit of an arm: lead-in, then samples for `counted_s` and at least MINIMUM_CALLS.

    Only a quick self-test asks for shorter times than the protocol's.
    """
    visit = Visit()
    began = clock()
    stopwatch.time(arm)
    while clock() - began < lead_in_s:
        stopwatch.time(arm)
    counted = clock()
    while len(visit.latency_ms) < MINIMUM_CALLS or clock() - counted < counted_s:
        latency_ms, host_ms = stopwatch.time(arm)
        visit.latency_ms.append(latency_ms)
        visit.host_ms.append(host_ms)
    return visit


def _always() -> bool:
    return True


def warm_up(
    arm: Timed,
    stopwatch: Stopwatch,
    least_s: float,
    clock: Clock = time.perf_counter,
    settled: Callable[[], bool] = _always,
) -> bool:
    """Load until two groups of calls agree within 1 %; False when the cap came first.

    `settled` says whether power, clock and temperature hold still too.
    """
    began = clock()
    groups: list[float] = []
    while True:
        groups.append(median(stopwatch.time(arm)[0] for _ in range(GROUP)))
        elapsed = clock() - began
        steady = len(groups) > 1 and abs(groups[-1] / groups[-2] - 1.0) < STEADY_SHARE
        if elapsed >= least_s and steady and settled():
            return True
        if elapsed >= WARM_UP_CAP_S:
            return False
