"""How large the traps of docs/measuring.md are on this GPU, appended to a file as JSON lines.

    python -P tests/gpu/traps.py FILE

Each trap is asked in turns, ROUNDS times: the floor's products on zeros, on the true dZ and on raw
logits; a call with its inputs in the cache and flushed from it; the first calls after a rest beside
those at steady power.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lossbench.service.contract.case import Case
from lossbench.service.contract.contender import Contender
from lossbench.service.contract.words import Pass
from lossbench.worker.bench import CaseBench
from lossbench.worker.timing import Timed, make_visit, warm_up
from lossbench.worker.vitals import VitalsSampler

ROUNDS = 8
CASES = (
    "N1024-H2048-V32000-bfloat16",
    "N8192-H4096-V32000-bfloat16",
    "N8192-H4096-V128256-bfloat16",
)
RESTED = "N8192-H4096-V32000-bfloat16"
REST_S = 5.0
WATCHED_S = 4.0
"""After a rest: how long the calls are followed."""


class Call:
    """A function as an arm."""

    def __init__(self, function: Callable[[], object]) -> None:
        self._function = function

    def before(self) -> None:
        """Nothing."""

    def call(self) -> None:
        """The function."""
        self._function()


def hot_ms(arm: Timed) -> float:
    """One call right behind another one, without a flush between them."""
    arm.before()
    arm.call()
    arm.before()
    start = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    end = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    start.record()
    arm.call()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end))


def in_turns(arms: dict[str, Callable[[], list[float]]]) -> dict[str, list[float]]:
    """Median of a visit of each arm, ROUNDS times, the order turned round every time."""
    taken: dict[str, list[float]] = {name: [] for name in arms}
    for number in range(ROUNDS):
        for name in list(arms) if number % 2 == 0 else list(reversed(arms)):
            taken[name].append(statistics.median(arms[name]()))
    return taken


def data_dependence(bench: CaseBench) -> dict[str, Any]:
    """Three products with the logits' place taken by zeros, by the true dZ, by raw logits."""
    inputs = bench.leaves.inputs
    x, weight = inputs.x.detach(), inputs.weight.detach()
    logits = x @ weight.t()
    gradient = torch.softmax(logits.float(), 1)
    gradient[torch.arange(len(x), device=x.device), inputs.target] -= 1.0
    true = (gradient / len(x)).to(x.dtype)
    del gradient

    def products(rows: Tensor) -> Call:
        return Call(lambda: (x @ weight.t(), rows @ weight, rows.t() @ x))

    arms = {
        "zeros": products(torch.zeros_like(logits)),
        "true_dz": products(true),
        "raw_logits": products(logits),
    }

    def visits_of(arm: Timed) -> Callable[[], list[float]]:
        return lambda: make_visit(arm, bench.stopwatch).latency_ms

    return in_turns({name: visits_of(arm) for name, arm in arms.items()})


def cache(bench: CaseBench, arm: Timed) -> dict[str, Any]:
    """The call behind a flush of the cache, and right behind itself."""

    def hot() -> list[float]:
        began = time.perf_counter()
        taken = []
        while time.perf_counter() - began < 0.4:
            taken.append(hot_ms(arm))
        return taken[len(taken) // 4 :]

    return in_turns({"cold": lambda: make_visit(arm, bench.stopwatch).latency_ms, "hot": hot})


def after_rest(bench: CaseBench, arm: Timed) -> dict[str, Any]:
    """Times of calls since the end of a rest: (seconds, ms, MHz of the SMs)."""
    found = []
    for _ in range(3):
        time.sleep(REST_S)
        vitals = VitalsSampler()
        vitals.start()
        began, calls = time.monotonic(), []
        while (at_s := time.monotonic()) - began < WATCHED_S:
            calls.append((at_s - began, bench.stopwatch.time(arm)[0]))
        signs = vitals.stop()
        sampled = [
            (at - began, mhz, watts)
            for at, mhz, watts in zip(signs.at_s, signs.clock_mhz, signs.power_w, strict=True)
        ]
        found.append({"calls": calls[:: max(1, len(calls) // 200)], "vitals": sampled})
    return {"rests": found}


def measure(text: str) -> Iterator[dict[str, Any]]:
    """Every trap on one case."""
    bench = CaseBench(Case.parse(text), 0, "cuda", False)
    bench.add_contender("a", Contender(kernel="flce"), Pass.FORWARD_BACKWARD)
    arm = bench.arms["a"]
    if text == RESTED:
        yield {"trap": "after_rest", "case": text, **after_rest(bench, arm)}
    warm_up(arm, bench.stopwatch, 2.0)
    yield {"trap": "cache", "case": text, **cache(bench, arm)}
    yield {"trap": "data", "case": text, **data_dependence(bench)}


def main() -> None:
    """Measure all cases and append to the file."""
    with Path(sys.argv[1]).open("a", encoding="utf-8") as out:
        for text in CASES:
            for line in measure(text):
                out.write(json.dumps(line) + "\n")
                out.flush()
                sys.stdout.write(f"{line['trap']} {text}\n")
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
