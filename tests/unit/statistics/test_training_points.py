"""Thinned curves keep what stands out, packing keeps every bit, windows decide as curves do."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lossbench.service.statistics.training_points import (
    Curve,
    pack,
    points_of,
    summary_of,
    thinned,
    unpack,
    window_means,
    window_width,
)
from lossbench.service.statistics.training_verdict import compare_curves

VALUES = st.lists(
    st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=400
)


def curve(values: list[float]) -> Curve:
    return Curve(np.arange(1, len(values) + 1), np.asarray(values, dtype=np.float64))


@given(VALUES, st.integers(4, 60))
def test_thinned_keeps_ends_and_extremes_in_order_within_the_limit(
    values: list[float], most: int
) -> None:
    found = thinned(curve(values), most)
    assert len(found.steps) <= most
    assert (np.diff(found.steps) > 0).all()
    assert (found.steps[0], found.steps[-1]) == (1, len(values))
    assert found.values.min() == min(values)
    assert found.values.max() == max(values)
    assert [values[step - 1] for step in found.steps] == found.values.tolist()


def test_thinned_keeps_a_lost_last_step_and_drops_one_between() -> None:
    values = [1.0] * 50 + [math.nan] + [2.0] * 50 + [math.nan]
    found = thinned(curve(values), 10)
    assert math.isnan(found.values[-1])
    assert np.isfinite(found.values[:-1]).all()


def test_thinned_to_three_points_is_refused() -> None:
    with pytest.raises(ValueError, match="max_points=3: must be >= 4"):
        thinned(curve([1.0, 2.0]), 3)


@given(VALUES)
def test_pack_and_unpack_give_the_same_bits(values: list[float]) -> None:
    wanted = np.asarray(values, dtype=np.float32)
    assert unpack(pack(wanted)).tobytes() == wanted.tobytes()


def test_pack_takes_a_column_of_a_table() -> None:
    table = np.arange(12, dtype=np.float32).reshape(4, 3)
    assert unpack(pack(table[:, 1])).tolist() == [1.0, 4.0, 7.0, 10.0]


@given(VALUES)
def test_summary_keeps_least_and_greatest_with_their_steps(values: list[float]) -> None:
    found = points_of(summary_of(values), first_step=1)
    exact = np.asarray(values, dtype=np.float32).astype(np.float64)
    assert found.values.min() == exact.min()
    assert found.values.max() == exact.max()
    assert [exact[step - 1] for step in found.steps] == found.values.tolist()


def test_summary_of_steps_without_a_finite_value_has_no_points() -> None:
    assert len(points_of(summary_of([math.nan] * 100), 1).steps) == 0


def test_windows_decide_as_the_whole_curves_do() -> None:
    rng = np.random.default_rng(3)
    steps = 53
    base = rng.normal(3.0, 0.1, (3, steps))
    tried = base + 0.01
    whole = compare_curves(tried, base)
    means = [[window_means(row, steps) for row in curves] for curves in (tried, base)]
    short = compare_curves(means[0], means[1], window=1)
    assert short.difference == pytest.approx(whole.difference)
    assert short.seeds == pytest.approx(whole.seeds)
    width = window_width(steps)
    assert tuple(min(n * width, steps) for n in short.steps) == whole.steps


def test_window_of_a_run_that_ended_early_is_not_known() -> None:
    found = window_means([1.0] * 30, 40)
    assert found[:15] == [1.0] * 15
    assert all(math.isnan(value) for value in found[15:])
