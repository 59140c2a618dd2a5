"""Flags raised by what really happens: visits of real calls, disturbed for real."""

import functools
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from lossbench.service.contract.case import Case
from lossbench.service.contract.contender import Contender
from lossbench.service.contract.run import Environment, Measurement, MemoryReport
from lossbench.service.contract.words import Dtype, Flag, Pass
from lossbench.service.statistics.summary import ratio_interval, summarise, visit_log_ratio
from lossbench.worker import timing
from lossbench.worker.child import Child
from lossbench.worker.flags import flags_of, product_flops
from lossbench.worker.memory import Step, measure_memory
from lossbench.worker.messages import MakeVisit, Prepare, ReadVitals
from lossbench.worker.order import CaseOrder, CellFindings, CellOrder
from lossbench.worker.self_test import Call
from lossbench.worker.timing import CpuStopwatch, Stopwatch, Timed, make_visit, warm_up

from .fake_device import FakeDevice, steady

CASE = Case.parse("N64-H32-V128-float32")
CELL = CellOrder(0, Contender.parse("torch-naive"), Pass.FORWARD_BACKWARD)
BURN = [sys.executable, "-c", "while True: pass"]
HERE = Environment(
    device_type="cpu",
    device_name="CPU",
    device_uuid_hash="x",
    memory_bytes=2**30,
    facts={},
    hardware_fingerprint="h",
    software_fingerprint="s",
)
Visits = dict[int, list[list[float]]]


def measurement_of(found: CellFindings) -> Measurement:
    """Summaries as `assemble` makes them."""

    def flat(visits: Visits) -> list[float]:
        return [ms for made in visits.values() for visit in made for ms in visit]

    floor = None
    if found.floor_visits:
        logs = [visit_log_ratio(found.visits[p], found.floor_visits[p]) for p in found.visits]
        floor = ratio_interval([log for log in logs if log is not None])
    return Measurement(
        latency=summarise(flat(found.visits)),
        floor=summarise(flat(found.floor_visits)) if found.floor_visits else None,
        floor_ratio=floor,
    )


def flags(
    found: CellFindings, memory: MemoryReport | None = None, environment: Environment = HERE
) -> set[Flag]:
    """Flags of a cell on a CPU, that one left out."""
    order = CaseOrder(CASE, (CELL,), Contender(kernel="torch-naive"), len(found.visits), 600.0)
    measured = (measurement_of(found) if found.visits else None, memory)
    return set(flags_of(order, CELL, found, measured, environment)) - {Flag.CPU}


def spin(milliseconds: float) -> Call:
    """Work of so many milliseconds of this thread's processor time, whoever else runs."""

    def work() -> None:
        end = time.thread_time() + milliseconds / 1e3
        while time.thread_time() < end:
            pass

    return Call(work)


class OwnTime:
    """A stopwatch of this thread's processor time: what others do on the core is not in it."""

    def time(self, arm: Timed) -> tuple[float, float]:
        arm.before()
        start = time.thread_time()
        arm.call()
        elapsed_ms = (time.thread_time() - start) * 1e3
        return elapsed_ms, elapsed_ms


def visits_of(
    arm: Call,
    between: Callable[[int], None] = lambda visit: None,
    stopwatch: Stopwatch | None = None,
) -> list[list[float]]:
    """Six short visits, on the wall clock unless told otherwise."""
    made = []
    for visit in range(timing.VISITS):
        between(visit)
        seen = make_visit(arm, stopwatch or CpuStopwatch(), lead_in_s=0.01, counted_s=0.04)
        made.append(seen.latency_ms)
    return made


@pytest.fixture
def burners() -> Iterator[Callable[[int], None]]:
    """Sets how many other processes burn the one core that this thread may use."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    running: list[subprocess.Popen[bytes]] = []

    def burn(wanted: int) -> None:
        while len(running) < wanted:
            running.append(subprocess.Popen(BURN))
        while len(running) > wanted:
            running[-1].kill()
            running.pop().wait()
        time.sleep(0.1)

    yield burn
    burn(0)
    os.sched_setaffinity(0, cores)


def test_processes_that_burn_the_core_now_and_then_make_it_noisy(
    burners: Callable[[int], None],
) -> None:
    found = CellFindings(visits={0: visits_of(spin(10.0), lambda visit: burners(visit % 2 * 3))})
    assert Flag.NOISY in flags(found)


class ScansAllItKept:
    """An arm that leaks: each visit leaves more behind, and each call reads all of it."""

    def __init__(self) -> None:
        self.kept = [0.0] * 5_000

    def before(self) -> None:
        pass

    def call(self) -> None:
        sum(self.kept)


def test_call_that_reads_ever_more_of_what_it_left_behind_drifts() -> None:
    leaks = ScansAllItKept()
    found = CellFindings(
        visits={0: visits_of(leaks, lambda visit: leaks.kept.extend(leaks.kept), OwnTime())}
    )
    assert Flag.DRIFT in flags(found)


def test_two_configurations_over_processes_are_two_modes() -> None:
    """Each process draws one of two sizes of work, as an autotuner's lottery does."""
    drawn = itertools.cycle((0.3, 1.2))
    found = CellFindings(
        visits={p: visits_of(spin(next(drawn)), stopwatch=OwnTime()) for p in range(6)},
        floor_visits={p: visits_of(spin(0.3), stopwatch=OwnTime()) for p in range(6)},
    )
    assert Flag.MULTI_MODAL in flags(found)
    five = replace(found, visits={p: v for p, v in found.visits.items() if p < 5})
    assert Flag.MULTI_MODAL not in flags(five), "five processes say nothing of modes"


def test_one_visit_of_a_slow_call_is_too_few_samples() -> None:
    visit = make_visit(spin(20.0), CpuStopwatch(), lead_in_s=0.0, counted_s=0.02)
    assert len(visit.latency_ms) == timing.MINIMUM_CALLS
    assert Flag.LOW_N in flags(CellFindings(visits={0: [visit.latency_ms]}))
    whole = CellFindings(visits={0: [visit.latency_ms] * 5})
    assert Flag.LOW_N not in flags(whole)


def test_baseline_with_too_few_samples_counts_too() -> None:
    found = CellFindings(visits={0: [[1.0] * 20]}, baseline_visits={0: [[1.0] * 19]})
    assert flags(found) == {Flag.LOW_N}


def test_arm_that_never_settles_is_not_steady() -> None:
    device = FakeDevice(lambda call: 0.004 if call // timing.GROUP % 2 else 0.001)
    found = CellFindings(steady=warm_up(Call(lambda: None), device, 0.0, device.clock))
    assert Flag.NOT_STEADY in flags(found)
    device = steady(0.002)
    calm = CellFindings(steady=warm_up(Call(lambda: None), device, 0.0, device.clock))
    assert Flag.NOT_STEADY not in flags(calm)


def test_device_that_has_not_settled_is_not_steady() -> None:
    call, device = Call(lambda: None), steady(0.001)
    assert warm_up(call, device, 0.0, device.clock, settled=lambda: False) is False
    answers = itertools.chain([False, False], itertools.repeat(True))
    assert warm_up(call, device, 0.0, device.clock, settled=lambda: next(answers)) is True


def test_call_that_does_less_than_the_products_is_suspect() -> None:
    """Half of the columns: a kernel that skips work is faster than the floor."""
    x, weight = torch.randn(256, 256), torch.randn(2048, 256)
    lazy = Call(lambda: torch.mm(x, weight[:1024].t()))
    floor = Call(lambda: torch.mm(x, weight.t()))
    own = OwnTime()
    found = CellFindings(
        visits={0: visits_of(lazy, stopwatch=own)},
        floor_visits={0: visits_of(floor, stopwatch=own)},
    )
    assert Flag.SUSPECT in flags(found)
    honest = CellFindings(visits=found.floor_visits, floor_visits=found.visits)
    assert Flag.SUSPECT not in flags(honest)


def test_call_that_does_nothing_is_above_the_roof() -> None:
    roof = HERE.model_copy(update={"facts": {"gemm_tflops": 0.05}})
    found = CellFindings(visits={0: visits_of(Call(lambda: None))})
    assert Flag.SUSPECT in flags(found, environment=roof)
    assert Flag.SUSPECT not in flags(found), "without a roof there is nothing to be above"
    slow = CellFindings(visits={0: visits_of(spin(5.0))})
    assert Flag.SUSPECT not in flags(slow, environment=roof)


@pytest.mark.parametrize(
    ("changes", "pass_", "in_forward", "products"),
    [
        ({}, Pass.FORWARD_BACKWARD, False, 3.0),
        ({}, Pass.FORWARD, False, 1.0),
        ({}, Pass.FORWARD, True, 3.0),
        ({"frozen": "weight"}, Pass.FORWARD_BACKWARD, False, 2.0),
        ({"ignored_share": 0.5}, Pass.FORWARD_BACKWARD, False, 1.5),
    ],
)
def test_operations_are_those_of_the_products_on_valid_rows(
    changes: dict[str, Any], pass_: Pass, in_forward: bool, products: float
) -> None:
    options = CASE.options.model_copy(update=changes)
    case = CASE.model_copy(update={"options": options, "dtype": Dtype.FLOAT32})
    assert product_flops(case, pass_, in_forward) == products * 2 * 64 * 32 * 128


def test_failed_self_test_makes_a_cpu_noisy() -> None:
    calm = CellFindings(visits={0: [[5.0] * 4] * 6})
    failed = HERE.model_copy(update={"facts": {"self_test_passed": False}})
    passed = HERE.model_copy(update={"facts": {"self_test_passed": True}})
    assert flags(calm, environment=failed) == {Flag.NOISY}
    assert flags(calm, environment=passed) == flags(calm) == set()


def test_memory_that_differs_from_step_to_step_is_flagged() -> None:
    sizes = itertools.count(1)

    def forward() -> Tensor:
        return torch.empty(next(sizes) * 1024)

    step = Step(lambda: None, forward, lambda loss: None, lambda loss: 0)
    use, equal = measure_memory(step, "cpu")
    numbers = {name: n for name, n in vars(use).items() if name in MemoryReport.model_fields}
    report = MemoryReport(**numbers, workspace_bytes=use.workspace_bytes, repeats_equal=equal)
    assert Flag.MEMORY_NONDETERMINISTIC in flags(CellFindings(), report)


class CompilesAnew:
    """An arm whose shape changes in a few calls, so that torch.compile makes another graph."""

    def __init__(self) -> None:
        self._sizes = itertools.count(2)
        self._calls = 0
        self._compiled: Any = torch.compile(
            torch.sin, backend="eager", dynamic=False, fullgraph=True
        )

    def before(self) -> None:
        self._calls += 1

    def call(self) -> None:
        # not in every call: a limit ends recompiling after eight graphs
        self._compiled(torch.ones(next(self._sizes) if self._calls in (1, 3, 5) else 2))


def test_compilation_in_a_visit_is_seen() -> None:
    child = Child()
    assert child.obey(Prepare(case=CASE, seed=0)) == {}
    child.obey(ReadVitals())
    child.bench.arms["quiet"] = Call(functools.partial(torch.sin, torch.ones(2)))
    child.bench.arms["compiles"] = CompilesAnew()
    taken = {}
    for arm in ("quiet", "compiles"):
        visit = child.obey(MakeVisit(arm=arm))
        happened = {"compiled": visit["compiled"], "compiled_beside": 0}
        taken[arm] = (visit["latency_ms"], child.obey(ReadVitals()) | happened)
    torch._dynamo.reset()
    for arm, expected in (("quiet", False), ("compiles", True)):
        samples, signs = taken[arm]
        found = CellFindings(visits={0: [samples]}, vitals={0: signs})
        assert (Flag.COMPILE_IN_TIMING in flags(found)) is expected
