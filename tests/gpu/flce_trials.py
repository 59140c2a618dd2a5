"""Trials of flce on this GPU, appended to a file as JSON lines: plans beside the floor, row passes.

    python -P tests/gpu/flce_trials.py FILE plans N8192-H4096-V128256-bfloat16 ...
    python -P tests/gpu/flce_trials.py FILE rows

Arms of one shape are timed in turns on the same tensors, so only ratios of one line are compared.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

from lossbench.kernels.flce.rows import RowOptions, RowTensors
from lossbench.kernels.flce.v2 import triton_launch
from lossbench.kernels.flce.v2.loss import linear_cross_entropy
from lossbench.kernels.flce.v2.op import Tuning, plan_of
from lossbench.kernels.flce.v2.plan import Sizes
from lossbench.kernels.flce.v2.results import RowResults
from lossbench.service.contract.case import Case
from lossbench.service.contract.contender import Contender
from lossbench.service.contract.words import Pass
from lossbench.worker.arms import ContenderArm
from lossbench.worker.bench import CaseBench
from lossbench.worker.timing import CudaStopwatch, Timed, make_visit, warm_up
from lossbench.worker.vitals import VitalsSampler

ROUNDS = 6
MIB = 2**20
SHAPES = ("N8192-H4096-V128256-bfloat16", "N8192-H2048-V128256-bfloat16")
TUNINGS = {
    "fast": Tuning(),
    "lean": Tuning("lean"),
    "256 MiB": Tuning(256 * MIB),
    "512 MiB": Tuning(512 * MIB),
    "1024 MiB": Tuning(1024 * MIB),
    "chunks of 4096": Tuning(chunk_rows=4096),
    "sweeps 256, 1024": Tuning(chunk_rows=256, block=1024),
    "sweeps 512, 4096": Tuning(chunk_rows=512, block=4096),
    "sweeps 1024, 8192": Tuning(chunk_rows=1024, block=8192),
}
TILES = ((2048, 4), (2048, 8), (4096, 4), (4096, 8), (4096, 16), (8192, 8), (8192, 16), (16384, 16))
ROWS = ((8192, 128256), (8192, 256000), (8192, 32000), (1024, 128256), (256, 128256))


class Call:
    """A function as an arm; `before` is not timed."""

    def __init__(self, call: Callable[[], Any], before: Callable[[], Any] = lambda: None) -> None:
        self.call, self.before = call, before


def in_turns(arms: dict[str, Timed], stopwatch: CudaStopwatch) -> dict[str, list[float]]:
    """Medians of ROUNDS visits of every arm, in mirrored order."""
    taken: dict[str, list[float]] = {name: [] for name in arms}
    for number in range(ROUNDS):
        for name in list(arms) if number % 2 == 0 else list(reversed(arms)):
            taken[name].append(statistics.median(make_visit(arms[name], stopwatch).latency_ms))
    return taken


def ratio(taken: dict[str, list[float]], name: str, base: str) -> float:
    """Mean ratio of an arm to another one over rounds."""
    logs = [math.log(a / b) for a, b in zip(taken[name], taken[base], strict=True)]
    return math.exp(statistics.fmean(logs))


def plans(text: str) -> dict[str, Any]:
    """Every plan of a shape: time, floor ratio, predicted time, workspace, predicted workspace."""
    bench = CaseBench(Case.parse(text), 0, "cuda", False)
    bench.add_contender("flce@1", Contender.parse("flce@1"), Pass.FORWARD_BACKWARD)
    bench.add_floor("floor", Pass.FORWARD_BACKWARD)
    arms: dict[str, Timed] = {name: bench.arms[name] for name in ("floor", "flce@1")}
    case, memory, found = bench.case, {}, {}
    sizes = Sizes(case.max_tokens, case.hidden, case.vocab)
    for name, tuning in TUNINGS.items():
        arm = ContenderArm(
            partial(linear_cross_entropy, tuning=tuning), bench.leaves, Pass.FORWARD_BACKWARD
        )
        bench.stopwatch.time(arm)
        arms[name] = arm
        memory[name] = (bench._memory(arm) or {})["workspace_bytes"]
    vitals = VitalsSampler()
    vitals.start()
    warm_up(arms["floor"], bench.stopwatch, 2.0, settled=vitals.is_steady)
    stopwatch = bench.stopwatch
    assert isinstance(stopwatch, CudaStopwatch)
    taken = in_turns(arms, stopwatch)
    vitals.stop()
    for name in arms:
        row = {"ms": statistics.median(taken[name]), "floor_ratio": ratio(taken, name, "floor")}
        if name in TUNINGS:
            plan = plan_of(sizes, TUNINGS[name])
            row |= {
                "predicted_ms": plan.seconds() * 1e3,
                "workspace_mib": memory[name] / MIB,
                "predicted_mib": plan.workspace_bytes / MIB,
            }
        found[name] = row
    return {"trial": "plans", "case": text, "arms": found}


def rows_of(count: int, vocab: int) -> Iterator[dict[str, Any]]:
    """Row passes over logits of (count, vocab): GB/s, counted as two reads and one write."""
    stopwatch = CudaStopwatch()
    logits = torch.randn(count, vocab, device="cuda", dtype=torch.bfloat16)
    target = torch.randint(0, vocab, (count,), device="cuda")
    results = RowResults.empty(count, torch.float32, logits.device)
    lse = torch.logsumexp(logits[: min(count, 256)].float(), 1).mean()
    results.lse.fill_(float(lse))
    options, tensors = RowOptions(), RowTensors()
    for few in (1, 1 << 20):
        for block, warps in TILES:
            for parts in (8,) if few == 1 else (2, 4, 8, 16):
                triton_launch.FEW_ROWS, triton_launch.PARTS = few, parts
                tile = {"BLOCK_V": block, "num_warps": warps}
                triton_launch._tile = lambda _, tile=tile: tile  # type: ignore[assignment,misc]
                passes: dict[str, Callable[[], Any]] = {
                    "loss and gradient": lambda: triton_launch.write_loss(
                        logits, target, results, options, tensors, True
                    ),
                    "gradient": lambda: triton_launch.write_gradient(
                        logits, target, results.lse, options, tensors, slice(0, vocab)
                    ),
                }
                for name, call in passes.items():
                    if name == "gradient" and few == 1:
                        continue
                    arm = Call(call)
                    stopwatch.time(arm)
                    taken = statistics.median(stopwatch.time(arm)[0] for _ in range(9))
                    moved = (6 if name != "gradient" else 4) * count * vocab
                    yield {
                        "trial": "rows",
                        "pass": name,
                        "rows": count,
                        "vocab": vocab,
                        "block": block,
                        "warps": warps,
                        "parts": 1 if few == 1 else parts,
                        "ms": taken,
                        "gb_per_s": moved / taken / 1e6,
                    }


def main() -> None:
    """Run what the command line names and append it to the file."""
    path, kind, *texts = sys.argv[1:]
    with Path(path).open("a", encoding="utf-8") as out:
        if kind == "plans":
            lines: Iterator[dict[str, Any]] = (plans(text) for text in texts or SHAPES)
        else:
            lines = (line for size in ROWS for line in rows_of(*size))
        for line in lines:
            out.write(json.dumps(line) + "\n")
            out.flush()
            sys.stdout.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
