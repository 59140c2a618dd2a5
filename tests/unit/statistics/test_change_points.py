"""Steps and drifts of one series: properties, exact small cases, and what is refused."""

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from lossbench.service.statistics.change_points import (
    FALSE_RATE,
    Changes,
    find_changes,
    find_exact_steps,
)
from lossbench.service.statistics.change_points_table import LEAST_POINTS

MIB = 1024**2
Floats = NDArray[np.float64]
FEW = settings(max_examples=40, deadline=None)
SEEDS = st.integers(0, 10_000)


def noise(seed: int, count: int = 100, sd: float = 0.005) -> Floats:
    return sd * np.random.default_rng(seed).standard_normal(count)


def stepped(seed: int, place: int, change: float, count: int = 100) -> Floats:
    series = noise(seed, count)
    series[place:] += change
    return series


def indices(changes: Changes) -> list[int]:
    return [point.index for point in changes.points]


# ---- what is found -------------------------------------------------------------------------------


@pytest.mark.parametrize("place", [3, 4, 10, 50, 90, 96, 97])
@pytest.mark.parametrize("change", [0.05, -0.05])
def test_step_of_ten_deviations_is_found_where_it_is(place: int, change: float) -> None:
    found = find_changes(stepped(1, place, change))
    (point,) = found.points
    assert point.index == place
    assert point.position == place
    assert point.direction == ("up" if change > 0 else "down")
    assert point.low < point.change < point.high
    assert point.change == pytest.approx(change, abs=0.01)
    assert point.after - point.before == pytest.approx(point.change)
    assert point.ratio == pytest.approx(math.exp(point.change))
    assert point.p_value < FALSE_RATE
    assert found.drifts == found.short == ()


@pytest.mark.parametrize("after", [1, 2])
def test_one_or_two_points_that_lie_far_out_are_no_step_yet(after: int) -> None:
    assert indices(find_changes(stepped(1, 100 - after, 0.5))) == []


@pytest.mark.parametrize("length", [1, 2])
def test_outliers_side_by_side_are_no_step(length: int) -> None:
    series = noise(2)
    series[50 : 50 + length] += 0.3
    assert find_changes(series) == find_changes(noise(2))


def test_regression_and_its_repair_are_two_steps() -> None:
    series = noise(3)
    series[40:46] += 0.04
    first, second = find_changes(series).points
    assert (first.index, second.index) == (40, 46)
    assert (first.direction, second.direction) == ("up", "down")


def test_several_steps_are_found_in_order() -> None:
    series = noise(4, 300)
    for place, change in ((60, 0.03), (120, 0.02), (200, -0.05)):
        series[place:] += change
    found = indices(find_changes(series))
    assert found == pytest.approx([60, 120, 200], abs=2)


@pytest.mark.parametrize("seed", range(20))
def test_interval_holds_the_step(seed: int) -> None:
    """A 99.9 % interval instead of the 95 % one: a seeded test must not depend on luck."""
    (point,) = find_changes(stepped(seed, 40, 0.05)).points
    half = (point.high - point.low) / 2
    assert abs(point.change - 0.05) < 3.4 / 1.98 * half
    assert half == pytest.approx(1.98 * 0.005 * math.sqrt(1 / 40 + 1 / 60), rel=0.8)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("total", [0.03, 0.05, -0.05, 0.2])
def test_gradual_change_is_a_drift_and_no_step(seed: int, total: float) -> None:
    found = find_changes(noise(seed) + np.linspace(0, total, 100))
    assert found.points == ()
    (drift,) = found.drifts
    assert drift.change == pytest.approx(total, rel=0.3)
    assert drift.direction == ("up" if total > 0 else "down")
    assert drift.last - drift.first >= 75
    assert drift.p_value < FALSE_RATE


def test_drift_that_begins_halfway_is_told_from_there() -> None:
    series = noise(5)
    series[50:] += np.linspace(0, 0.05, 50)
    (drift,) = find_changes(series).drifts
    assert drift.first == pytest.approx(50, abs=9)
    assert drift.last == 99


@pytest.mark.parametrize("seed", range(5))
def test_step_is_no_drift(seed: int) -> None:
    found = find_changes(stepped(seed, 50, 0.03))
    assert len(found.points) == 1
    assert found.drifts == ()


def test_changes_up_to_the_least_are_no_result() -> None:
    series = stepped(6, 50, 0.02)
    assert indices(find_changes(series)) == [50]
    assert indices(find_changes(series, least_change=0.03)) == []


def test_stricter_false_rate_finds_less() -> None:
    series = stepped(7, 97, 0.02)
    assert indices(find_changes(series, false_rate=0.01)) == [97]
    assert indices(find_changes(series, false_rate=1e-9)) == []


# ---- environments --------------------------------------------------------------------------------


def test_step_between_two_environments_is_no_result() -> None:
    series = stepped(8, 60, 0.07)
    assert indices(find_changes(series)) == [60]
    assert indices(find_changes(series, segments=["old"] * 60 + ["new"] * 40)) == []


def test_step_inside_an_environment_is_found_in_the_indices_of_the_series() -> None:
    series = stepped(9, 60, 0.07)
    series[80:] += 0.04
    found = find_changes(
        series, segments=["old"] * 60 + ["new"] * 40, positions=[10.0 * i for i in range(100)]
    )
    (point,) = found.points
    assert (point.index, point.position) == (80, 800.0)


def test_environment_that_comes_back_is_a_segment_of_its_own() -> None:
    series = noise(10, 60)
    series[20:40] += 0.07
    names = ["a"] * 20 + ["b"] * 20 + ["a"] * 20
    assert find_changes(series, segments=names).points == ()


def test_short_segments_are_told() -> None:
    found = find_changes(noise(11, 40), segments=["a"] * 5 + ["b"] * 35)
    assert found.short == (range(5),)
    assert not found.not_enough_data


def test_false_rate_is_shared_out_between_segments() -> None:
    half = stepped(12, 44, 0.02, 50)
    alone = find_changes(half).points[0].p_value
    beside = find_changes([*noise(13, 50), *half], segments=[0] * 50 + [1] * 50).points[0].p_value
    assert beside == pytest.approx(2 * alone, rel=1e-6)


# ---- few points, no noise, bad input -------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 3, LEAST_POINTS - 1])
def test_few_points_are_not_enough_data(count: int) -> None:
    found = find_changes(np.arange(float(count)))
    assert found.not_enough_data
    assert found.points == found.drifts == ()


def test_ten_points_with_a_large_step_are_enough() -> None:
    found = find_changes(stepped(14, 5, 0.2, 10))
    assert not found.not_enough_data
    assert indices(found) == [5]


@pytest.mark.parametrize("level", [0.0, 1.0, -3.0, 1e9, 1e-9])
def test_constant_series_has_no_change(level: float) -> None:
    assert find_changes([level] * 50) == Changes(count=50)


def test_steps_without_noise_are_exact() -> None:
    found = find_changes(np.repeat([0.0, 0.1, 0.0, 0.2], 25))
    assert indices(found) == [25, 50, 75]
    assert [point.change for point in found.points] == pytest.approx([0.1, -0.1, 0.2])
    assert all(point.p_value < 1e-9 for point in found.points)
    assert all(point.high - point.low < 1e-6 for point in found.points)


def test_ramp_without_noise_is_a_drift() -> None:
    found = find_changes(np.linspace(0, 1, 60))
    assert found.points == ()
    assert found.drifts[0].change == pytest.approx(1.0, rel=0.01)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_value_that_is_not_finite_is_refused_with_its_place(bad: float) -> None:
    series = noise(15)
    series[7] = bad
    for find in (find_changes, find_exact_steps):
        with pytest.raises(ValueError, match=rf"values must be finite, got {bad} at index 7"):
            find(series)
    with pytest.raises(ValueError, match="positions must be finite"):
        find_changes(noise(15), positions=series)


def test_lengths_that_differ_are_refused() -> None:
    with pytest.raises(ValueError, match="segments must be as many as values, got 2, 100"):
        find_changes(noise(16), segments=["a", "b"])
    with pytest.raises(ValueError, match="positions must be as many as values, got 1, 100"):
        find_changes(noise(16), positions=[1.0])
    with pytest.raises(ValueError, match="positions must be as many as values, got 1, 100"):
        find_exact_steps(noise(16), positions=[1.0])
    with pytest.raises(ValueError, match="values must be one series, got 2 dimensions"):
        find_changes(np.ones((3, 4)))  # type: ignore[arg-type]


# ---- properties ----------------------------------------------------------------------------------

PLACES = st.integers(5, 95)
CHANGES = st.sampled_from([-0.1, -0.02, 0.0, 0.015, 0.05])


@FEW
@given(SEEDS, PLACES, CHANGES, st.sampled_from([-100.0, -1.0, 0.3, 7.0]))
def test_shift_of_all_values_changes_nothing(
    seed: int, place: int, change: float, shift: float
) -> None:
    series = stepped(seed, place, change)
    one, other = find_changes(series), find_changes(series + shift)
    assert indices(one) == indices(other)
    for before, after in zip(one.points, other.points, strict=True):
        assert after.change == pytest.approx(before.change, abs=1e-9)
        assert after.p_value == pytest.approx(before.p_value, rel=1e-4)
        assert after.before == pytest.approx(before.before + shift, abs=1e-9)


@FEW
@given(SEEDS, PLACES, CHANGES, st.sampled_from([1e-6, 0.1, 3.0, 1e8]))
def test_scale_scales_the_changes(seed: int, place: int, change: float, scale: float) -> None:
    series = stepped(seed, place, change)
    one = find_changes(series, least_change=0.0)
    other = find_changes(scale * series, least_change=0.0)
    assert indices(one) == indices(other)
    for before, after in zip(one.points, other.points, strict=True):
        assert after.change == pytest.approx(scale * before.change, rel=1e-6)
        assert after.high == pytest.approx(scale * before.high, rel=1e-6)
        assert after.p_value == pytest.approx(before.p_value, rel=1e-4)


@FEW
@given(SEEDS, PLACES, CHANGES)
def test_reversed_series_has_the_same_steps_the_other_way_round(
    seed: int, place: int, change: float
) -> None:
    series = stepped(seed, place, change)
    one, other = find_changes(series), find_changes(series[::-1])
    assert indices(one) == [len(series) - index for index in indices(other)[::-1]]
    for before, after in zip(one.points, other.points[::-1], strict=True):
        assert after.change == pytest.approx(-before.change, rel=1e-6)
        assert after.p_value == pytest.approx(before.p_value, rel=1e-4)


@FEW
@given(st.lists(st.floats(-1e12, 1e12), max_size=60))
def test_any_finite_series_has_ordered_steps_and_p_values_in_range(values: list[float]) -> None:
    found = find_changes(values)
    assert all(one < other for one, other in pairwise(indices(found)))
    for change in (*found.points, *found.drifts):
        assert 0.0 <= change.p_value <= FALSE_RATE
        assert change.low <= change.change <= change.high


# ---- exact series --------------------------------------------------------------------------------


def test_bytes_step_beyond_a_mebibyte_and_half_a_percent() -> None:
    found = find_exact_steps([100 * MIB, 100 * MIB, 102 * MIB, 102 * MIB, 100 * MIB])
    assert [(p.index, p.before, p.after) for p in found.points] == [
        (2, 100 * MIB, 102 * MIB),
        (4, 102 * MIB, 100 * MIB),
    ]
    assert all(p.p_value == 0.0 and p.low == p.change == p.high for p in found.points)
    assert [p.direction for p in found.points] == ["up", "down"]


@pytest.mark.parametrize(
    ("before", "after", "steps"),
    [
        (10 * MIB, 11 * MIB, 0),
        (10 * MIB, 11 * MIB + 1, 1),
        (1000 * MIB, 1005 * MIB, 0),
        (1000 * MIB, 1005 * MIB + 1, 1),
        (0, MIB, 0),
        (0, MIB + 1, 1),
        (3 * MIB, 0, 1),
    ],
)
def test_limits_of_exact_steps(before: int, after: int, steps: int) -> None:
    assert len(find_exact_steps([before, after]).points) == steps


def test_small_exact_changes_that_add_up_are_a_step() -> None:
    found = find_exact_steps([100 * MIB + i * MIB // 2 for i in range(5)])
    assert indices(found) == [3]


def test_exact_steps_of_nothing_and_of_one_point_are_none() -> None:
    assert find_exact_steps([]) == Changes()
    assert find_exact_steps([5.0]) == Changes(count=1)


@pytest.mark.parametrize("find", [find_changes, find_exact_steps])
def test_input_is_left_as_it_was(find: Callable[[Floats], Changes]) -> None:
    series = stepped(19, 50, 0.05)
    copy = series.copy()
    find(series)
    assert np.array_equal(series, copy)
