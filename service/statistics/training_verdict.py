"""Does it train as well? Verdict on perplexity by paired seeds, and bands for the loss curves.

A pair is one seed: contender and reference start from the same bits and see the same data. Each
pair gives one log ratio of perplexities, which is the difference of the validation losses. Rules,
in this order:

1. `worse`: the contender's loss ceased to be a number in a seed where the reference's did not.
2. `same`: the 95 % interval of the mean log ratio (t over seeds) lies inside 1/1.005 to 1.005.
   Of contenders that differ by just 0.5 %, at most 2.5 % are called so.
3. `worse` / `better`: the mean lies beyond 0.5 % and the 99 % interval excludes 0. At most 1 % of
   contenders that are the same are called one of them.
4. `inconclusive`: with the seeds that would decide, nine times in ten, at this spread.

Curves are compared in windows of steps. Two bands tell how far the mean difference over seeds goes
by chance, each left by chance anywhere along the curve in at most 5 % of comparisons (Bonferroni
over windows): `rounding`, from the reference trained again with its sums in another order, and
`seeds`, what the reference would differ from itself by with other seeds. To leave the first means
to compute otherwise, which is no fault by itself. How often all of this is wrong is simulated in
tests/simulation.
"""

import math
from collections.abc import Sequence
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .student_t import quantile

MARGIN = math.log(1.005)
"""Perplexities this close are the same."""
SAME_CONFIDENCE = 0.95
DIFFERENT_CONFIDENCE = 0.99
POWER = 0.9
"""Share of comparisons that shall decide with the seeds that an inconclusive one asks for."""
GRID = 48
LEAST_SEEDS = 2
MOST_SEEDS = 1000
WINDOWS = 20
BAND_ERROR = 0.05
RESOLUTION = 2.0**-22
"""Of a loss: two float32 losses that differ by less, relatively, are the same number."""


class TrainingVerdict(StrEnum):
    """What paired seeds say of a contender's perplexity."""

    SAME = "same"
    WORSE = "worse"
    BETTER = "better"
    INCONCLUSIVE = "inconclusive"


class CurveFinding(StrEnum):
    """How far a contender's loss curve goes from the reference's."""

    INSIDE = "inside rounding"
    BEYOND_ROUNDING = "beyond rounding"
    BEYOND_SEEDS = "beyond seeds"
    NOT_KNOWN = "not known"


class PerplexityDecision(NamedTuple):
    """A verdict with what it rests on."""

    verdict: TrainingVerdict
    ratio: float | None
    """Perplexity over the reference's, geometric mean over seeds; None without a pair."""
    low: float | None
    high: float | None
    """95 % interval of the ratio; None for fewer than two pairs."""
    seeds: int
    """Pairs of finite losses."""
    seeds_needed: int | None
    """Where inconclusive: seeds that would decide; None if that cannot be said, or above 1,000."""
    reason: str | None
    """Why, where inconclusive or where a loss ceased to be a number."""


def decide_perplexity(contender: Sequence[float], reference: Sequence[float]) -> PerplexityDecision:
    """Verdict on validation losses in nats a token, one a seed, in the same order of seeds.

    NaN stands for a run that diverged. Raises ValueError for unequal lengths.
    """
    if len(contender) != len(reference):
        raise ValueError(f"{len(contender)} losses of the contender, {len(reference)} to pair with")
    tried = np.asarray(contender, dtype=np.float64)
    base = np.asarray(reference, dtype=np.float64)
    usable = np.isfinite(base)
    lost = int((usable & ~np.isfinite(tried)).sum())
    pairs = usable & np.isfinite(tried)
    values = tried[pairs] - base[pairs]
    if lost:
        reason = f"diverged in {lost} of {int(usable.sum())} seeds in which the reference did not"
        return _with_interval(values, TrainingVerdict.WORSE, None, reason)
    gone = len(base) - int(usable.sum())
    if len(values) < LEAST_SEEDS:
        note = f" ({gone} more without a finite loss of the reference)" if gone else ""
        pairs_found = f"{len(values)} {'seed' if len(values) == 1 else 'seeds'}"
        reason = f"{pairs_found}{note}: a verdict needs {LEAST_SEEDS}"
        return _with_interval(values, TrainingVerdict.INCONCLUSIVE, None, reason)
    mean, error = float(values.mean()), float(values.std(ddof=1)) / math.sqrt(len(values))
    if abs(mean) + _t(SAME_CONFIDENCE, len(values)) * error < MARGIN:
        return _with_interval(values, TrainingVerdict.SAME, None, None)
    if abs(mean) > MARGIN and abs(mean) > _t(DIFFERENT_CONFIDENCE, len(values)) * error:
        verdict = TrainingVerdict.WORSE if mean > 0 else TrainingVerdict.BETTER
        return _with_interval(values, verdict, None, None)
    needed = seeds_needed(mean, error * math.sqrt(len(values)))
    return _with_interval(values, TrainingVerdict.INCONCLUSIVE, needed, _what_it_takes(needed))


def _what_it_takes(needed: int | None) -> str:
    if needed is None:
        return f"would take more than {MOST_SEEDS} seeds at this spread: train longer instead"
    return f"about {needed} seeds at this spread and difference would decide"


def _with_interval(
    values: NDArray[np.float64],
    verdict: TrainingVerdict,
    needed: int | None,
    reason: str | None,
) -> PerplexityDecision:
    mean = float(values.mean()) if len(values) else None
    low = high = None
    if mean is not None and len(values) >= LEAST_SEEDS:
        error = float(values.std(ddof=1)) / math.sqrt(len(values))
        half = _t(SAME_CONFIDENCE, len(values)) * error
        low, high = _ratio(mean - half), _ratio(mean + half)
    ratio = None if mean is None else _ratio(mean)
    return PerplexityDecision(verdict, ratio, low, high, len(values), needed, reason)


def _ratio(log_ratio: float) -> float:
    return math.exp(max(-700.0, min(700.0, log_ratio)))


def _t(confidence: float, seeds: int) -> float:
    return quantile(0.5 + confidence / 2, seeds - 1)


def seeds_needed(mean: float, deviation: float) -> int | None:
    """Fewest seeds that give a verdict nine times in ten, if these are the true values.

    `mean` and `deviation` (>= 0) of the log ratio over seeds; for a mean inside the margin the
    verdict is `same`, else `worse` or `better`. None above MOST_SEEDS. Raises ValueError for a
    deviation below 0 or a value that is not finite.
    """
    if not math.isfinite(mean) or not 0.0 <= deviation < math.inf:
        raise ValueError(f"mean {mean} and deviation {deviation} say nothing")

    def enough(seeds: int) -> bool:
        return right_verdicts(mean, deviation, seeds) >= POWER

    if not enough(MOST_SEEDS):
        return None
    low, high = LEAST_SEEDS - 1, MOST_SEEDS
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def right_verdicts(mean: float, deviation: float, seeds: int) -> float:
    """Share of comparisons with `seeds` that give the right verdict, if these are the true values.

    An average over the deviations that such samples show, each with its chance.
    """
    inside, away = abs(mean) < MARGIN, abs(mean)
    error = max(deviation, MARGIN * 1e-6) / math.sqrt(seeds)
    t = _t(SAME_CONFIDENCE if inside else DIFFERENT_CONFIDENCE, seeds)
    scales, weights = _scales(seeds - 1)
    right = 0.0
    for scale, weight in zip(scales, weights, strict=True):
        reach = t * scale * error
        if not inside:
            right += weight * _normal((away - max(MARGIN, reach)) / error)
        elif reach < MARGIN:
            room = MARGIN - reach
            right += weight * (_normal((room - away) / error) - _normal((-room - away) / error))
    return right


def _normal(z: float) -> float:
    """Cumulative standard normal."""
    return 0.5 * math.erfc(-z / math.sqrt(2.0))


@lru_cache(maxsize=256)
def _scales(degrees: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Sample deviations over the true one, on a grid, and their chances."""
    spread = 6.0 / math.sqrt(degrees)
    grid = np.linspace(max(0.0, 1.0 - spread), 1.0 + spread, GRID + 2)[1:-1]
    logs = (degrees - 1) * np.log(grid) - 0.5 * degrees * grid * grid
    chances = np.exp(logs - logs.max())
    return tuple(grid.tolist()), tuple((chances / chances.sum()).tolist())


class CurveComparison(NamedTuple):
    """A contender's loss curve beside the reference's, window by window.

    `steps` is the last step of each window, `difference` the mean over seeds of contender less
    reference in nats a token, `rounding` and `seeds` the half widths of the bands, NaN where there
    is none. `first_beyond_*` is the last step of the first window outside; None if none is.
    """

    steps: tuple[int, ...]
    difference: tuple[float, ...]
    rounding: tuple[float, ...]
    seeds: tuple[float, ...]
    first_beyond_rounding: int | None
    first_beyond_seeds: int | None
    finding: CurveFinding


def compare_curves(
    contender: ArrayLike,
    reference: ArrayLike,
    reordered: ArrayLike | None = None,
    window: int | None = None,
) -> CurveComparison:
    """Compare losses (seeds, steps) in nats a token; row by row the same seed.

    `reordered` is the reference again with its sums in another order. NaN stands for steps after a
    run diverged: windows in which the reference has one are not judged, one of the contender alone
    is outside both bands. `window` is in steps; None takes a twentieth of them, rounded up.
    Raises ValueError for shapes that differ or a window below 1.
    """
    base = _windowed(reference, window)
    tried = _windowed(contender, window)
    again = None if reordered is None else _windowed(reordered, window)
    if tried.means.shape != base.means.shape or (
        again is not None and again.means.shape != base.means.shape
    ):
        raise ValueError("curves of contender, reference and its control differ in shape")
    difference = (tried.means - base.means).mean(axis=0)
    seeds, windows = base.means.shape
    level = 1.0 - BAND_ERROR / (2 * max(1, windows))
    least = RESOLUTION * np.abs(base.means).max(axis=0, initial=0.0)
    rounding = band = np.full(windows, np.nan)
    if again is not None and seeds:
        spread = np.sqrt(np.square(again.means - base.means).mean(axis=0))
        rounding = np.maximum(quantile(level, seeds) * spread / math.sqrt(seeds), least)
    if seeds >= LEAST_SEEDS:
        spread = base.means.std(axis=0, ddof=1) * math.sqrt(2.0 / seeds)
        band = np.maximum(quantile(level, seeds - 1) * spread, least)
    judged: NDArray[np.bool_] = np.all(np.isfinite(base.means), axis=0)
    lost = judged & np.any(~np.isfinite(tried.means), axis=0)
    outside = [_first(base.steps, judged, lost, difference, half) for half in (rounding, band)]
    known = bool(np.isfinite(rounding).any())
    return CurveComparison(
        base.steps,
        tuple(difference.tolist()),
        tuple(rounding.tolist()),
        tuple(band.tolist()),
        outside[0],
        outside[1],
        _finding(outside, known),
    )


class _Windows(NamedTuple):
    steps: tuple[int, ...]
    means: NDArray[np.float64]


def _windowed(curves: ArrayLike, window: int | None) -> _Windows:
    """Means over windows of steps, (seeds, windows); the last window may be shorter."""
    losses = np.asarray(curves, dtype=np.float64)
    if losses.ndim != 2:
        raise ValueError(f"curves have shape {losses.shape}: must be (seeds, steps)")
    steps = losses.shape[1]
    width = math.ceil(steps / WINDOWS) if window is None else window
    if steps and width < 1:
        raise ValueError(f"window={window}: must be >= 1")
    starts = range(0, steps, max(1, width))
    parts = [losses[:, start : start + width].mean(axis=1) for start in starts]
    means = np.stack(parts, axis=1) if parts else np.empty((losses.shape[0], 0))
    return _Windows(tuple(min(start + width, steps) for start in starts), means)


def _first(
    steps: tuple[int, ...],
    judged: NDArray[np.bool_],
    lost: NDArray[np.bool_],
    difference: NDArray[np.float64],
    half_width: NDArray[np.float64],
) -> int | None:
    # a comparison with NaN is False: without a band nothing but a lost run is outside
    outside = judged & (lost | (np.abs(difference) > half_width))
    return steps[int(outside.argmax())] if bool(outside.any()) else None


def _finding(outside: list[int | None], known: bool) -> CurveFinding:
    if outside[1] is not None:
        return CurveFinding.BEYOND_SEEDS
    if outside[0] is not None:
        return CurveFinding.BEYOND_ROUNDING
    return CurveFinding.INSIDE if known else CurveFinding.NOT_KNOWN
