"""Ratios of ratios: values, intervals in quadrature, and what has none."""

import math
from typing import Any

import pytest

from lossbench.service.api.comparison import ratio_of
from lossbench.service.api.mean_ratio import Pair, Ratio, mean_of_pairs
from lossbench.service.store.result_pages import BriefRun


def brief(**changes: Any) -> BriefRun:
    values: dict[str, Any] = {
        "id": "run-1",
        "contender": "flce",
        "case": "N8-H8-V8-float32",
        "pass_": "forward",
        "device_name": "GPU",
        "environment_id": "a-b",
        "outcome": "ok",
        "grade": "exact",
        "baseline": "torch-naive",
        "ratio": 0.5,
        "ratio_low": 0.4,
        "ratio_high": 0.625,
        "tokens": 8,
        "hidden": 8,
        "vocab": 8,
        "protocol_version": 3,
    }
    return BriefRun(**{**values, **changes})


def test_ratio_over_a_shared_baseline_adds_half_widths_in_quadrature() -> None:
    base = brief(contender="liger@1", ratio=1.0, ratio_low=1 / 1.25, ratio_high=1.25)
    ratio, source = ratio_of(base, brief())
    assert ratio is not None
    assert ratio.low is not None
    assert ratio.high is not None
    half = math.hypot(math.log(1.25), math.log(1.25))
    assert ratio.value == pytest.approx(0.5)
    assert math.log(ratio.high / ratio.value) == pytest.approx(half)
    assert math.log(ratio.value / ratio.low) == pytest.approx(half)
    assert source == "ratio of ratios to torch-naive"


@pytest.mark.parametrize(
    "changes",
    [
        {"outcome": "failed"},
        {"baseline": "torch-upcast"},
        {"protocol_version": 2},
        {"ratio": None},
        {"ratio": 0.0},
    ],
)
def test_ratio_without_two_shared_ratios_is_none(changes: dict[str, Any]) -> None:
    base = brief(contender="liger@1", **changes)
    assert ratio_of(base, brief())[0] is None


def test_ratio_with_one_unbounded_side_has_no_interval() -> None:
    ratio, _ = ratio_of(brief(contender="liger@1", ratio_low=None, ratio_high=None), brief())
    assert ratio == Ratio(value=1.0)


def test_ratio_to_the_timed_baseline_is_the_measured_one() -> None:
    base = brief(contender="torch-naive", ratio=1.1, ratio_low=1.0, ratio_high=1.2)
    ratio, source = ratio_of(base, brief())
    assert ratio == Ratio(value=0.5, low=0.4, high=0.625)
    assert source == "timed in the same process"
    inverse, _ = ratio_of(brief(), base)
    assert inverse is not None
    assert inverse.value == pytest.approx(2.0)
    assert inverse.low == pytest.approx(1.6)


def pair_of(value: float, half: float | None = None) -> Pair:
    """A candidate with this ratio to the base, which is the baseline."""
    bounds = (None, None) if half is None else (value / half, value * half)
    candidate = brief(ratio=value, ratio_low=bounds[0], ratio_high=bounds[1])
    return brief(contender="torch-naive", ratio=None), candidate, None


def test_geometric_mean_narrows_with_more_cases_and_needs_every_bound() -> None:
    count, mean = mean_of_pairs([pair_of(2.0, 1.1)] * 4)
    assert count == 4
    assert mean is not None
    assert mean.high is not None
    assert mean.value == pytest.approx(2.0)
    assert math.log(mean.high / mean.value) == pytest.approx(math.log(1.1) / 2)
    count, unbounded = mean_of_pairs([pair_of(2.0, 1.1), pair_of(0.5)])
    assert (count, unbounded) == (2, Ratio(value=pytest.approx(1.0)))
    assert mean_of_pairs([]) == (0, None)


@pytest.mark.parametrize("which", range(6))
def test_mean_of_one_pair_is_its_ratio(which: int) -> None:
    """Two ways to one number: the row's and, in arrays, the header's."""
    base, candidate = [
        (brief(contender="liger@1", ratio=0.8, ratio_low=0.7, ratio_high=0.9), brief()),
        (brief(contender="torch-naive", ratio=None), brief()),
        (brief(), brief(contender="torch-naive", ratio=None)),
        (brief(contender="liger@1", ratio_low=None, ratio_high=None), brief()),
        (brief(contender="liger@1", protocol_version=2), brief()),
        (brief(contender="liger@1", ratio=0.0), brief()),
    ][which]
    ratio, _ = ratio_of(base, candidate)
    count, mean = mean_of_pairs([(base, candidate, None)])
    assert count == (ratio is not None)
    if ratio is None:
        assert mean is None
        return
    assert mean is not None
    assert mean.value == pytest.approx(ratio.value)
    assert (mean.low is None) == (ratio.low is None)
    if ratio.low is not None and mean.low is not None:
        assert mean.low == pytest.approx(ratio.low)
