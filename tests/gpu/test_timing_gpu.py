"""Times agree with Triton's own timer on long calls, and the same code passes the A/A test."""

from __future__ import annotations

import math
import os
import statistics
import time
from typing import Any

import pytest
import torch

from lossbench.service.contract.case import Case
from lossbench.service.contract.contender import Contender
from lossbench.service.contract.words import Pass
from lossbench.worker.bench import CaseBench
from lossbench.worker.self_test import self_test
from lossbench.worker.timing import CudaStopwatch, make_visit, warm_up
from lossbench.worker.vitals import VitalsSampler

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
LONG_ENOUGH_MS = 5.0
AGREEMENT = 0.01
ROUNDS = 6
HOST_S = 0.0006


def do_bench_median_ms(arm: Any, bench: CaseBench) -> float:
    """Median of Triton's timer: events around each call, behind a zeroed 256 MiB; no host sync."""
    from triton.testing import do_bench

    taken = do_bench(
        arm.call,
        warmup=100,
        rep=600,
        grad_to_none=bench.leaves.trained,
        return_mode="median",
    )
    return float(taken)


@pytest.mark.parametrize("kernel", ["flce", "torch-naive"])
@pytest.mark.parametrize("shape", ["N8192-H4096-V32000", "N8192-H2048-V128256"])
def test_median_agrees_with_do_bench_at_steady_power(kernel: str, shape: str) -> None:
    bench = CaseBench(Case.parse(f"{shape}-bfloat16"), 0, "cuda", False)
    bench.add_contender("a", Contender(kernel=kernel), Pass.FORWARD_BACKWARD)
    arm = bench.arms["a"]
    vitals = VitalsSampler(worker_pid=os.getpid())
    vitals.start()
    warm_up(arm, bench.stopwatch, 2.0, settled=vitals.is_steady)
    ours, theirs = [], []
    for number in range(ROUNDS):
        # in turns, so that both see the same power
        for mine in (True, False) if number % 2 == 0 else (False, True):
            if mine:
                visit = make_visit(arm, bench.stopwatch)
                ours.append(statistics.median(visit.latency_ms))
            else:
                theirs.append(do_bench_median_ms(arm, bench))
    signs = vitals.stop()
    pairs = [math.log(a / b) for a, b in zip(ours, theirs, strict=True)]
    said = (
        f"{kernel} {shape}: ours {statistics.median(ours):.3f} ms, "
        f"do_bench {statistics.median(theirs):.3f} ms, {math.expm1(statistics.fmean(pairs)):+.2%} "
        f"(rounds {[f'{log:+.2%}' for log in pairs]}), {signs.flags()}"
    )
    assert statistics.median(ours) >= LONG_ENOUGH_MS, said
    assert abs(statistics.median(pairs)) < AGREEMENT, said


def test_same_code_passes_the_self_test_of_a_worker() -> None:
    found = self_test("cuda")
    assert found["passed"], found
    assert found["seconds"] < 30.0


class Product:
    """A product of about 1.4 ms on an H200, launched `host_s` after the call began."""

    def __init__(self, host_s: float) -> None:
        self._left = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
        self._host_s = host_s

    def before(self) -> None:
        """Nothing."""

    def call(self) -> None:
        """The host's part, then the device's."""
        began = time.perf_counter()
        while time.perf_counter() - began < self._host_s:
            pass
        torch.mm(self._left, self._left)


def test_host_work_before_the_first_kernel_is_not_in_the_time() -> None:
    stopwatch = CudaStopwatch()
    prompt, late = Product(0.0), Product(HOST_S)
    warm_up(prompt, stopwatch, 1.0)
    gaps = []
    for number in range(ROUNDS):
        order = (prompt, late) if number % 2 == 0 else (late, prompt)
        ms = {id(arm): statistics.median(make_visit(arm, stopwatch).latency_ms) for arm in order}
        gaps.append(ms[id(late)] - ms[id(prompt)])
    # without work ahead of the call, all of it but the flush would be there
    assert abs(statistics.median(gaps)) < 1e3 * HOST_S / 4, gaps
