"""Drift of visits against exact counts of permutations. Rates are in tests/simulation."""

import itertools
import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kendalltau

from lossbench.service.statistics import visit_drift
from lossbench.service.statistics.visit_drift import find_drift

RISING = [10.0, 10.1, 10.2, 10.3, 10.4, 10.5]


def chance(visits: list[list[float]], monkeypatch: pytest.MonkeyPatch) -> float:
    """The p-value of any trend, however weak."""
    monkeypatch.setattr(visit_drift, "FALSE_RATE", 1.0)
    monkeypatch.setattr(visit_drift, "LEAST_CHANGE", -1.0)
    found = find_drift(visits)
    assert found is not None
    return found.p_value


def test_one_process_that_rises_at_every_visit_drifts() -> None:
    found = find_drift([RISING])
    assert found is not None
    assert found.p_value == pytest.approx(2 / 720)
    assert found.change == pytest.approx(math.log(1.05), rel=0.02)


def test_one_process_that_falls_at_every_visit_drifts_down() -> None:
    found = find_drift([RISING[::-1]])
    assert found is not None
    assert found.change == pytest.approx(-math.log(1.05), rel=0.02)


def test_one_process_with_an_exception_does_not_drift() -> None:
    assert find_drift([[10.1, 10.0, *RISING[2:]]]) is None
    assert find_drift([[10.1, 10.0, *RISING[2:]]] * 2) is not None


def test_drift_below_one_percent_is_of_no_interest() -> None:
    assert find_drift([[10 * 1.0019**n for n in range(6)]] * 8) is None
    assert find_drift([[10 * 1.0021**n for n in range(6)]] * 8) is not None


def test_processes_that_drift_apart_do_not_add_up() -> None:
    assert find_drift([RISING, RISING[::-1]] * 4) is None


def test_one_visit_far_out_is_no_drift() -> None:
    assert find_drift([[13.0, 10.0, 10.1, 10.0, 10.1, 10.0]] * 3) is None


@pytest.mark.parametrize("visits", [[], [[]], [[10.0]], [[10.0], [11.0]]])
def test_visits_without_a_second_one_have_no_drift(visits: list[list[float]]) -> None:
    assert find_drift(visits) is None


def test_equal_visits_have_no_drift(monkeypatch: pytest.MonkeyPatch) -> None:
    assert chance([[10.0] * 6] * 3, monkeypatch) == pytest.approx(1.0)


@pytest.mark.parametrize("sizes", [(4,), (5,), (4, 3), (3, 3, 2)])
def test_p_value_is_the_share_of_permutations(
    sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def score(orders: tuple[tuple[int, ...], ...]) -> int:
        pairs = [pair for order in orders for pair in itertools.combinations(order, 2)]
        return abs(sum(1 if a < b else -1 for a, b in pairs))

    every = list(itertools.product(*(itertools.permutations(range(n)) for n in sizes)))
    scores = Counter(map(score, every))
    for orders in every[:: max(1, len(every) // 40)]:
        as_far = sum(count for found, count in scores.items() if found >= score(orders))
        visits = [[float(10 + place) for place in order] for order in orders]
        assert chance(visits, monkeypatch) == pytest.approx(as_far / len(every))


@given(st.lists(st.floats(1, 2), min_size=3, max_size=9, unique=True))
def test_p_value_of_one_process_agrees_with_scipy(medians: list[float]) -> None:
    expected = kendalltau(range(len(medians)), medians, method="exact").pvalue
    with pytest.MonkeyPatch.context() as patch:
        assert chance([medians], patch) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_times_that_are_none_are_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="positive and finite"):
        find_drift([[10.0, bad]])
