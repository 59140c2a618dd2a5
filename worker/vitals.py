"""Clock, power, temperature and throttle reasons, sampled in a side thread while measuring."""

import threading
from dataclasses import dataclass, field
from typing import Any

INTERVAL_S = 0.1
POWER_CAP_BIT = 0x4
THROTTLE_BITS = 0x8 | 0x20 | 0x40 | 0x80
"""NVML clock-event reasons: hardware slowdown, software and hardware thermal, power brake."""
POWER_CAP_SHARE = 0.2


@dataclass
class VitalSigns:
    """Samples of one stretch of measuring."""

    clock_mhz: list[float] = field(default_factory=list)
    power_w: list[float] = field(default_factory=list)
    temperature_c: list[float] = field(default_factory=list)
    reasons: list[int] = field(default_factory=list)
    foreign_pids: int = 0

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


class VitalsSampler:
    """Samples NVML at 10 Hz between `start` and `stop`; without NVML it samples nothing."""

    def __init__(self) -> None:
        self._nvml: Any = None
        self._handle: Any = None
        self._signs = VitalSigns()
        self._on = threading.Event()
        try:
            import pynvml

            pynvml.nvmlInit()
            self._handle = pynvml.nvmlDeviceGetHandleByIndex(0)
            self._nvml = pynvml
        except Exception:  # NVML raises many types; all mean that there are no vitals here
            return
        threading.Thread(target=self._loop, daemon=True, name="vitals").start()

    def _loop(self) -> None:
        while True:
            self._on.wait()
            self._sample()
            threading.Event().wait(INTERVAL_S)

    def _sample(self) -> None:
        nvml, handle, signs = self._nvml, self._handle, self._signs
        try:
            signs.clock_mhz.append(float(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)))
            signs.power_w.append(nvml.nvmlDeviceGetPowerUsage(handle) / 1000)
            signs.temperature_c.append(
                float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))
            )
            signs.reasons.append(int(nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)))
        except Exception:  # one reading less
            return

    def start(self) -> None:
        """Begin to sample."""
        self._on.set()

    def stop(self) -> VitalSigns:
        """Pause; returns what was sampled since the last `stop`."""
        self._on.clear()
        signs, self._signs = self._signs, VitalSigns()
        return signs
