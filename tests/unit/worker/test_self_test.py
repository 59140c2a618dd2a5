"""The A/A test of a worker's start: real arms, equal and not, and what a worker says of it."""

import itertools
import time
from collections.abc import Callable

import pytest

from lossbench.worker import self_test as module
from lossbench.worker.self_test import Call, controls, overheads, same_code_log_ratio, self_test
from lossbench.worker.self_test_words import why_failed
from lossbench.worker.timing import CpuStopwatch


def spin(milliseconds: Callable[[], float]) -> Call:
    """Work of so many milliseconds of this thread's processor time."""

    def work() -> None:
        end = time.thread_time() + milliseconds() / 1e3
        while time.thread_time() < end:
            pass

    return Call(work)


def test_same_code_passes_at_once() -> None:
    arm = spin(lambda: 0.5)
    found = self_test("cpu", quick=True, twins=(arm, spin(lambda: 0.5)))
    assert found["passed"]
    assert len(found["log_ratios"]) <= 2
    assert abs(found["log_ratios"][-1]) <= found["limit"] == 0.03


def test_arms_that_differ_fail_twice_and_say_by_how_much() -> None:
    found = self_test("cpu", quick=True, twins=(spin(lambda: 0.5), spin(lambda: 0.6)))
    assert not found["passed"]
    assert len(found["log_ratios"]) == 2
    assert all(0.1 < log < 0.3 for log in found["log_ratios"])
    reason = why_failed({"log_ratios": [0.021, -0.018], "limit": 0.01})
    assert reason == (
        "the self-test failed: two arms of the same code differed by 2.1% and 1.8%, "
        "at most 1% is accepted"
    )


def test_failed_attempt_is_repeated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    logs = iter([0.5, -0.001])
    monkeypatch.setattr(module, "same_code_log_ratio", lambda *_: next(logs))
    found = self_test("cpu", quick=True, twins=(spin(lambda: 0.1), spin(lambda: 0.1)))
    assert (found["passed"], found["log_ratios"]) == (True, [0.5, -0.001])


def test_mirrored_rounds_cancel_a_device_that_slows_down() -> None:
    """Every call is longer than the one before; in a fixed order the second arm would lose."""
    length = itertools.count(1)
    arm = spin(lambda: 0.3 + 0.0005 * next(length))
    lengths = module.Lengths(0.005, 0.03, 0.0)
    log = same_code_log_ratio(arm, arm, CpuStopwatch(), lengths)
    assert abs(log) < 0.03


def test_start_knows_what_timing_costs_and_the_control_kernels() -> None:
    costs, kernels = overheads("cpu"), controls("cpu")
    assert set(costs) == {"timer_overhead_us", "launch_overhead_us"}
    assert 0.0 < costs["timer_overhead_us"] < costs["launch_overhead_us"]
    assert set(kernels) == {"control_gemm_ms", "control_copy_ms", "control_softmax_ms"}
    assert all(milliseconds > 0.0 for milliseconds in kernels.values())


def test_quick_self_test_takes_seconds() -> None:
    assert self_test("cpu", quick=True)["seconds"] < 15.0
