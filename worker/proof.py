"""What a device can tell apart: the same code twice, and slowdowns that are really there.

Run as `python -P -m lossbench.worker.proof`: a process that imports torch, prints that it is ready,
waits for one line with a `ProofTask`, and prints what each shape gave as one JSON line. It times
all arms of every shape: A, A' (the same code) and A with 1, 2 and 5 % of extra products.
"""

import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from pydantic import TypeAdapter
from torch import Tensor

from lossbench.service.contract.case import Case
from lossbench.service.contract.contender import Contender
from lossbench.service.contract.words import Pass

from .arms import ContenderArm
from .bench import CaseBench
from .child import die_with_parent
from .proof_task import ARMS, PLANTED, ProofTask
from .self_test import QUICK, Lengths
from .timing import Stopwatch, Timed, make_visit, warm_up
from .vitals import VitalsSampler

FEW_CALLS, MANY_CALLS = 3, 11
LONG_CALL_MS = 5.0
"""Calls that size a slowdown: few where a call is long, since it repeats well and time is dear."""
CALIBRATIONS = 4
NEAR_ENOUGH = 0.1
"""A planted slowdown may miss its size by a tenth: what is compared is the measured one."""


class Extra:
    """Products of the call's own kind: some rows of x times some columns of W."""

    def __init__(self, x: Tensor, weight: Tensor) -> None:
        self._x, self._weight = x.detach(), weight.detach()
        self._operations_of_row = 2.0 * weight.shape[0] * weight.shape[1]
        self.rows = self.columns = 0

    def resize(self, operations: float) -> None:
        """Take about so many operations: all columns of W if that leaves rows enough, else less."""
        tokens, vocab = self._x.shape[0], self._weight.shape[0]
        self.rows = min(tokens, max(16, round(operations / self._operations_of_row)))
        share = operations / (self.rows * self._operations_of_row)
        self.columns = max(1, min(vocab, round(share * vocab)))

    @property
    def operations(self) -> float:
        """Operations of one call now."""
        return 2.0 * self.rows * self.columns * self._x.shape[1]

    def call(self) -> None:
        """The extra work."""
        torch.mm(self._x[: self.rows], self._weight[: self.columns].t())


class SlowedArm:
    """An arm with extra work at its end."""

    def __init__(self, arm: Timed, extra: Extra) -> None:
        self._arm, self.extra = arm, extra

    def before(self) -> None:
        """As the arm."""
        self._arm.before()

    def call(self) -> None:
        """The arm's work and the extra."""
        self._arm.call()
        self.extra.call()


class _OnlyExtra:
    """The extra work timed by itself, right behind a call: in the same state of the device."""

    def __init__(self, arm: Timed, extra: Extra) -> None:
        self._arm, self._extra = arm, extra

    def before(self) -> None:
        """A whole call of the arm, outside the clock."""
        self._arm.before()
        self._arm.call()

    def call(self) -> None:
        """The extra work."""
        self._extra.call()


def _median_ms(arm: Timed, stopwatch: Stopwatch, calls: int) -> float:
    return statistics.median(stopwatch.time(arm)[0] for _ in range(calls))


def calibrate(
    arm: Timed, extra: Extra, stopwatch: Stopwatch, share: float, flops: float
) -> tuple[float, float]:
    """Size the extra work to `share` of a call; (the share it then measured, the call's ms).

    `flops` of one call give the first guess. Of several tries the nearest is taken.
    """
    call_ms = _median_ms(arm, stopwatch, FEW_CALLS)
    calls = FEW_CALLS if call_ms > LONG_CALL_MS else MANY_CALLS
    call_ms = call_ms if calls == FEW_CALLS else _median_ms(arm, stopwatch, calls)
    operations, tried = share * flops, []
    for _ in range(CALIBRATIONS):
        extra.resize(operations)
        measured = _median_ms(_OnlyExtra(arm, extra), stopwatch, calls) / call_ms
        tried.append((abs(math.log(measured / share)), extra.operations, measured))
        if abs(measured / share - 1.0) < NEAR_ENOUGH:
            break
        operations = extra.operations * min(8.0, max(0.125, share / measured))
    _, operations, measured = min(tried)
    extra.resize(operations)
    return measured, call_ms


def _arms(bench: CaseBench, contender: Contender) -> dict[str, Timed]:
    """Every arm calls the same function on the same tensors: only what is planted differs."""
    bench.add_contender("A", contender, Pass.FORWARD_BACKWARD)
    first = bench.arms["A"]
    if not isinstance(first, ContenderArm):
        raise TypeError(f"{contender} is no contender")
    made: dict[str, Timed] = {
        name: ContenderArm(first.function, bench.leaves, Pass.FORWARD_BACKWARD) for name in ARMS
    }
    inputs = bench.leaves.inputs
    for name in PLANTED:
        made[name] = SlowedArm(made[name], Extra(inputs.x, inputs.weight))
    return made


def _plant(arms: dict[str, Timed], bench: CaseBench) -> tuple[dict[str, float], float]:
    """Size every slowdown; ({arm: measured share}, ms of a call)."""
    flops = 6.0 * bench.case.max_tokens * bench.case.hidden * bench.case.vocab
    planted, call_ms = {}, 0.0
    for name, share in PLANTED.items():
        slowed = arms[name]
        if isinstance(slowed, SlowedArm):
            measured = calibrate(arms["A"], slowed.extra, bench.stopwatch, share, flops)
            planted[name], call_ms = measured
    return planted, call_ms


def measure_shape(task: ProofTask, case: Case, device: str) -> dict[str, Any]:
    """Visits of all arms on one shape: milliseconds by arm and visit, with what was planted."""
    began = time.perf_counter()
    lengths = QUICK if task.quick else Lengths()
    bench = CaseBench(case, task.seed, device, False)
    arms = _arms(bench, task.contender)
    vitals = VitalsSampler()
    vitals.start()
    settled = vitals.is_steady
    steady = warm_up(arms["A"], bench.stopwatch, lengths.warm_up_s, settled=settled)
    planted, call_ms = _plant(arms, bench)
    for name in arms:
        bench.stopwatch.time(arms[name])
    vitals.stop()
    vitals.start()
    taken: dict[str, list[list[float]]] = {name: [] for name in arms}
    order: list[list[str]] = []
    clocks: dict[str, list[float | None]] = {name: [] for name in arms}
    for visit in range(task.visits):
        order.append(visit_order(task.process, visit))
        for name in order[-1]:
            at_s = time.monotonic()
            made = _visit(arms[name], bench.stopwatch, lengths)
            taken[name].append(made)
            clocks[name].append(vitals.clock_since(at_s))
    signs = vitals.stop()
    return {
        "process": task.process,
        "case": case.text,
        "contender": task.contender.text,
        "device": device,
        "call_ms": call_ms,
        "planted": planted,
        "visits": taken,
        "order": order,
        "visit_clock_mhz": clocks,
        "steady": steady,
        "flags": signs.flags(),
        "timed_s": sum(ms for made in taken.values() for visit in made for ms in visit) / 1e3,
        "wall_s": time.perf_counter() - began,
        "ended_unix_s": time.time(),
    }


def _visit(arm: Timed, stopwatch: Stopwatch, lengths: Lengths) -> list[float]:
    made = make_visit(arm, stopwatch, lead_in_s=lengths.lead_in_s, counted_s=lengths.counted_s)
    return made.latency_ms


def visit_order(process: int, visit: int) -> list[str]:
    """Arms in the order of a visit: rotated by the pair of visits, mirrored in every other one.

    Over processes the mirrored one comes first in turn, so that no arm is always first.
    """
    names = list(ARMS)
    turn = (process + visit // 2) % len(names)
    turned = names[turn:] + names[:turn]
    return turned if (visit + process) % 2 == 0 else turned[::-1]


def measure_process(
    task: ProofTask, measure: Callable[[ProofTask, Case, str], dict[str, Any]] = measure_shape
) -> Iterator[dict[str, Any]]:
    """Every shape of one process; what does not work on a shape is a line with its reason."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for case in task.cases:
        try:
            yield measure(task, case, device)
        except Exception as error:  # one shape that does not fit leaves the others
            reason = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
            yield {"process": task.process, "case": case.text, "failed": reason[:300]}
        if device == "cuda":
            torch.cuda.empty_cache()


def main() -> None:
    """Say that torch is there, take one task, print its lines."""
    die_with_parent()
    sys.stdout.write(json.dumps({"ready": True}) + "\n")
    sys.stdout.flush()
    line = sys.stdin.readline()
    if not line.strip():
        return
    task = TypeAdapter(ProofTask).validate_json(line)
    for found in measure_process(task):
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
