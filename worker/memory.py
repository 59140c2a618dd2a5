"""Memory of one forward and backward, to the byte: peaks, what is held between, workspace.

On a GPU torch's caching allocator counts; on a CPU the profiler's allocation events do. Three
repeats must agree to the byte.
"""

import gc
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

REPEATS = 3
HOST_MEMORY_WORDS = "DefaultCPUAllocator: can't allocate memory"
WARM_UP_CALLS = 3


@dataclass(frozen=True)
class Step:
    """One training step of a contender, split where memory is read."""

    clear: Callable[[], None]
    forward: Callable[[], Tensor]
    backward: Callable[[Tensor], None]
    outputs_bytes: Callable[[Tensor], int]
    """Bytes of the loss and of the gradients present after the backward."""


def memory_ran_out(error: BaseException) -> bool:
    """Whether an exception says that the device's or the machine's memory did not suffice."""
    gone = isinstance(error, torch.OutOfMemoryError | MemoryError)
    return gone or HOST_MEMORY_WORDS in str(error)


@dataclass(frozen=True)
class MemoryUse:
    """Bytes over the base (inputs, weight and what else was resident)."""

    base_bytes: int
    peak_forward_bytes: int
    held_bytes: int
    peak_backward_bytes: int
    outputs_bytes: int
    reserved_bytes: int | None
    alloc_retries: int
    device_used_bytes: int | None = None
    """What the driver counts on the whole device just after: contexts and others included."""

    @property
    def workspace_bytes(self) -> int:
        """The larger peak, less what the caller keeps: loss and gradients."""
        return max(0, max(self.peak_forward_bytes, self.peak_backward_bytes) - self.outputs_bytes)


def tensor_bytes(tensor: Tensor | None) -> int:
    """Bytes that an allocator of 512-byte blocks gives this tensor; 0 for None.

    Of a view only its own part: what else is in its buffer is kept for it, and is workspace.
    """
    if tensor is None:
        return 0
    size = min(tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes())
    return -(-size // 512) * 512 if tensor.is_cuda else size


def measure_memory(step: Step, device: str) -> tuple[MemoryUse, bool]:
    """Memory of the step, and whether all repeats agreed to the byte."""
    for _ in range(WARM_UP_CALLS if device == "cuda" else 1):
        step.clear()
        step.backward(step.forward())
    once = _cuda_once if device == "cuda" else _cpu_once
    repeats = [once(step) for _ in range(REPEATS)]
    step.clear()
    keys = [(r.peak_forward_bytes, r.held_bytes, r.peak_backward_bytes) for r in repeats]
    return repeats[-1], len(set(keys)) == 1


def _cuda_once(step: Step) -> MemoryUse:
    step.clear()
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    retries = torch.cuda.memory_stats().get("num_alloc_retries", 0)
    base = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    loss = step.forward()
    torch.cuda.synchronize()
    peak_forward = torch.cuda.max_memory_allocated() - base
    held = torch.cuda.memory_allocated() - base
    torch.cuda.reset_peak_memory_stats()
    step.backward(loss)
    torch.cuda.synchronize()
    peak_backward = torch.cuda.max_memory_allocated() - base
    return MemoryUse(
        base_bytes=base,
        peak_forward_bytes=peak_forward,
        held_bytes=held,
        peak_backward_bytes=peak_backward,
        outputs_bytes=step.outputs_bytes(loss),
        reserved_bytes=torch.cuda.max_memory_reserved(),
        alloc_retries=torch.cuda.memory_stats().get("num_alloc_retries", 0) - retries,
        device_used_bytes=_used_on_device(),
    )


def _used_on_device() -> int:
    free, total = torch.cuda.mem_get_info()
    return int(total - free)


def _cpu_once(step: Step) -> MemoryUse:
    step.clear()
    gc.collect()
    forward: list[Tensor] = []

    def run_forward() -> None:
        forward.append(step.forward())

    peak_forward, held = _cpu_allocations(run_forward)
    loss = forward.pop()
    peak_more, _ = _cpu_allocations(lambda: step.backward(loss))
    return MemoryUse(
        base_bytes=0,
        peak_forward_bytes=peak_forward,
        held_bytes=held,
        peak_backward_bytes=held + peak_more,
        outputs_bytes=step.outputs_bytes(loss),
        reserved_bytes=None,
        alloc_retries=0,
    )


def _cpu_allocations(call: Callable[[], None]) -> tuple[int, int]:
    """(peak, remaining) bytes that a call allocates, by the profiler's events."""
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profiler:
        call()
    result = profiler.profiler.kineto_results
    events = [event for event in result.events() if event.name() == "[memory]"]
    current = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        current += event.nbytes()
        peak = max(peak, current)
    return peak, current
