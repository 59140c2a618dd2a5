"""Two groups of processes, and what only looks like them. Rates are in tests/simulation."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lossbench.service.statistics.process_modes import CRITICAL, find_two_modes

NOISE = (-0.0012, -0.0005, 0.0, 0.0004, 0.0013)


def test_two_modes_are_found_with_their_sizes_and_distance() -> None:
    found = find_two_modes([0.02 + n for n in NOISE] + [n for n in NOISE[:3]])
    assert found is not None
    assert (found.lower, found.upper) == (3, 5)
    assert found.gap == pytest.approx(0.02 + np.mean(NOISE) - np.mean(NOISE[:3]))
    upper, lower = np.array(NOISE), np.array(NOISE[:3])
    within = ((upper - upper.mean()) ** 2).sum() + ((lower - lower.mean()) ** 2).sum()
    assert found.strength == pytest.approx(found.gap**2 * 3 * 5 / 8 / within)
    assert found.strength > CRITICAL[2]


def test_one_process_far_out_is_no_mode() -> None:
    assert find_two_modes([*NOISE, *NOISE, 0.05]) is None
    assert find_two_modes([*NOISE, *NOISE, 0.05, 0.0502]) is not None


def test_modes_nearer_than_the_practical_line_are_none() -> None:
    tight = [0.0, 1e-5, 2e-5, 3e-5]
    assert find_two_modes([*tight, *(x + 0.0049 for x in tight)]) is None
    assert find_two_modes([*tight, *(x + 0.0051 for x in tight)]) is not None


def test_five_processes_are_too_few() -> None:
    assert find_two_modes([0.0, 0.0, 0.0, 0.1, 0.1]) is None
    assert find_two_modes([]) is None


def test_modes_without_spread_inside_are_found() -> None:
    found = find_two_modes([0.0] * 4 + [0.5] * 4)
    assert found is not None
    assert (found.lower, found.upper, found.gap) == (4, 4, 0.5)
    assert find_two_modes([0.3] * 8) is None


def test_more_processes_than_the_table_use_its_last_line() -> None:
    many = [*NOISE] * 8
    assert find_two_modes(many) is None
    assert find_two_modes(many + [x + 0.02 for x in many]) is not None


@given(st.floats(-5, 5), st.permutations(range(8)))
def test_modes_do_not_depend_on_place_and_order(shift: float, order: list[int]) -> None:
    values = [*NOISE, 0.03, 0.031, 0.032]
    expected, found = find_two_modes(values), find_two_modes([values[i] + shift for i in order])
    assert expected is not None
    assert found is not None
    assert (found.lower, found.upper) == (expected.lower, expected.upper)
    assert found.gap == pytest.approx(expected.gap, rel=1e-6)


def test_critical_values_fall_with_the_number_of_processes() -> None:
    assert list(CRITICAL) == sorted(CRITICAL, reverse=True)
    assert len(CRITICAL) == 24 - 6 + 1


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_values_that_are_not_finite_are_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        find_two_modes([0.0, bad])
