"""The A/A test of a worker's start: real arms, equal and not, and what a worker says of it."""

import itertools
import math

import pytest

from lossbench.service.statistics.summary import visit_log_ratio
from lossbench.worker import self_test as module
from lossbench.worker.self_test import controls, overheads, same_code_log_ratio, self_test
from lossbench.worker.self_test_words import why_failed
from lossbench.worker.timing import make_visit

from .fake_device import FakeDevice, TakesTime


def test_same_code_passes_at_once() -> None:
    device = FakeDevice()
    twins = (TakesTime(device, lambda: 0.0005), TakesTime(device, lambda: 0.0005))
    found = self_test("cpu", quick=True, twins=twins, stopwatch=device, clock=device.clock)
    assert found["passed"]
    assert found["log_ratios"] == pytest.approx([0.0], abs=1e-6)
    assert found["limit"] == 0.03
    # two arms of six visits, each of 20 ms before and 60 ms counted, and the warm-up
    assert found["seconds"] == pytest.approx(2 * 6 * 0.08 + 0.1, rel=0.05)


def test_arms_that_differ_fail_twice_and_say_by_how_much() -> None:
    device = FakeDevice()
    twins = (TakesTime(device, lambda: 0.0005), TakesTime(device, lambda: 0.0006))
    found = self_test("cpu", quick=True, twins=twins, stopwatch=device, clock=device.clock)
    assert not found["passed"]
    assert found["log_ratios"] == pytest.approx([math.log(1.2)] * 2, abs=1e-6)
    reason = why_failed({"log_ratios": [0.021, -0.018], "limit": 0.01})
    assert reason == (
        "the self-test failed: two arms of the same code differed by 2.1% and 1.8%, "
        "at most 1% is accepted"
    )


def test_failed_attempt_is_repeated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    logs = iter([0.5, -0.001])
    monkeypatch.setattr(module, "same_code_log_ratio", lambda *_, **__: next(logs))
    device = FakeDevice()
    twins = (TakesTime(device, lambda: 0.0001), TakesTime(device, lambda: 0.0001))
    found = self_test("cpu", quick=True, twins=twins, stopwatch=device, clock=device.clock)
    assert (found["passed"], found["log_ratios"]) == (True, [0.5, -0.001])


def test_mirrored_rounds_cancel_a_device_that_slows_down() -> None:
    """Every call is longer than the one before; in a fixed order the second arm would lose."""
    device, length = FakeDevice(), itertools.count(1)
    arm = TakesTime(device, lambda: (0.3 + 0.0001 * next(length)) / 1e3)
    lengths = module.Lengths(0.005, 0.03, 0.0)
    log = same_code_log_ratio((arm, arm), device, lengths, clock=device.clock)
    assert abs(log) < 0.003
    length, made = itertools.count(1), []
    for _ in range(module.VISITS):
        made.append([make_visit(arm, device, device.clock, 0.005, 0.03).latency_ms for _ in (0, 1)])
    first, second = zip(*made, strict=True)
    in_order = visit_log_ratio(list(second), list(first))
    assert in_order is not None
    assert in_order > 10 * abs(log)


def test_start_knows_what_timing_costs_and_the_control_kernels() -> None:
    costs, kernels = overheads("cpu"), controls("cpu")
    assert set(costs) == {"timer_overhead_us", "launch_overhead_us"}
    assert 0.0 < costs["timer_overhead_us"] < costs["launch_overhead_us"]
    assert set(kernels) == {"control_gemm_ms", "control_copy_ms", "control_softmax_ms"}
    assert all(milliseconds > 0.0 for milliseconds in kernels.values())


def test_quick_self_test_of_this_machine_ends_with_a_finding() -> None:
    found = self_test("cpu", quick=True)
    assert 1 <= len(found["log_ratios"]) <= module.ATTEMPTS
    assert all(math.isfinite(log) for log in found["log_ratios"])
    assert found["passed"] == (abs(found["log_ratios"][-1]) <= found["limit"])
