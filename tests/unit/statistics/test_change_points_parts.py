"""Parts of the change detector: outliers, noise, and the table of p-values."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from lossbench.service.statistics.change_points_noise import (
    around_levels,
    from_differences,
    variance_of_step,
    variance_of_sum,
    without_outliers,
)
from lossbench.service.statistics.change_points_table import SHARES, TABLE, p_value

Floats = NDArray[np.float64]


def noise(seed: int, count: int) -> Floats:
    return np.random.default_rng(seed).standard_normal(count)


def test_outliers_are_moved_and_steps_stay() -> None:
    series = noise(17, 100)
    series[50:] += 10.0
    series[20] += 200.0
    clean = without_outliers(series)
    assert clean[20] < 6.0
    assert clean[50] - clean[49] == pytest.approx(10.0, abs=5.0)


@pytest.mark.parametrize("correlation", [0.0, 0.3, 0.7])
def test_variance_of_step_is_that_of_the_covariance_matrix(correlation: float) -> None:
    left, right = 4, 7
    weights = np.r_[np.full(left, -1 / left), np.full(right, 1 / right)]
    lags = np.abs(np.subtract.outer(np.arange(11), np.arange(11)))
    expected = weights @ correlation**lags @ weights
    found = variance_of_step(np.array([left]), np.array([right]), correlation)
    assert found[0] == pytest.approx(expected, rel=1e-12)
    assert variance_of_sum(np.array([1]), correlation)[0] == pytest.approx(1.0)


def lingering(seed: int, count: int, correlation: float) -> Floats:
    series = noise(seed, count)
    for i in range(1, count):
        series[i] = correlation * series[i - 1] + math.sqrt(1 - correlation**2) * series[i]
    return series


@pytest.mark.parametrize("correlation", [0.0, 0.5])
def test_noise_is_estimated_from_differences_and_around_levels(correlation: float) -> None:
    series = lingering(18, 20_000, correlation)
    edges = np.array([0, 8_000, 20_000])
    stepped_series = series + 30.0 * (np.arange(20_000) >= 8_000)
    for found, margin in (
        (from_differences(stepped_series), 1.0),
        (around_levels(stepped_series, edges, 0.0), 1.2),
    ):
        assert found.deviation == pytest.approx(1.0, abs=0.04)
        assert found.correlation == pytest.approx(correlation * margin, abs=0.04)


@pytest.mark.parametrize("row", TABLE)
def test_p_value_follows_the_table(row: tuple[int, float, float]) -> None:
    count, *strengths = row
    assert [p_value(strength, count) for strength in strengths] == pytest.approx(list(SHARES))
    assert p_value(0.0, count) == 1.0
    assert p_value(1e9, count) < 1e-9


def test_p_value_falls_with_strength_and_lies_between_its_neighbours_counts() -> None:
    values = [p_value(strength, 80) for strength in (1.0, 3.0, 5.0, 7.0, 9.0)]
    assert values == sorted(values, reverse=True)
    low, high = sorted((p_value(6.0, 60), p_value(6.0, 100)))
    assert low <= p_value(6.0, 80) <= high


def test_p_value_of_too_few_points_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 10 points are needed, got 9"):
        p_value(5.0, 9)
