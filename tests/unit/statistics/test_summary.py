"""Summaries of samples and ratios over processes, against numbers worked out by hand."""

import math

import numpy as np
import pytest

from lossbench.service.statistics.summary import (
    is_noisy,
    ratio_interval,
    spread,
    summarise,
    visit_log_ratio,
)


def test_summarise_known_samples_gives_their_quartiles() -> None:
    found = summarise([5.0, 1.0, 4.0, 2.0, 3.0], host_ms=[0.3, 0.1, 0.2])
    assert (found.n, found.median_ms, found.mean_ms, found.minimum_ms) == (5, 3.0, 3.0, 1.0)
    assert (found.q1_ms, found.q3_ms) == (2.0, 4.0)
    assert found.p95_ms == pytest.approx(4.8)
    assert (found.mad_ms, found.outliers, found.host_launch_median_ms) == (1.0, 0, 0.2)


def test_summarise_counts_outliers_and_keeps_them() -> None:
    # quartiles 1 and 3: Tukey's outer fence lies at -5 and 9
    quiet = summarise([1.0, 1.0, 1.0, 2.0, 3.0, 3.0, 3.0])
    loud = summarise([1.0, 1.0, 1.0, 2.0, 3.0, 3.0, 9.1])
    assert (quiet.q1_ms, quiet.q3_ms, quiet.outliers) == (1.0, 3.0, 0)
    assert (loud.n, loud.outliers) == (7, 1)
    assert loud.mean_ms == pytest.approx(20.1 / 7)


def test_summarise_one_sample_has_no_spread() -> None:
    found = summarise([7.5])
    assert (found.q1_ms, found.median_ms, found.p95_ms, found.mad_ms) == (7.5, 7.5, 7.5, 0.0)
    assert found.host_launch_median_ms is None


def test_summarise_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="no samples"):
        summarise([])


@pytest.mark.parametrize(("half_width", "noisy"), [(1.4, False), (1.6, True)])
def test_is_noisy_above_three_percent_of_the_median(half_width: float, noisy: bool) -> None:
    low, high = 100 - half_width, 100 + half_width
    assert is_noisy(summarise([low, low, 100.0, high, high])) is noisy


def test_visit_log_ratio_pairs_visits_in_order() -> None:
    # a drift of the device doubles both arms from visit to visit: pairs do not see it
    candidate = [[2.0, 2.0, 9.0], [4.0], [8.0, 8.0]]
    base = [[1.0, 1.0], [2.0, 2.0, 2.0], [4.0]]
    assert visit_log_ratio(candidate, base) == pytest.approx(math.log(2))


def test_visit_log_ratio_is_the_mean_of_logs() -> None:
    found = visit_log_ratio([[2.0], [1.0]], [[1.0], [1.0]])
    assert found == pytest.approx(math.log(2) / 2)


def test_visit_log_ratio_leaves_out_visits_without_a_partner() -> None:
    assert visit_log_ratio([[2.0], [100.0]], [[1.0]]) == pytest.approx(math.log(2))
    assert visit_log_ratio([[], [4.0]], [[1.0], [1.0]]) == pytest.approx(math.log(4))


@pytest.mark.parametrize(("candidate", "base"), [([], [[1.0]]), ([[1.0]], []), ([[]], [[1.0]])])
def test_visit_log_ratio_without_a_pair_is_none(
    candidate: list[list[float]], base: list[list[float]]
) -> None:
    assert visit_log_ratio(candidate, base) is None


def test_ratio_interval_agrees_with_a_hand_computation() -> None:
    logs = [math.log(1.02), math.log(1.03), math.log(1.04)]
    found = ratio_interval(logs)
    mean = sum(logs) / 3
    deviation = math.sqrt(sum((x - mean) ** 2 for x in logs) / 2)
    half = 4.302652729749464 * deviation / math.sqrt(3)
    assert found is not None
    assert found.value == pytest.approx(math.exp(mean), rel=1e-12)
    assert found.low == pytest.approx(math.exp(mean - half), rel=1e-10)
    assert found.high == pytest.approx(math.exp(mean + half), rel=1e-10)
    assert found.processes == 3


def test_ratio_interval_of_another_confidence_is_wider() -> None:
    logs = [0.01, 0.02, 0.03]
    usual, fine = ratio_interval(logs), ratio_interval(logs, confidence=0.9998)
    assert usual is not None
    assert fine is not None
    # t of 0.9999 with two degrees of freedom is 70.70
    assert math.log(fine.high or 0) - 0.02 == pytest.approx(70.7001 * 0.01 / math.sqrt(3), rel=1e-5)
    assert (fine.low or 0) < (usual.low or 0)


def test_ratio_interval_of_one_process_has_no_bounds() -> None:
    found = ratio_interval([math.log(2)])
    assert found is not None
    assert found.value == pytest.approx(2.0)
    assert (found.low, found.high) == (None, None)
    assert ratio_interval([]) is None


@pytest.mark.parametrize("processes", [3, 8])
def test_ratio_interval_covers_the_truth_as_often_as_it_says(processes: int) -> None:
    rng = np.random.default_rng(20261130)
    trials, truth, covered = 2000, math.log(1.01), 0
    for logs in rng.normal(truth, 0.004, size=(trials, processes)):
        found = ratio_interval(logs.tolist())
        assert found is not None
        covered += (found.low or 0) <= math.exp(truth) <= (found.high or 0)
    # binomial with p = 0.95: four standard deviations are 2 %
    assert 0.93 < covered / trials < 0.97


def test_pooled_samples_would_not_cover_the_truth() -> None:
    """The mutant that the process as unit of replication guards against."""
    rng = np.random.default_rng(1)
    trials, covered = 300, 0
    for offsets in rng.normal(0, 0.01, size=(trials, 3)):
        pooled = (offsets[:, None] + rng.normal(0, 0.01, size=(3, 50))).ravel()
        found = ratio_interval(pooled.tolist())
        assert found is not None
        covered += (found.low or 0) <= 1.0 <= (found.high or 0)
    assert covered / trials < 0.5


def test_spread_gives_median_and_range() -> None:
    found = spread([3.0, 1.0, 2.0])
    assert found is not None
    assert (found.value, found.low, found.high) == (2.0, 1.0, 3.0)
    assert spread([]) is None
