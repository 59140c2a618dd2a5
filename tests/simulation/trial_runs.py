"""Many comparisons at once: copies of the estimate and the verdict that work on whole arrays.

`test_vector_copies.py` proves each equal to the function that the service uses.
"""

from dataclasses import dataclass

import numpy as np
from noise_kinds import SAMPLES, VISITS, NoiseKind, Times, draw_times
from numpy.typing import NDArray

from lossbench.service.statistics.process_modes import LEAST_IN_A_MODE
from lossbench.service.statistics.student_t import quantile
from lossbench.service.statistics.verdict import (
    ALPHA,
    CONFIDENCE,
    LEAST_DEVIATION,
    LOOKS,
    PRACTICAL_LINE,
    SAME_WITHIN,
    Verdict,
)

CHUNK = 1000
CODES = {Verdict.FASTER: -1, Verdict.INCONCLUSIVE: 0, Verdict.SLOWER: 1, Verdict.NO_DIFFERENCE: 2}
DIFFERENT = (CODES[Verdict.FASTER], CODES[Verdict.SLOWER])
SAME = CODES[Verdict.NO_DIFFERENCE]

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]


@dataclass(frozen=True)
class Rule:
    """The verdict's numbers, so that a mutant can have others."""

    alpha: float = ALPHA
    practical_line: float = PRACTICAL_LINE
    least_deviation: float = LEAST_DEVIATION


RULE = Rule()


def visit_medians(times: Times) -> Floats:
    """Median of each visit's samples."""
    return np.asarray(np.median(times, axis=-1), dtype=np.float64)


def log_ratios(medians: Floats) -> Floats:
    """`summary.visit_log_ratio` of every process: trials x processes."""
    return np.asarray(np.log(medians[:, :, 0] / medians[:, :, 1]).mean(axis=-1))


def verdicts(ratios: Floats, rule: Rule = RULE) -> Codes:
    """`verdict.decide` of every row, as CODES."""
    count = ratios.shape[1]
    mean, deviation = ratios.mean(axis=1), ratios.std(axis=1, ddof=1)
    t = quantile(1 - rule.alpha / 2, count - 1)
    line = np.maximum(
        rule.practical_line, t * np.maximum(deviation, rule.least_deviation) / np.sqrt(count)
    )
    different = np.where(np.abs(mean) > line, np.sign(mean), 0).astype(np.int64)
    same = np.abs(mean) + half_widths(ratios) < SAME_WITHIN
    return np.where((different == 0) & same, SAME, different)


def half_widths(ratios: Floats) -> Floats:
    """Half of the 95 % interval of every row, in log space."""
    count = ratios.shape[1]
    t = quantile(0.5 + CONFIDENCE / 2, count - 1)
    return np.asarray(t * ratios.std(axis=1, ddof=1) / np.sqrt(count))


def extended(ratios: Floats, rule: Rule = RULE) -> tuple[Codes, Codes]:
    """Verdict of a series that extends while inconclusive, and the processes at its end."""
    codes = np.zeros(len(ratios), dtype=np.int64)
    ended_at = np.full(len(ratios), LOOKS[-1])
    for processes in LOOKS:
        waiting = codes == 0
        codes[waiting] = verdicts(ratios[waiting, :processes], rule)
        ended_at[waiting & (codes != 0)] = processes
    return codes, ended_at


def pooled_verdicts(times: Times) -> Codes:
    """The mutant: every pair of samples as a replicate, over the same looks."""
    logs = np.log(times[:, :, 0]) - np.log(times[:, :, 1])
    codes = np.zeros(len(times), dtype=np.int64)
    for processes in LOOKS:
        waiting = codes == 0
        pool = logs[waiting, :processes].astype(np.float64)
        codes[waiting] = verdicts(pool.reshape(len(pool), processes * VISITS * SAMPLES))
    return codes


@dataclass(frozen=True)
class Trials:
    """Comparisons of the same code under one kind of noise."""

    ratios: Floats
    """Log ratio of every process: trials x processes."""
    medians: Floats
    """Of the visits of the first trials: trials x processes x arms x visits, in ms."""
    pooled: Codes
    """Verdicts of the mutant on the first trials."""


def run_trials(kind: NoiseKind, trials: int, seed: int, alternate: bool = True) -> Trials:
    """Draw and estimate `trials` comparisons, in parts that fit in memory; medians of the first."""
    rng = np.random.default_rng(seed)
    ratios = []
    first: tuple[Floats, Codes] | None = None
    for start in range(0, trials, CHUNK):
        times = draw_times(kind, rng, min(CHUNK, trials - start), alternate)
        medians = visit_medians(times)
        ratios.append(log_ratios(medians))
        first = first or (medians, pooled_verdicts(times))
    medians, pooled = first or (np.empty((0, 0, 2, 0)), np.empty(0, dtype=np.int64))
    return Trials(np.concatenate(ratios), medians, pooled)


def mode_strengths(values: Floats) -> Floats:
    """`process_modes` strength of the best cut of every row."""
    ordered = np.sort(values - values.mean(axis=1, keepdims=True), axis=1)
    count = ordered.shape[1]
    total, sums = (ordered**2).sum(axis=1), np.cumsum(ordered, axis=1)
    cuts = np.arange(LEAST_IN_A_MODE, count - LEAST_IN_A_MODE + 1)
    between = (sums[:, cuts - 1] ** 2 * (1 / cuts + 1 / (count - cuts))).max(axis=1)
    return np.asarray(between / (total - between))
