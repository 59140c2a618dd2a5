"""How often the training verdict and the bands of curves are wrong; seeded, the same every run.

Limits are the rates that the rules promise plus three standard errors of the simulation.
"""

import math
from collections import Counter
from functools import cache

import numpy as np
import pytest

from lossbench.service.statistics import training_verdict
from lossbench.service.statistics.training_verdict import (
    MARGIN,
    CurveFinding,
    compare_curves,
    decide_perplexity,
    seeds_needed,
)

TRIALS = 2000
SPREADS = (0.0002, 0.001, 0.003, 0.01)
"""Standard deviation of the log ratio over seeds."""
SEEDS = (2, 3, 5, 10)
BAND_TRIALS = 300


@pytest.fixture(autouse=True)
def no_planning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of inconclusive verdicts need not say what they would take."""
    monkeypatch.setattr(training_verdict, "seeds_needed", lambda *_: None)


def limit(rate: float, trials: int) -> float:
    return rate + 3 * math.sqrt(rate * (1 - rate) / trials)


@cache
def verdicts(mean: float, spread: float, seeds: int, heavy: bool = False) -> dict[str, float]:
    """Share of each verdict; `heavy` draws from Student's t with 3 degrees of freedom."""
    generator = np.random.default_rng(12)
    shape = (TRIALS, seeds)
    noise = generator.standard_t(3, shape) if heavy else generator.standard_normal(shape)
    rows = (mean + spread * noise / (math.sqrt(3) if heavy else 1.0)).tolist()
    reference = [0.0] * seeds
    counts = Counter(decide_perplexity(row, reference).verdict.value for row in rows)
    return {word: count / TRIALS for word, count in counts.items()}


@pytest.mark.parametrize("heavy", [False, True])
@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize("spread", SPREADS)
def test_equal_contenders_are_rarely_called_different(
    spread: float, seeds: int, heavy: bool
) -> None:
    found = verdicts(0.0, spread, seeds, heavy)
    assert found.get("worse", 0) + found.get("better", 0) <= limit(0.01, TRIALS)


@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize("spread", SPREADS)
def test_contender_at_the_margin_is_rarely_called_the_same(spread: float, seeds: int) -> None:
    assert verdicts(MARGIN, spread, seeds).get("same", 0) <= limit(0.025, TRIALS)


@pytest.mark.parametrize(("spread", "seeds"), [(0.0002, 2), (0.001, 3), (0.003, 10)])
def test_equal_contenders_of_small_spread_are_called_the_same(spread: float, seeds: int) -> None:
    assert verdicts(0.0, spread, seeds)["same"] >= 0.9


def test_two_percent_is_found_with_five_seeds() -> None:
    assert verdicts(0.02, 0.003, 5)["worse"] >= 0.99
    assert verdicts(-0.02, 0.003, 5)["better"] >= 0.99


@pytest.mark.parametrize("mean", [0.0, 0.002, 0.02, -0.02])
@pytest.mark.parametrize("spread", [0.003, 0.01])
def test_seeds_that_it_asks_for_decide(mean: float, spread: float) -> None:
    needed = seeds_needed(mean, spread)
    assert needed is not None
    found = verdicts(mean, spread, needed)
    assert found.get("inconclusive", 0) <= limit(0.1, TRIALS) + 0.005
    right = "same" if abs(mean) < MARGIN else "worse" if mean > 0 else "better"
    assert max(found, key=lambda word: found[word]) == right


def test_the_mutant_that_pools_runs_as_if_unpaired_would_be_seen() -> None:
    """Verdicts from one lucky pair: the rate of false ones is far beyond the limit."""
    generator = np.random.default_rng(3)
    single = generator.standard_normal(TRIALS) * 0.01
    assert (np.abs(single) > MARGIN).mean() > 10 * limit(0.01, TRIALS)


@cache
def left(seeds: int, scale: float, varying: bool) -> tuple[float, float]:
    """Share of comparisons that leave (rounding, seeds); noise of the contender is `scale` times
    that of the control, a random walk as chaos makes it, of another size for each seed."""
    generator = np.random.default_rng(5)
    beyond = Counter[str]()
    for _ in range(BAND_TRIALS):
        size = generator.lognormal(0, 0.5, (seeds, 1)) if varying else np.ones((seeds, 1))
        base = 3 + 0.05 * generator.standard_normal((seeds, 1)) + np.zeros((seeds, 100))
        walks = [
            base + 1e-4 * size * np.cumsum(generator.standard_normal((seeds, 100)), axis=1)
            for _ in range(3)
        ]
        own = walks[0] + (scale - 1) * (walks[0] - base)
        found = compare_curves(own, walks[1], walks[2])
        beyond["rounding"] += found.first_beyond_rounding is not None
        beyond["seeds"] += found.finding is CurveFinding.BEYOND_SEEDS
    return beyond["rounding"] / BAND_TRIALS, beyond["seeds"] / BAND_TRIALS


@pytest.mark.parametrize("varying", [False, True])
@pytest.mark.parametrize("seeds", [2, 3, 5, 10])
def test_curve_of_equal_rounding_rarely_leaves_the_bands(seeds: int, varying: bool) -> None:
    rounding, other_seeds = left(seeds, 1.0, varying)
    assert rounding <= limit(0.05, BAND_TRIALS)
    assert other_seeds <= limit(0.05, BAND_TRIALS)


def test_curve_of_thirty_times_the_rounding_leaves_that_band() -> None:
    rounding, _ = left(5, 30.0, False)
    assert rounding >= 0.9
