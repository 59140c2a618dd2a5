"""Visits and warm-up with a clock that only the timed calls move."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lossbench.worker import measure, timing
from lossbench.worker.timing import CpuStopwatch, make_visit, warm_up

from .fake_device import FakeDevice, steady


class Arm:
    """Counts what is done to it."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def before(self) -> None:
        self.done.append("before")

    def call(self) -> None:
        self.done.append("call")


def test_visit_leaves_out_the_lead_in() -> None:
    # the first 100 ms are slow calls of 1/32 s, the rest are fast ones of 1/128 s
    device = FakeDevice(lambda call: 2.0**-5 if call < 4 else 2.0**-7)
    visit = make_visit(Arm(), device, device.clock)
    assert visit.latency_ms == [7.8125] * 39
    assert device.calls == 4 + 39
    assert visit.host_ms[0] == pytest.approx(5 / 1e3)


def test_visit_leaves_out_its_first_call_even_when_it_is_long() -> None:
    device = FakeDevice(lambda call: 5.0 if call == 0 else 0.1)
    assert make_visit(Arm(), device, device.clock).latency_ms == pytest.approx([100.0] * 4)


def test_visit_of_a_slow_arm_makes_the_minimum_of_calls() -> None:
    device = steady(2.0)
    visit = make_visit(Arm(), device, device.clock)
    assert len(visit.latency_ms) == timing.MINIMUM_CALLS == 4
    assert len(visit.host_ms) == 4


def test_visits_of_one_arm_make_at_least_twenty_samples() -> None:
    device = steady(1.0)
    visits = [make_visit(Arm(), device, device.clock) for _ in range(measure.VISITS)]
    assert sum(len(visit.latency_ms) for visit in visits) >= timing.SAMPLES_PER_ARM == 20
    assert measure.VISITS == timing.VISITS
    assert measure.VISITS >= 6
    assert measure.VISITS % 2 == 0


@given(st.floats(0.0005, 0.07))
def test_visits_of_fast_arms_are_equal_in_time(seconds: float) -> None:
    device = steady(seconds)
    visit = make_visit(Arm(), device, device.clock)
    counted_s = sum(visit.latency_ms) / 1e3
    assert counted_s + 1e-9 >= timing.VISIT_S
    assert counted_s < timing.VISIT_S + 1.01 * seconds
    lead_in_s = device.time_s - 50.0 - counted_s
    assert lead_in_s + 1e-9 >= timing.LEAD_IN_S
    assert lead_in_s < timing.LEAD_IN_S + 1.01 * seconds


def test_warm_up_stops_when_two_groups_agree() -> None:
    device = steady(0.01)
    assert warm_up(Arm(), device, 0.0, device.clock) is True
    assert device.calls == 2 * timing.GROUP


def test_warm_up_goes_on_while_the_device_speeds_up() -> None:
    # each group of five is 2 % faster than the one before, until the sixth
    device = FakeDevice(lambda call: 0.01 * 0.98 ** min(call // 5, 5))
    assert warm_up(Arm(), device, 0.0, device.clock) is True
    assert device.calls == 7 * timing.GROUP


def test_warm_up_lasts_as_long_as_it_must() -> None:
    device = steady(0.01)
    assert warm_up(Arm(), device, 1.0, device.clock) is True
    assert device.time_s - 50.0 == pytest.approx(1.0, abs=timing.GROUP * 0.01 + 1e-6)


def test_warm_up_at_the_cap_says_not_steady() -> None:
    device = FakeDevice(lambda call: 0.01 if call // 5 % 2 else 0.02)
    assert warm_up(Arm(), device, 0.0, device.clock) is False
    assert timing.WARM_UP_CAP_S <= device.time_s - 50.0 < timing.WARM_UP_CAP_S + 0.11


def test_warm_up_is_not_fooled_by_one_slow_call_in_a_group() -> None:
    device = FakeDevice(lambda call: 0.05 if call == 2 else 0.01)
    assert warm_up(Arm(), device, 0.0, device.clock) is True
    assert device.calls == 2 * timing.GROUP


def test_cpu_stopwatch_times_the_call_and_not_what_comes_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    readings: Iterator[float] = iter([3.0, 3.25])
    monkeypatch.setattr("lossbench.worker.timing.time.perf_counter", lambda: next(readings))
    arm = Arm()
    assert CpuStopwatch().time(arm) == (250.0, 250.0)
    assert arm.done == ["before", "call"]
