"""Clock, power, temperature, throttle reasons and other users, sampled while measuring."""

import os
import threading
import time
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Any

from .process_family import count_foreign

INTERVAL_S = 0.05
"""From one reading to the next, the reading itself included: 20 Hz, so that 10 Hz is kept."""
FOREIGN_EVERY = 10
"""Readings from one look at the list of processes to the next: it costs several milliseconds."""
POWER_CAP_BIT = 0x4
THROTTLE_BITS = 0x8 | 0x20 | 0x40 | 0x80
"""NVML clock-event reasons: hardware slowdown, software and hardware thermal, power brake."""
POWER_CAP_SHARE = 0.2
STEADY_WINDOW_S = 0.4
"""Two neighbouring windows of this length must agree before the device counts as steady."""
STEADY_POWER_SHARE = 0.05
STEADY_CLOCK_SHARE = 0.05
STEADY_KELVIN = 1.0


@dataclass
class VitalSigns:
    """Samples of one stretch of measuring; `at_s` on the clock of `time.monotonic`."""

    at_s: list[float] = field(default_factory=list)
    clock_mhz: list[float] = field(default_factory=list)
    power_w: list[float] = field(default_factory=list)
    temperature_c: list[float] = field(default_factory=list)
    reasons: list[int] = field(default_factory=list)
    foreign_pids: int = 0
    """Most processes of others that were seen on the device at one time."""

    def flags(self) -> list[str]:
        """Flags that these samples justify."""
        found = []
        if any(reason & THROTTLE_BITS for reason in self.reasons):
            found.append("throttled")
        capped = sum(1 for reason in self.reasons if reason & POWER_CAP_BIT)
        if self.reasons and capped > POWER_CAP_SHARE * len(self.reasons):
            found.append("power_capped")
        if self.foreign_pids:
            found.append("foreign_process")
        return found

    def throttle_s(self) -> float:
        """Seconds for which the clock was held down, the power cap not counted."""
        steps = zip(self.reasons, self.at_s, self.at_s[1:], strict=False)
        return sum(after - at for reason, at, after in steps if reason & THROTTLE_BITS)

    def is_steady(self) -> bool:
        """Whether power, clock and temperature agree in the last two windows of STEADY_WINDOW_S.

        True without any samples: a machine without NVML is judged by its times alone.
        """
        if not self.at_s:
            return True
        end = self.at_s[-1]
        if end - self.at_s[0] < 2 * STEADY_WINDOW_S:
            return False
        ages = [end - at for at in self.at_s]
        for values, limit, relative in (
            (self.power_w, STEADY_POWER_SHARE, True),
            (self.clock_mhz, STEADY_CLOCK_SHARE, True),
            (self.temperature_c, STEADY_KELVIN, False),
        ):
            pairs = list(zip(values, ages, strict=False))
            late = [v for v, age in pairs if age <= STEADY_WINDOW_S]
            early = [v for v, age in pairs if STEADY_WINDOW_S < age <= 2 * STEADY_WINDOW_S]
            if not late or not early:
                return False
            change = abs(fmean(late) - fmean(early))
            if change > limit * (fmean(early) if relative else 1.0):
                return False
        return True


def load_nvml() -> Any:
    """The NVML module, ready; None on a machine without it."""
    try:
        import pynvml

        pynvml.nvmlInit()
        pynvml.nvmlDeviceGetHandleByIndex(0)
    except Exception:  # NVML raises many types; all mean that there are no vitals here
        return None
    return pynvml


class VitalsSampler:
    """Samples NVML at 20 Hz between `start` and `stop`; without NVML it samples nothing."""

    def __init__(self, nvml: Any = None, worker_pid: int | None = None) -> None:
        """`nvml`: stands in for the module; `worker_pid`: root of the processes that are ours."""
        self._nvml = load_nvml() if nvml is None else nvml
        self._worker_pid = os.getppid() if worker_pid is None else worker_pid
        self._signs = VitalSigns()
        self._on = threading.Event()
        if self._nvml is None:
            return
        self._handle = handle_of_device(self._nvml)
        threading.Thread(target=self._loop, daemon=True, name="vitals").start()

    def _loop(self) -> None:
        due, readings = time.monotonic(), 0
        while True:
            self._on.wait()
            self._sample(readings % FOREIGN_EVERY == 0)
            readings += 1
            # from start to start: the reading's own milliseconds do not lengthen the interval
            due = max(due + INTERVAL_S, time.monotonic())
            time.sleep(max(0.0, due - time.monotonic()))

    def _sample(self, look_for_others: bool) -> None:
        nvml, handle, signs = self._nvml, self._handle, self._signs
        try:
            clock = float(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM))
            power = nvml.nvmlDeviceGetPowerUsage(handle) / 1000
            heat = float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))
            reasons = int(nvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
        except Exception:  # one reading less
            return
        signs.clock_mhz.append(clock)
        signs.power_w.append(power)
        signs.temperature_c.append(heat)
        signs.reasons.append(reasons)
        signs.at_s.append(time.monotonic())
        if look_for_others:
            self._look_for_others(signs)

    def _look_for_others(self, signs: VitalSigns) -> None:
        try:
            listed = self._nvml.nvmlDeviceGetComputeRunningProcesses(self._handle)
        except Exception:  # the list is not for everybody to read
            return
        foreign = count_foreign([entry.pid for entry in listed], os.getpid(), self._worker_pid)
        signs.foreign_pids = max(signs.foreign_pids, foreign)

    def start(self) -> None:
        """Begin to sample."""
        self._on.set()

    def stop(self) -> VitalSigns:
        """Pause; returns what was sampled since the last `stop`."""
        self._on.clear()
        signs, self._signs = self._signs, VitalSigns()
        return signs

    def is_steady(self) -> bool:
        """Whether the device has settled, by the samples since the last `stop`."""
        return self._signs.is_steady()

    def clock_since(self, began_s: float) -> float | None:
        """Median SM clock in MHz since a moment of `time.monotonic`; None without samples."""
        signs = self._signs
        pairs = zip(signs.at_s, signs.clock_mhz, strict=False)
        clocks = [clock for at, clock in pairs if at >= began_s]
        return median(clocks) if clocks else None


def handle_of_device(nvml: Any) -> Any:
    """The device that this process's torch calls 0: NVML counts all of the machine."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0].strip()
    if visible.isdigit():
        return nvml.nvmlDeviceGetHandleByIndex(int(visible))
    if visible.startswith("GPU-"):
        return nvml.nvmlDeviceGetHandleByUUID(visible)
    return nvml.nvmlDeviceGetHandleByIndex(0)
