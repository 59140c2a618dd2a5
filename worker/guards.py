"""What keeps a measurement honest: the clocks are untouched, and the contender's own kernel ran."""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch


def _places() -> list[tuple[Any, str]]:
    return [
        (time, "perf_counter"),
        (time, "perf_counter_ns"),
        (time, "monotonic"),
        (torch.cuda.Event, "elapsed_time"),
        (torch.cuda.Event, "record"),
        (torch.cuda.Event, "synchronize"),
        (torch.cuda, "synchronize"),
        (torch.cuda, "current_stream"),
    ]


class TimerGuard:
    """Remembers the clocks before any contender is imported, and tells which were replaced."""

    def __init__(self) -> None:
        self._held = [(owner, name, getattr(owner, name)) for owner, name in _places()]

    def replaced(self) -> list[str]:
        """Faults, one for each clock that is no longer the same; they are put back."""
        faults = []
        for owner, name, original in self._held:
            if getattr(owner, name) is not original:
                setattr(owner, name, original)
                faults.append(f"it replaced {owner.__name__}.{name}")
        return faults


def kernels_of(call: Callable[[], object]) -> list[str]:
    """Names of the GPU kernels that a call starts, as the profiler saw them; call it warm."""
    from torch.profiler import ProfilerActivity, profile

    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as seen:
        call()
        torch.cuda.synchronize()
    events = seen.key_averages()
    # the host's calls into the runtime are listed, too
    kernels = [event for event in events if str(event.device_type).endswith("CUDA")] or events
    return sorted({event.key[:120] for event in kernels})


def is_own(wanted: Sequence[str], kernels: Iterable[str]) -> bool:
    """Whether one of the kernels has a name that proves the contender's own code."""
    return any(part in name for name in kernels for part in wanted)
