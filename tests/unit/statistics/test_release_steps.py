"""Steps between two releases: sizes, intervals, and how often clean releases become candidates."""

import math

import numpy as np
import pytest
from scipy import stats

from lossbench.service.statistics.release_steps import (
    MeasuredRatio,
    Step,
    candidates_among,
    p_value_of,
    step_between,
)


def measured(logs: "np.typing.ArrayLike") -> MeasuredRatio:
    """The ratio of processes whose log ratios are these."""
    values = np.asarray(logs, dtype=float)
    mean, error = values.mean(), values.std(ddof=1) / math.sqrt(len(values))
    half = stats.t.ppf(0.975, len(values) - 1) * error
    bounds = [math.exp(mean + side) for side in (0.0, -half, half)]
    return MeasuredRatio(bounds[0], bounds[1], bounds[2], len(values))


def test_step_is_that_of_welchs_t_test() -> None:
    before, after = [0.010, 0.013, 0.008], [0.031, 0.029, 0.036, 0.030]
    step = step_between(measured(before), measured(after))
    expected = stats.ttest_ind(after, before, equal_var=False)
    interval = expected.confidence_interval(0.95)
    assert step.change == pytest.approx(np.mean(after) - np.mean(before))
    assert step.p_value == pytest.approx(expected.pvalue)
    assert (step.low, step.high) == pytest.approx((interval.low, interval.high))
    assert step.ratio == pytest.approx(math.exp(step.change))


def test_clean_releases_are_hardly_ever_candidates() -> None:
    noise = np.random.default_rng(5)
    batches, found = 400, 0
    for _ in range(batches):
        pairs = noise.normal(0.0, 0.005, (25, 2, 3))
        steps = [step_between(measured(before), measured(after)) for before, after in pairs]
        found += any(chosen for chosen, _ in candidates_among(steps))
    assert found / batches <= 0.05


def test_large_steps_are_found_and_small_ones_are_no_candidates() -> None:
    noise = np.random.default_rng(6)
    quiet = noise.normal(0.0, 0.003, (20, 2, 3))
    quiet[:10, 1] += 0.10
    steps = [step_between(measured(before), measured(after)) for before, after in quiet]
    chosen = [is_one for is_one, _ in candidates_among(steps)]
    assert sum(chosen[:10]) >= 9
    assert sum(chosen[10:]) == 0
    sure_but_small = Step(0.004, 0.003, 0.005, 1e-9)
    assert candidates_among([sure_but_small]) == [(False, 1e-9)]


def test_equal_exact_ratios_are_no_step_and_bad_ones_are_refused() -> None:
    exact = MeasuredRatio(0.8, 0.8, 0.8, 3)
    assert step_between(exact, exact) == Step(0.0, 0.0, 0.0, 1.0)
    for bad in (MeasuredRatio(0.8, 0.8, 0.8, 1), MeasuredRatio(0.8, 0.9, 0.7, 3)):
        with pytest.raises(ValueError, match="no ratio with an interval"):
            step_between(exact, bad)


def test_p_value_of_processes_is_that_of_the_t_test() -> None:
    logs = [0.011, 0.015, 0.009, 0.012, -0.002]
    assert p_value_of(logs) == pytest.approx(stats.ttest_1samp(logs, 0.0).pvalue)
    assert p_value_of([0.01]) == 1.0
    assert (p_value_of([0.0, 0.0]), p_value_of([0.01, 0.01])) == (1.0, 0.0)
