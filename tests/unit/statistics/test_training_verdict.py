"""Verdicts on perplexity by paired seeds, and the bands of loss curves."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from lossbench.service.statistics.training_verdict import (
    MARGIN,
    MOST_SEEDS,
    CurveFinding,
    TrainingVerdict,
    compare_curves,
    decide_perplexity,
    right_verdicts,
    seeds_needed,
)

NAN = math.nan
BASE = [2.54, 2.55, 2.53, 2.56, 2.54]
losses = st.lists(st.floats(0.1, 12.0), min_size=2, max_size=12)


def shifted(by: float, jitter: float = 0.0) -> list[float]:
    signs = (1, -1, 1, -1, 0)
    return [loss + by + jitter * sign for loss, sign in zip(BASE, signs, strict=True)]


@pytest.mark.parametrize(
    ("contender", "verdict"),
    [
        (shifted(0.0), "same"),
        (shifted(0.001, 0.0005), "same"),
        (shifted(0.02, 0.002), "worse"),
        (shifted(-0.02, 0.002), "better"),
        (shifted(0.0, 0.01), "inconclusive"),
        (shifted(0.006, 0.01), "inconclusive"),
        # surely not equal, not surely beyond 0.5 %
        (shifted(0.0045, 0.001), "inconclusive"),
    ],
)
def test_verdict_of_five_seeds(contender: list[float], verdict: str) -> None:
    assert decide_perplexity(contender, BASE).verdict == verdict


def test_interval_agrees_with_scipy() -> None:
    contender = shifted(0.004, 0.003)
    found = decide_perplexity(contender, BASE)
    values = np.subtract(contender, BASE)
    low, high = stats.t.interval(0.95, 4, values.mean(), stats.sem(values))
    assert (found.low, found.high) == pytest.approx((math.exp(low), math.exp(high)), rel=1e-9)
    assert found.ratio == pytest.approx(math.exp(values.mean()))


def test_seed_threads_table_of_one_run_each_is_inconclusive() -> None:
    """Perplexity 12.73, 12.70 and 12.71, one run each: the table that this answers."""
    reference = math.log(12.73)
    for perplexity in (12.70, 12.71):
        found = decide_perplexity([math.log(perplexity)], [reference])
        assert found.verdict is TrainingVerdict.INCONCLUSIVE
        assert found.reason == "1 seed: a verdict needs 2"
        assert found.low is None


def test_diverged_contender_is_worse_and_diverged_reference_says_nothing() -> None:
    assert decide_perplexity([2.5, NAN, 2.5], [2.5, 2.5, 2.5]).verdict is TrainingVerdict.WORSE
    assert decide_perplexity([NAN, math.inf], [2.5, 2.5]).ratio is None
    both = decide_perplexity([NAN, 2.5, 2.5], [NAN, 2.5, 2.5])
    assert (both.verdict, both.seeds) == (TrainingVerdict.SAME, 2)
    gone = decide_perplexity([2.5, 2.5], [NAN, NAN])
    assert gone.verdict is TrainingVerdict.INCONCLUSIVE
    assert "2 more without" in str(gone.reason)


def test_pairs_of_unequal_length_are_refused() -> None:
    with pytest.raises(ValueError, match="2 losses"):
        decide_perplexity([1.0, 2.0], [1.0])


@given(losses, losses)
def test_swapping_sides_swaps_the_verdict(a: list[float], b: list[float]) -> None:
    length = min(len(a), len(b))
    one, other = (
        decide_perplexity(a[:length], b[:length]),
        decide_perplexity(b[:length], a[:length]),
    )
    mirror = {"worse": "better", "better": "worse"}
    assert other.verdict == mirror.get(one.verdict, one.verdict)
    assert one.ratio is not None
    assert other.ratio == pytest.approx(1 / one.ratio)


@given(losses, st.floats(-5, 5))
def test_what_both_sides_share_changes_nothing(a: list[float], shift: float) -> None:
    reference = [5.0] * len(a)
    one = decide_perplexity(a, reference)
    other = decide_perplexity([x + shift for x in a], [x + shift for x in reference])
    assert other.ratio == pytest.approx(one.ratio, rel=1e-6)


@given(st.floats(-0.05, 0.05), st.floats(0, 0.05))
def test_seeds_needed_are_the_fewest(mean: float, deviation: float) -> None:
    needed = seeds_needed(mean, deviation)
    if needed is None:
        return
    assert 2 <= needed <= MOST_SEEDS
    assert right_verdicts(mean, deviation, needed) >= 0.9
    assert needed == 2 or right_verdicts(mean, deviation, needed - 1) < 0.9


def test_seeds_needed_beyond_reach_says_train_longer() -> None:
    assert seeds_needed(MARGIN * 0.999, 0.01) is None
    wild = [loss + shift for loss, shift in zip(BASE, (5, -5, 3, -3, 0), strict=True)]
    assert "train longer" in str(decide_perplexity(wild, BASE).reason)
    with pytest.raises(ValueError, match="say nothing"):
        seeds_needed(NAN, 1.0)


def curves(seeds: int = 4, steps: int = 200, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A reference and its reordered control: noise grows along the curve."""
    generator = np.random.default_rng(seed)
    t = np.arange(1, steps + 1)
    shape = 3 + 5 * np.exp(-t / 50)
    reference = shape + 0.05 * generator.standard_normal((seeds, 1))
    reference = reference + 0.01 * generator.standard_normal((seeds, steps))
    return reference, reference + 1e-6 * t * generator.standard_normal((seeds, 1))


def test_curve_of_the_reference_itself_is_inside() -> None:
    reference, reordered = curves()
    found = compare_curves(reference, reference, reordered)
    assert found.finding is CurveFinding.INSIDE
    assert len(found.steps) == 20
    assert found.steps[-1] == 200
    assert max(map(abs, found.difference)) == 0


def test_small_change_leaves_rounding_and_large_change_leaves_seeds() -> None:
    reference, reordered = curves()
    small = compare_curves(reference + 0.003, reference, reordered)
    assert small.finding is CurveFinding.BEYOND_ROUNDING
    assert small.first_beyond_seeds is None
    late = reference.copy()
    late[:, 150:] += 2.0
    large = compare_curves(late, reference, reordered)
    assert large.finding is CurveFinding.BEYOND_SEEDS
    assert large.first_beyond_seeds == 160


def test_bands_are_what_the_formula_says() -> None:
    reference, reordered = curves(seeds=3, steps=4)
    reordered = reference + 100 * (reordered - reference)
    found = compare_curves(reference, reference, reordered, window=1)
    t = stats.t.ppf(1 - 0.05 / 8, 3)
    rms = np.sqrt(np.square(reordered - reference).mean(axis=0))
    assert found.rounding == pytest.approx(t * rms / math.sqrt(3))
    t = stats.t.ppf(1 - 0.05 / 8, 2)
    assert found.seeds == pytest.approx(t * reference.std(axis=0, ddof=1) * math.sqrt(2 / 3))


def test_equal_control_still_allows_float32_resolution() -> None:
    reference = np.full((3, 40), 4.0)
    found = compare_curves(reference + 4e-7, reference, reference)
    assert found.finding is CurveFinding.INSIDE


def test_diverged_runs_in_curves() -> None:
    reference, reordered = curves()
    lost = reference.copy()
    lost[1, 100:] = NAN
    found = compare_curves(lost, reference, reordered)
    assert found.first_beyond_seeds == found.first_beyond_rounding == 110
    # what the reference loses is not held against the contender
    assert compare_curves(lost, lost, reordered).finding is CurveFinding.INSIDE


def test_without_control_and_with_one_seed_nothing_is_known() -> None:
    reference, _ = curves(seeds=1)
    found = compare_curves(reference + 1, reference)
    assert found.finding is CurveFinding.NOT_KNOWN
    assert all(math.isnan(half) for half in (*found.rounding, *found.seeds))


@pytest.mark.parametrize(
    ("contender", "window"), [(np.zeros((2, 3)), None), (np.zeros(4), None), (np.zeros((2, 4)), 0)]
)
def test_curves_of_another_shape_are_refused(contender: np.ndarray, window: int | None) -> None:
    with pytest.raises(ValueError):
        compare_curves(contender, np.zeros((2, 4)), window=window)
