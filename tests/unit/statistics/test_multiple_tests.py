"""Benjamini and Hochberg's adjustment, against scipy and by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import false_discovery_control

from lossbench.service.statistics.multiple_tests import (
    FALSE_SHARE,
    adjusted_by_group,
    adjusted_p_values,
)

P_VALUES = st.lists(st.floats(0, 1), min_size=1, max_size=60)


@given(P_VALUES)
def test_adjusted_p_values_agree_with_scipy(p_values: list[float]) -> None:
    expected = false_discovery_control(p_values, method="bh")
    assert adjusted_p_values(p_values) == pytest.approx(expected.tolist(), abs=1e-12)


def test_adjusted_p_values_by_hand() -> None:
    # 0.03 * 3 / 2 and 0.04 * 3 / 3: the larger may not exceed the one behind it
    assert adjusted_p_values([0.04, 0.001, 0.03]) == pytest.approx([0.04, 0.003, 0.04])


def test_single_test_stays_as_it_is_and_none_is_none() -> None:
    assert adjusted_p_values([0.2]) == [0.2]
    assert adjusted_p_values([]) == []


@given(P_VALUES)
def test_adjusted_p_value_is_never_smaller_and_keeps_the_order(p_values: list[float]) -> None:
    adjusted = adjusted_p_values(p_values)
    assert all(a >= p * (1 - 1e-12) for a, p in zip(adjusted, p_values, strict=True))
    order = np.argsort(p_values, kind="stable")
    assert np.all(np.diff(np.asarray(adjusted)[order]) >= 0)


def test_group_has_the_smallest_of_its_own_adjusted_over_the_whole_batch() -> None:
    groups = ["liger 0.6.2", "cce 1", "liger 0.6.2"]
    assert adjusted_by_group(groups, [0.5, 0.04, 0.01]) == pytest.approx(
        {"liger 0.6.2": 0.03, "cce 1": 0.06}
    )


def test_groups_and_p_values_of_other_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="groups must be as many as p-values, got 1 and 2"):
        adjusted_by_group(["a"], [0.1, 0.2])


@pytest.mark.parametrize("bad", [-0.1, 1.1, float("nan")])
def test_p_value_outside_of_zero_to_one_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="p-values must lie in 0 to 1"):
        adjusted_p_values([0.1, bad])


def test_false_share_among_the_accepted_is_held() -> None:
    """900 tests without and 100 with an effect, 200 times: seeded, so the share is a number."""
    rng = np.random.default_rng(1)
    false_shares = []
    for _ in range(200):
        p_values = np.concatenate([rng.random(900), rng.random(100) * 1e-4])
        accepted = np.asarray(adjusted_p_values(p_values.tolist())) <= FALSE_SHARE
        false_shares.append(accepted[:900].sum() / max(accepted.sum(), 1))
    assert 0.03 < np.mean(false_shares) <= FALSE_SHARE
    plain = [(rng.random(900) <= FALSE_SHARE).sum() / 145 for _ in range(20)]
    assert np.mean(plain) > 0.25
