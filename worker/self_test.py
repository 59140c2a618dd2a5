"""What a worker finds out at its start: what timing costs, the control kernels, and an A/A test.

Two arms of the same code must not differ. A GPU where they do, twice, takes no jobs.
"""

import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lossbench.service.statistics.summary import visit_log_ratio

from .timing import (
    VISITS,
    Clock,
    CpuStopwatch,
    CudaStopwatch,
    Stopwatch,
    Timed,
    make_visit,
    warm_up,
)
from .vitals import VitalsSampler

LIMIT = {"cuda": 0.01, "cpu": 0.03}
"""Largest |mean log ratio| of six visits of the same code. On an H200 its deviation was 0.1 to
0.2 % for calls of 30 ms and more (2026-11-30); on a CPU others use the cores."""
ATTEMPTS = 2
EMPTY_PAIRS = 1000
CONTROL_CALLS = 20


@dataclass(frozen=True)
class Lengths:
    """Seconds of a visit's parts and of the warm-up before the first."""

    lead_in_s: float = 0.1
    counted_s: float = 0.3
    warm_up_s: float = 1.0


QUICK = Lengths(0.02, 0.06, 0.1)


class Call:
    """An arm that is one plain function."""

    def __init__(self, function: Callable[[], object]) -> None:
        self._function = function

    def before(self) -> None:
        """Nothing to make ready."""

    def call(self) -> None:
        """The timed work."""
        self._function()


def stopwatch_of(device: str) -> Stopwatch:
    """The stopwatch that cases of this device are timed with."""
    return CudaStopwatch() if device == "cuda" else CpuStopwatch()


def _tensors(device: str) -> tuple[Tensor, Tensor]:
    size = 8192 if device == "cuda" else 512
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    generator = torch.Generator(device=device).manual_seed(20261130)

    def made() -> Tensor:
        return torch.randn(size, size, device=device, generator=generator).to(dtype)

    return made(), made()


def overheads(device: str) -> dict[str, float]:
    """What timing itself costs: `timer_overhead_us`, `launch_overhead_us`, on a GPU `flush_ms`.

    The launch overhead is the host's time to start one small operation.
    """
    stopwatch, small = stopwatch_of(device), torch.zeros(1, device=device)
    pairs = EMPTY_PAIRS if device == "cpu" else EMPTY_PAIRS // 10
    empty = sorted(stopwatch.time(Call(lambda: None))[0] for _ in range(pairs))
    launch = sorted(stopwatch.time(Call(lambda: small.add_(1)))[1] for _ in range(pairs))
    facts = {
        "timer_overhead_us": empty[len(empty) // 2] * 1e3,
        "launch_overhead_us": launch[len(launch) // 2] * 1e3,
    }
    if isinstance(stopwatch, CudaStopwatch):
        facts["flush_ms"] = _median_ms(stopwatch, Call(stopwatch.flush))
    return facts


def _median_ms(stopwatch: Stopwatch, arm: Timed) -> float:
    stopwatch.time(arm)
    taken = sorted(stopwatch.time(arm)[0] for _ in range(CONTROL_CALLS))
    return taken[len(taken) // 2]


def controls(device: str) -> dict[str, float]:
    """Milliseconds of the control kernels: one product, one copy, one softmax.

    They belong to no contender: if they move too, the device moved and not the code.
    """
    stopwatch, (a, b) = stopwatch_of(device), _tensors(device)
    target = torch.empty_like(a)
    return {
        "control_gemm_ms": _median_ms(stopwatch, Call(lambda: torch.mm(a, b))),
        "control_copy_ms": _median_ms(stopwatch, Call(lambda: target.copy_(a))),
        "control_softmax_ms": _median_ms(stopwatch, Call(lambda: torch.softmax(a, dim=-1))),
    }


def same_code_log_ratio(
    arms: tuple[Timed, Timed],
    stopwatch: Stopwatch,
    lengths: Lengths,
    visits: int = VISITS,
    clock: Clock = time.perf_counter,
) -> float:
    """Log ratio of two arms, each round of visits the mirror of the one before."""
    taken: dict[int, list[list[float]]] = {0: [], 1: []}
    for visit in range(visits):
        for index in (0, 1) if visit % 2 == 0 else (1, 0):
            made = make_visit(
                arms[index],
                stopwatch,
                clock,
                lead_in_s=lengths.lead_in_s,
                counted_s=lengths.counted_s,
            )
            taken[index].append(made.latency_ms)
    ratio = visit_log_ratio(taken[1], taken[0])
    return math.inf if ratio is None else ratio


def _twins(device: str) -> tuple[Timed, Timed]:
    """Two arms of the same code, about 20 ms a call on an H200 and a few on a CPU core."""
    a, b = _tensors(device)

    def work() -> None:
        for _ in range(14 if device == "cuda" else 1):
            torch.mm(a, b)

    return Call(work), Call(work)


def self_test(
    device: str,
    quick: bool = False,
    twins: tuple[Timed, Timed] | None = None,
    stopwatch: Stopwatch | None = None,
    clock: Clock = time.perf_counter,
) -> dict[str, Any]:
    """The A/A test: `passed`, `log_ratios` of its attempts, `limit`, `seconds`.

    `twins` stand in for the two arms, `stopwatch` and `clock` for the device's. A failed attempt
    is repeated once.
    """
    began = clock()
    lengths = QUICK if quick or device == "cpu" else Lengths()
    arms = twins or _twins(device)
    stopwatch = stopwatch or stopwatch_of(device)
    vitals = VitalsSampler(worker_pid=os.getpid())
    vitals.start()
    warm_up(arms[0], stopwatch, lengths.warm_up_s, clock, settled=vitals.is_steady)
    log_ratios: list[float] = []
    while len(log_ratios) < ATTEMPTS:
        log_ratios.append(same_code_log_ratio(arms, stopwatch, lengths, clock=clock))
        if abs(log_ratios[-1]) <= LIMIT[device]:
            break
    signs = vitals.stop()
    return {
        "passed": abs(log_ratios[-1]) <= LIMIT[device],
        "log_ratios": log_ratios,
        "limit": LIMIT[device],
        "flags": signs.flags(),
        "seconds": clock() - began,
    }
