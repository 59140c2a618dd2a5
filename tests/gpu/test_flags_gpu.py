"""Flags that only a GPU can raise, each by what really causes it."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from torch import Tensor

from lossbench.kernels.catalogue import build
from lossbench.service.contract.case import Case
from lossbench.service.contract.contender import Contender
from lossbench.service.contract.run import Environment, Measurement
from lossbench.service.contract.words import Flag, Pass
from lossbench.service.statistics.summary import summarise
from lossbench.worker.arms import ContenderArm
from lossbench.worker.bench import CaseBench
from lossbench.worker.child import Child
from lossbench.worker.disturbances import CompileWatch
from lossbench.worker.flags import flags_of
from lossbench.worker.memory import Step, measure_memory, tensor_bytes
from lossbench.worker.messages import MakeVisit, Prepare, ReadVitals
from lossbench.worker.order import CaseOrder, CellFindings, CellOrder
from lossbench.worker.timing import make_visit
from lossbench.worker.vitals import VitalsSampler, load_nvml

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
MIB, GIB = 2**20, 2**30
TINY = Case.parse("N64-H64-V128-bfloat16")
SMALL = Case.parse("N2048-H1024-V32000-bfloat16")
GPU = Environment(
    device_type="cuda",
    device_name="GPU",
    device_uuid_hash="x",
    memory_bytes=2**37,
    facts={},
    hardware_fingerprint="h",
    software_fingerprint="s",
)
STRANGER = """
import torch
a = torch.randn(2048, 2048, device="cuda")
print("ready", flush=True)
while True:
    a @ a
    torch.cuda.synchronize()
"""


def sampler() -> VitalsSampler:
    """A sampler of this process; skips where NVML cannot be read."""
    if load_nvml() is None:
        pytest.skip("NVML cannot be read here")
    return VitalsSampler(worker_pid=os.getpid())


def load(seconds: float) -> None:
    """Products of normal numbers: what makes a card reach its power limit."""
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for _ in range(20):
            torch.mm(a, a)
        torch.cuda.synchronize()


def test_load_raises_power_capped_and_is_read_at_ten_hertz() -> None:
    vitals = sampler()
    load(3.0)
    vitals.start()
    load(3.0)
    signs = vitals.stop()
    rate_hz = (len(signs.at_s) - 1) / (signs.at_s[-1] - signs.at_s[0])
    assert rate_hz >= 10.0
    assert "power_capped" in signs.flags(), (max(signs.power_w), set(signs.reasons))
    assert "foreign_process" not in signs.flags()


@pytest.fixture
def stranger() -> Iterator[int]:
    """A process that uses the GPU and is nobody's child here: its parent has ended."""
    line = f"{sys.executable} -P -c '{STRANGER}' & echo $!"
    with subprocess.Popen(["sh", "-c", line], stdout=subprocess.PIPE, text=True) as shell:
        assert shell.stdout is not None
        pid = int(shell.stdout.readline())
        try:
            assert shell.stdout.readline().strip() == "ready"
            yield pid
        finally:
            os.kill(pid, signal.SIGKILL)


def test_other_process_on_the_gpu_raises_foreign_process(stranger: int) -> None:
    vitals = sampler()
    torch.zeros(1, device="cuda")
    nvml = load_nvml()
    if not nvml.nvmlDeviceGetComputeRunningProcesses(nvml.nvmlDeviceGetHandleByIndex(0)):
        pytest.skip("NVML lists no processes in this container")
    vitals.start()
    load(1.0)
    signs = vitals.stop()
    assert "foreign_process" in signs.flags(), stranger


class FillsMemory:
    """A call that asks for more than is free until torch's cache is emptied."""

    def __init__(self) -> None:
        torch.cuda.empty_cache()
        free, _ = torch.cuda.mem_get_info()
        self._filler = torch.empty(free - 4 * GIB, device="cuda", dtype=torch.uint8)

    def before(self) -> None:
        """Nothing."""

    def call(self) -> None:
        """2 GiB, given back to torch's cache only, then 3 GiB, which do not fit beside them."""
        for size in (2 * GIB, 3 * GIB):
            torch.empty(size, device="cuda", dtype=torch.uint8)


def test_memory_that_is_nearly_full_raises_alloc_retry() -> None:
    child = Child()
    child.obey(Prepare(case=TINY, seed=0))
    child.obey(ReadVitals())
    child.bench.arms["fills"] = FillsMemory()
    child.obey(MakeVisit(arm="fills"))
    signs = child.obey(ReadVitals())
    child.bench.arms.clear()
    gc.collect()
    torch.cuda.empty_cache()
    assert "alloc_retry" in signs["flags"]
    assert "alloc_retry" not in child.obey(ReadVitals())["flags"]


def flags(case: Case, milliseconds: list[float], pass_: Pass) -> set[Flag]:
    """Flags of a cell with these samples, ten to a visit."""
    cell = CellOrder(0, Contender.parse("torch-naive"), pass_)
    order = CaseOrder(case, (cell,), Contender(kernel="torch-naive"), 1, 600.0)
    visits = [milliseconds[i : i + 10] for i in range(0, len(milliseconds), 10)]
    measured = (Measurement(latency=summarise(milliseconds)), None)
    return set(flags_of(order, cell, CellFindings(visits={0: visits}), measured, GPU))


@pytest.mark.parametrize(("case", "expected"), [(TINY, True), (SMALL, False)])
def test_call_shorter_than_its_launches_raises_launch_bound(case: Case, expected: bool) -> None:
    bench = CaseBench(case, 0, "cuda", False)
    bench.add_contender("a", Contender(kernel="torch-naive"), Pass.FORWARD)
    visit = make_visit(bench.arms["a"], bench.stopwatch)
    found = flags(case, visit.latency_ms, Pass.FORWARD)
    assert (Flag.LAUNCH_BOUND in found) is expected, visit.latency_ms[:5]


@triton.jit
def _fill(x_ptr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    tl.store(x_ptr + tl.arange(0, BLOCK), 1.0)


def test_triton_kernel_that_is_compiled_between_readings_is_seen_once() -> None:
    watch = CompileWatch()
    watch.since_last()
    x = torch.zeros(128, device="cuda")
    for expected in (3, 0):
        for block in (32, 64, 128):
            _fill[(1,)](x, BLOCK=block)
        assert watch.since_last() == expected


def step_of(arm: ContenderArm, bench: CaseBench, kept: list[Tensor] | None) -> Step:
    """A step of a real kernel; with a list it keeps 1 MiB more at each forward."""

    def forward() -> Tensor:
        if kept is not None:
            kept.append(torch.empty(MIB, dtype=torch.uint8, device="cuda"))
        return arm.forward()

    def outputs_bytes(loss: Tensor) -> int:
        trained: list[Any] = bench.leaves.trained
        return tensor_bytes(loss) + sum(tensor_bytes(t.grad) for t in trained)

    return Step(bench.leaves.clear, forward, arm.backward, outputs_bytes)


def test_planted_leak_of_one_mebibyte_is_always_seen_to_the_byte() -> None:
    bench = CaseBench(SMALL, 0, "cuda", False)
    arm = ContenderArm(build("flce", None, {}), bench.leaves, Pass.FORWARD_BACKWARD)
    clean, equal = measure_memory(step_of(arm, bench, None), "cuda")
    assert equal
    for _ in range(10):
        kept: list[Tensor] = []
        leaking, repeats = measure_memory(step_of(arm, bench, kept), "cuda")
        assert repeats
        assert leaking.held_bytes - clean.held_bytes == MIB
        assert leaking.workspace_bytes - clean.workspace_bytes == MIB
        assert leaking.device_used_bytes is not None
