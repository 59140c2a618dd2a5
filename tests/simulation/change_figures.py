"""How often the change detector is right, simulated; each number measured once, and seeded.

`tests/benchmarks/detection.py` has the same figures beside other detectors, in smaller numbers.
"""

import sys
import time
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

from detection_series import KINDS, Series, white

from lossbench.service.statistics.change_points import find_changes

POINTS = 100
SEED = 20261202
ENDS = 5
WITHIN = 3
CLEAN = {"white": 10_000, "1 % outliers": 4_000, "AR(1) of 0.5": 4_000}


def clean_series(kind: str, count: int) -> Series:
    """Log ratios without a change, of deviation 0.5 %."""
    place = list(KINDS).index(kind)
    return 0.005 * KINDS[kind](np.random.default_rng([SEED, place]), count, POINTS)


def false_alarms(series: Series) -> int:
    """Series in which a step or a drift is told."""
    return sum(bool(found.points or found.drifts) for found in map(find_changes, series))


@cache
def false_rate(kind: str) -> float:
    """False alarms per 1,000 clean series."""
    return 1000 * false_alarms(clean_series(kind, CLEAN[kind])) / CLEAN[kind]


class Hits(NamedTuple):
    """Shares of steps."""

    near: float
    """Told within three points."""
    alone: float
    """Told within three points, and nothing else told."""


@cache
def hits(kind: str, step: float, sd: float, ends: tuple[int, int], count: int) -> Hits:
    """Steps up or down, with at least `ends` points before and after."""
    rng = np.random.default_rng([SEED, 100, round(1e4 * step), round(1e4 * sd), *ends])
    series = sd * KINDS[kind](rng, count, POINTS)
    places = rng.integers(ends[0], POINTS - ends[1] + 1, count)
    near = alone = 0
    for row, place, up in zip(series, places, rng.random(count) < 0.5, strict=True):
        row[place:] += np.log1p(step) if up else -np.log1p(step)
        found = find_changes(row)
        hit = any(abs(point.index - place) <= WITHIN for point in found.points)
        near += hit
        alone += hit and len(found.points) + len(found.drifts) == 1
    return Hits(near / count, alone / count)


@cache
def after(points: int, step: float) -> float:
    """Share of steps told at a noise of 0.5 % when `points` points follow, in 100."""
    return hits("white", step, 0.005, (POINTS - points, points), 500).near


@cache
def found_in(points: int, step: float) -> float:
    """Share of steps in the middle of a short series that are told, at a noise of 0.5 %."""
    series = 0.005 * white(np.random.default_rng([SEED, 200, points]), 300, points)
    series[:, points // 2 :] += np.log1p(step)
    return float(np.mean([bool(find_changes(row).points) for row in series]))


def cpu_ms() -> float:
    """CPU time of 1,000 points, in ms: the best of seven, as other processes only add to it."""
    series = 0.005 * white(np.random.default_rng(SEED), 7, 1000)
    series[:, 300:] += 0.02
    taken = []
    for row in series:
        began = time.process_time()
        find_changes(row)
        taken.append(time.process_time() - began)
    return 1e3 * min(taken)


def table() -> str:
    """Everything as Markdown."""
    lines = [
        "change detector, series of 100 points, noise sd 0.5 %",
        "",
        "| noise | clean series | false alarms per 1,000 | 2 % hit | 5 % hit |",
        "|---|---|---|---|---|",
    ]
    for kind, count in CLEAN.items():
        near = [100 * hits(kind, step, 0.005, (ENDS, ENDS), 1000).near for step in (0.02, 0.05)]
        lines.append(
            f"| {kind} | {count:,} | {false_rate(kind):.1f} | {near[0]:.1f} % | {near[1]:.1f} % |"
        )
    lines += ["", "| step | told 3 points after | 4 | 5 | 8 |", "|---|---|---|---|---|"]
    for step in (0.01, 0.02, 0.05):
        shares = " | ".join(f"{100 * after(points, step):.0f} %" for points in (3, 4, 5, 8))
        lines.append(f"| {100 * step:.0f} % | {shares} |")
    counts = (10, 12, 15, 20, 30, 50)
    lines += ["", f"| step in the middle of | {' | '.join(map(str, counts))} points |"]
    lines += [f"|---|{'---|' * len(counts)}"]
    for step in (0.02, 0.05, 0.1):
        shares = " | ".join(f"{100 * found_in(count, step):.0f} %" for count in counts)
        lines.append(f"| {100 * step:.0f} % | {shares} |")
    return "\n".join([*lines, "", f"1,000 points: {cpu_ms():.1f} ms of CPU time"])
