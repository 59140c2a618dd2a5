"""Every figure of the simulation, measured once and shown as Markdown tables.

Run as `python -P tests/simulation/figures.py`. The tests of this folder assert on the same numbers.
"""

import math
import sys
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

sys.path.append(str(Path(__file__).parent))

from noise_kinds import BEYOND, KINDS, MEDIUM, STEADY, WIDE, NoiseKind, normal
from trial_runs import (
    DIFFERENT,
    SAME,
    Floats,
    Rule,
    Trials,
    extended,
    half_widths,
    mode_strengths,
    run_trials,
    verdicts,
)

from lossbench.service.statistics.process_modes import find_two_modes
from lossbench.service.statistics.verdict import LOOKS, minimum_detectable_effect
from lossbench.service.statistics.visit_drift import find_drift

TRIALS = 10_000
SEED = 20261201
FIXED_P = (3, 8, 16, 24)
STEPS = (0.01, 0.02, 0.05)
EFFECT_SDS = (0.004, 0.008, 0.015, 0.03)
FASTER, SLOWER = DIFFERENT


@cache
def trials_of(kind: NoiseKind, alternate: bool = True) -> Trials:
    """The comparisons of one kind; each kind and order has its own seed."""
    place = (*KINDS, *WIDE, *BEYOND, *MEDIUM, *effect_kinds(), STEADY).index(kind)
    return run_trials(kind, TRIALS, SEED + 2 * place + alternate, alternate)


def effect_kinds() -> tuple[NoiseKind, ...]:
    """Gaussian kinds of several widths, for the detectable effect."""
    return tuple(NoiseKind(f"gaussian {sd:.1%}", offset_sd=sd) for sd in EFFECT_SDS)


class FalseVerdicts(NamedTuple):
    """Comparisons of the same code, extended while inconclusive."""

    kind: str
    ratio_sd: float
    """Deviation of a process's log ratio."""
    false: int
    """Called slower or faster, of TRIALS."""
    at_look: tuple[int, ...]
    same: float
    """Share called `no_difference`."""
    mean_processes: float
    false_unalternated: int
    """Where the contender is first in every process."""
    false_without_least_deviation: int
    false_pooled: int
    """By the mutant that takes samples for replicates, of TRIALS (measured on a tenth of them)."""


@cache
def false_verdicts(kind: NoiseKind) -> FalseVerdicts:
    """The row of one kind."""
    trials = trials_of(kind)
    codes, ended_at = extended(trials.ratios)
    false = np.isin(codes, DIFFERENT)
    bare, _ = extended(trials.ratios, Rule(least_deviation=0.0))
    fixed, _ = extended(trials_of(kind, alternate=False).ratios)
    return FalseVerdicts(
        kind=kind.name,
        ratio_sd=float(trials.ratios.std()),
        false=int(false.sum()),
        at_look=tuple(int((false & (ended_at == look)).sum()) for look in LOOKS),
        same=float((codes == SAME).mean()),
        mean_processes=float(ended_at.mean()),
        false_unalternated=int(np.isin(fixed, DIFFERENT).sum()),
        false_without_least_deviation=int(np.isin(bare, DIFFERENT).sum()),
        false_pooled=round(float(np.isin(trials.pooled, DIFFERENT).mean()) * TRIALS),
    )


class Found(NamedTuple):
    """A true slowdown: shares of verdicts."""

    kind: str
    step: float
    slower_at_16: float
    slower_extended: float
    same_extended: float
    """Share called `no_difference`: the other error."""
    faster: int
    mean_processes: float


@cache
def found(kind: NoiseKind, step: float) -> Found:
    """A step multiplies the contender's times, so it adds to every log ratio."""
    ratios = trials_of(kind).ratios + math.log1p(step)
    at_16 = verdicts(ratios[:, :16])
    codes, ended_at = extended(ratios)
    return Found(
        kind=kind.name,
        step=step,
        slower_at_16=float((at_16 == SLOWER).mean()),
        slower_extended=float((codes == SLOWER).mean()),
        same_extended=float((codes == SAME).mean()),
        faster=int((at_16 == FASTER).sum() + (codes == FASTER).sum()),
        mean_processes=float(ended_at.mean()),
    )


class Detectable(NamedTuple):
    """Steps as large as the shown minimum detectable effect."""

    ratio_sd: float
    processes: int
    effect: float
    """Shown at the true deviation, as a fraction."""
    found: float
    """Share of steps of that size that are called slower."""
    found_own: float
    """Where each comparison has a step as large as itself shows."""
    found_next: float
    """Where each has a step as large as another comparison of the same noise showed."""


@cache
def detectable(kind: NoiseKind, processes: int) -> Detectable:
    """Whether the shown effect is found as often as it says."""
    trials = trials_of(kind)
    ratio_sd, ratios = float(trials.ratios.std()), trials.ratios[:, :processes]
    effect = minimum_detectable_effect(ratio_sd, processes)
    seen = ratios.std(axis=1, ddof=1)
    grid = np.linspace(seen.min(), seen.max(), 300)
    shown = np.interp(seen, grid, [minimum_detectable_effect(sd, processes) for sd in grid])

    def share(steps: Floats) -> float:
        return float((verdicts(ratios + np.log1p(steps)[:, None]) == SLOWER).mean())

    return Detectable(
        ratio_sd=ratio_sd,
        processes=processes,
        effect=effect,
        found=share(np.full(len(ratios), effect)),
        found_own=share(shown),
        found_next=share(np.roll(shown, 1)),
    )


@cache
def coverage(kind: NoiseKind, processes: int) -> float:
    """Share of 95 % intervals over `processes` that hold the true ratio, 1."""
    ratios = trials_of(kind).ratios[:, :processes]
    return float((np.abs(ratios.mean(axis=1)) <= half_widths(ratios)).mean())


@cache
def false_modes(kind: NoiseKind, processes: int) -> float:
    """Share of comparisons flagged `multi_modal` by their log ratios."""
    rows = trials_of(kind).ratios[:, :processes]
    return float(np.mean([find_two_modes(row) is not None for row in _likely(rows)])) * _share(rows)


def _likely(rows: Floats) -> Floats:
    """Rows whose groups are far apart for their spread; the others cannot be flagged."""
    return rows[mode_strengths(rows) > 5.0]


def _share(rows: Floats) -> float:
    return len(_likely(rows)) / len(rows)


@cache
def found_modes(gap: float, processes: int) -> float:
    """Share flagged where each process draws one of two modes, `gap` deviations of noise apart."""
    rng = np.random.default_rng(SEED)
    rows = 0.004 * (normal(rng, (2000, processes)) + gap * rng.integers(0, 2, (2000, processes)))
    return float(np.mean([find_two_modes(row) is not None for row in rows]))


@cache
def drifting(kind: NoiseKind, processes: int, drift: float = 0.0) -> float:
    """Share flagged `drift` by the contender's visits, `drift` added from first to last."""
    medians = trials_of(kind).medians[:, :processes, 0]
    medians = medians * np.exp(np.linspace(0, drift, medians.shape[-1]))
    return float(np.mean([find_drift(trial.tolist()) is not None for trial in medians]))


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(str(cell) for cell in line)} |" for line in lines)


def markdown() -> str:
    """All figures."""
    return "\n\n".join([_false_table(), _found_table(), _effect_table(), *_other_tables()])


def _false_table() -> str:
    rows = []
    for kind in (*KINDS, *WIDE, *BEYOND):
        row = false_verdicts(kind)
        mutants = (row.false_unalternated, row.false_without_least_deviation, row.false_pooled)
        rest = (f"{row.same:.1%}", f"{row.mean_processes:.1f}")
        by_look = " ".join(map(str, row.at_look))
        rows.append([row.kind, f"{row.ratio_sd:.2%}", row.false, by_look, *mutants, *rest])
    return f"Same code, slower or faster, of {TRIALS:,} with extension:\n\n" + table(
        [
            "noise",
            "sd of a process",
            "false",
            f"at P = {' '.join(map(str, LOOKS))}",
            "contender always first",
            "without least deviation",
            "samples as replicates",
            "no_difference",
            "mean P",
        ],
        rows,
    )


def _found_table() -> str:
    rows = []
    for kind in (*MEDIUM, *KINDS[3:], *WIDE[:3]):
        for step in STEPS:
            row = found(kind, step)
            shares = (row.slower_at_16, row.slower_extended, row.same_extended)
            shown = [f"{share:.2%}" for share in shares]
            rows.append([row.kind, f"{step:.0%}", *shown, row.faster, f"{row.mean_processes:.1f}"])
    head = ["noise", "step", "slower at P = 16", "slower, extended"]
    return "True slowdowns:\n\n" + table([*head, "no_difference", "faster", "mean P"], rows)


def _effect_table() -> str:
    rows = []
    for kind in effect_kinds():
        for processes in FIXED_P:
            row = detectable(kind, processes)
            shares = [f"{share:.1%}" for share in (row.found, row.found_own, row.found_next)]
            rows.append([f"{row.ratio_sd:.2%}", processes, f"{row.effect:.2%}", *shares])
    head = ["sd of a process", "P", "detectable effect", "found at that size"]
    return "Minimum detectable effect, gaussian:\n\n" + table(
        [*head, "at the size each shows itself", "at the size another shows"], rows
    )


def _other_tables() -> list[str]:
    kinds = (*KINDS, *WIDE)
    covered = [[k.name, *(f"{coverage(k, p):.1%}" for p in FIXED_P)] for k in kinds]
    modes = [[k.name, *(f"{false_modes(k, p):.2%}" for p in FIXED_P[1:])] for k in kinds]
    gaps = [[gap, *(f"{found_modes(gap, p):.0%}" for p in FIXED_P[1:])] for gap in (4, 6, 8, 10)]
    drifts = [
        [k.name, *(f"{drifting(k, p):.1%} / {drifting(k, p, 0.03):.1%}" for p in (1, 3, 8))]
        for k in (STEADY, *KINDS)
    ]
    by_p = [f"P = {p}" for p in FIXED_P]
    return [
        "Coverage of 95 % intervals:\n\n" + table(["noise", *by_p], covered),
        "Flagged multi_modal by log ratios:\n\n" + table(["noise", *by_p[1:]], modes),
        "Two modes of one arm found, by their distance in deviations of the noise:\n\n"
        + table(["distance", *by_p[1:]], gaps),
        "Flagged drift, as it is / where every process slows by 3 % over its visits:\n\n"
        + table(["noise", "P = 1", "P = 3", "P = 8"], drifts),
    ]


if __name__ == "__main__":
    began = time.perf_counter()
    sys.stdout.write(f"{markdown()}\n\nmade in {time.perf_counter() - began:.0f} s\n")
