"""What the device said of itself while it was timed: flags, rate of reading, steadiness."""

import os
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from lossbench.service.contract.words import Flag
from lossbench.worker.vitals import VitalSigns, VitalsSampler, handle_of_device


@pytest.mark.parametrize(
    ("reasons", "flags"),
    [
        ([], []),
        ([0, 0, 0], []),
        ([0x1, 0x1], []),  # idle
        ([0x2], []),  # application clocks
        ([0x8], ["throttled"]),  # hardware slowdown
        ([0x20], ["throttled"]),  # software thermal
        ([0x40], ["throttled"]),  # hardware thermal
        ([0x80], ["throttled"]),  # power brake
        ([0] * 99 + [0x20], ["throttled"]),
        ([0x4] * 2 + [0] * 8, []),  # a fifth of the time is not more than a fifth
        ([0x4] * 3 + [0] * 7, ["power_capped"]),
        ([0x4 | 0x40] * 10, ["throttled", "power_capped"]),
    ],
)
def test_flags_of_clock_event_reasons(reasons: list[int], flags: list[str]) -> None:
    assert VitalSigns(reasons=reasons).flags() == flags


def test_flags_of_a_foreign_process() -> None:
    assert VitalSigns(foreign_pids=1).flags() == ["foreign_process"]


def test_flags_are_words_of_the_contract() -> None:
    signs = VitalSigns(reasons=[0x4 | 0x8], foreign_pids=1)
    assert [Flag(word).value for word in signs.flags()] == signs.flags()


def test_throttled_seconds_leave_out_the_power_cap() -> None:
    signs = VitalSigns(at_s=[0.0, 0.5, 1.0, 1.5], reasons=[0x4, 0x20, 0x40, 0])
    assert signs.throttle_s() == 1.0


def signs_of(power_w: list[float], clock_mhz: list[float], heat: list[float]) -> VitalSigns:
    """Readings 0.1 s apart."""
    at_s = [100.0 + 0.1 * i for i in range(len(power_w))]
    return VitalSigns(at_s=at_s, power_w=power_w, clock_mhz=clock_mhz, temperature_c=heat)


FLAT_W, FLAT_MHZ, FLAT_C = [690.0] * 12, [1500.0] * 12, [60.0] * 12


@pytest.mark.parametrize(
    ("signs", "steady"),
    [
        (VitalSigns(), True),
        (signs_of(FLAT_W, FLAT_MHZ, FLAT_C), True),
        (signs_of(FLAT_W[:6], FLAT_MHZ[:6], FLAT_C[:6]), False),  # half a second says nothing
        (signs_of([348 + 30.0 * i for i in range(12)], FLAT_MHZ, FLAT_C), False),
        (signs_of(FLAT_W, [1980 - 40.0 * i for i in range(12)], FLAT_C), False),
        (signs_of(FLAT_W, FLAT_MHZ, [50 + 0.5 * i for i in range(12)]), False),
        (signs_of([100.0] * 3 + [690.0] * 9, FLAT_MHZ, FLAT_C), True),  # the start is over
        (signs_of(FLAT_W, [1400.0, 1600.0] * 6, FLAT_C), True),  # a cap makes clocks dance
    ],
)
def test_device_is_steady_when_power_clock_and_heat_hold_still(
    signs: VitalSigns, steady: bool
) -> None:
    assert signs.is_steady() is steady


class ScriptedNvml:
    """Answers as NVML does, each reading after some milliseconds."""

    NVML_CLOCK_SM, NVML_TEMPERATURE_GPU = 1, 0

    def __init__(self, pids: list[int], reading_s: float = 0.002) -> None:
        self._pids, self._reading_s = pids, reading_s
        self.asked = threading.Event()

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:  # noqa: N802 (NVML spells it so)
        return f"device {index}"

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:  # noqa: N802 (NVML spells it so)
        return f"device {uuid}"

    def nvmlDeviceGetClockInfo(self, handle: str, kind: int) -> int:  # noqa: N802 (NVML spells it so)
        time.sleep(self._reading_s)
        return 1500

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:  # noqa: N802 (NVML spells it so)
        time.sleep(self._reading_s)
        return 690_000

    def nvmlDeviceGetTemperature(self, handle: str, kind: int) -> int:  # noqa: N802 (NVML spells it so)
        time.sleep(self._reading_s)
        return 60

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: str) -> int:  # noqa: N802 (NVML spells it so)
        time.sleep(self._reading_s)
        return 4

    def nvmlDeviceGetComputeRunningProcesses(self, handle: str) -> list[Any]:  # noqa: N802 (NVML spells it so)
        self.asked.set()
        return [SimpleNamespace(pid=pid) for pid in self._pids]


def test_device_is_read_at_ten_hertz_or_more_though_readings_take_time() -> None:
    sampler = VitalsSampler(ScriptedNvml([], reading_s=0.01), os.getpid())
    sampler.start()
    time.sleep(1.0)
    signs = sampler.stop()
    assert len(signs.at_s) >= 10
    span_s = signs.at_s[-1] - signs.at_s[0]
    assert (len(signs.at_s) - 1) / span_s >= 10.0
    assert {len(values) for values in (signs.clock_mhz, signs.power_w, signs.reasons)} == {
        len(signs.at_s)
    }
    assert signs.flags() == ["power_capped"]


def test_sampler_tells_strangers_from_the_worker_s_own() -> None:
    ours = VitalsSampler(ScriptedNvml([os.getpid()]), os.getpid())
    # process 1 is not of this family
    shared = ScriptedNvml([os.getpid(), 1])
    theirs = VitalsSampler(shared, os.getpid())
    for sampler in (ours, theirs):
        sampler.start()
    assert shared.asked.wait(5)
    time.sleep(0.3)
    assert ours.stop().foreign_pids == 0
    assert theirs.stop().foreign_pids == 1


def test_clock_of_a_visit_is_that_since_it_began() -> None:
    sampler = VitalsSampler(ScriptedNvml([]), os.getpid())
    assert sampler.clock_since(time.monotonic()) is None
    began = time.monotonic()
    sampler.start()
    time.sleep(0.2)
    assert sampler.clock_since(began) == 1500.0
    assert sampler.clock_since(time.monotonic() + 60) is None


@pytest.mark.parametrize(
    ("visible", "handle"), [("", "device 0"), ("3", "device 3"), ("GPU-1f", "device GPU-1f")]
)
def test_reading_is_of_the_device_that_torch_sees(
    visible: str, handle: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert handle_of_device(ScriptedNvml([])) == handle
