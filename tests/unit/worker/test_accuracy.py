"""Errors of outputs, on tensors small enough to work out by hand; and the checksum of bits."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lossbench.service.contract.run import OutputError
from lossbench.service.contract.words import Outcome
from lossbench.service.statistics.grade import judge
from lossbench.worker import accuracy
from lossbench.worker.accuracy import (
    OutputComparison,
    checksum,
    compare_output,
    unwritten_rows,
)

TRUTH = torch.tensor([3.0, -4.0, 0.0, 12.0], dtype=torch.float64)


def outcome(compared: OutputComparison) -> Outcome:
    numbers: dict[str, Any] = {"output": "dx", **vars(compared)}
    return judge([OutputError.model_validate(numbers)]).outcome


def test_compare_equal_outputs_have_no_error() -> None:
    found = compare_output(TRUTH.float(), TRUTH)
    assert (found.relative_l2, found.max_abs, found.bias) == (0.0, 0.0, 0.0)
    assert (found.best_fit_scale, found.cosine_distance) == (1.0, 0.0)
    assert (found.zero_share, found.not_finite, found.ulp_p99) == (0.0, 0, 0.0)
    assert outcome(found) is Outcome.OK


def test_compare_known_error_by_hand() -> None:
    found = compare_output(TRUTH + torch.tensor([0.0, 0.0, 0.5, 0.0]), TRUTH)
    assert found.relative_l2 == pytest.approx(0.5 / 13)
    assert found.max_abs == 0.5
    # signed mean error over the truth's rms, 13 / 2
    assert found.bias == pytest.approx(0.125 / 6.5)
    assert found.cosine_distance == pytest.approx(1 - 169 / math.sqrt(169 * 169.25))
    assert found.best_fit_scale == 1.0


def test_compare_zero_gradient_is_wrong() -> None:
    found = compare_output(torch.zeros(4), TRUTH)
    assert (found.relative_l2, found.best_fit_scale, found.zero_share) == (1.0, 0.0, 1.0)
    assert found.cosine_distance is None
    assert outcome(found) is Outcome.WRONG


def test_compare_scaled_gradient_is_wrong() -> None:
    found = compare_output(TRUTH * (1 + 2**-7), TRUTH)
    assert found.best_fit_scale == pytest.approx(1 + 2**-7)
    assert found.relative_l2 == pytest.approx(2**-7)
    assert outcome(found) is Outcome.WRONG


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_compare_counts_values_that_are_not_finite(value: float) -> None:
    got = TRUTH.clone()
    got[1:3] = value
    found = compare_output(got, TRUTH)
    assert (found.not_finite, found.relative_l2) == (2, None)
    assert outcome(found) is Outcome.WRONG


def test_compare_to_a_truth_that_is_not_finite_is_never_ok() -> None:
    found = compare_output(TRUTH, TRUTH * math.nan)
    assert outcome(found) is Outcome.WRONG


@pytest.mark.parametrize("got", [None, TRUTH[:3], TRUTH[None]])
def test_compare_missing_or_misshapen_output_is_wrong(got: Tensor | None) -> None:
    assert compare_output(got, TRUTH) == accuracy.MISSING
    assert outcome(accuracy.MISSING) is Outcome.WRONG


def test_compare_to_a_truth_of_zeros() -> None:
    zeros = torch.zeros(3, dtype=torch.float64)
    right, wrong = compare_output(zeros, zeros), compare_output(zeros + 1e-30, zeros)
    assert (right.relative_l2, right.best_fit_scale, right.bias) == (0.0, None, None)
    assert wrong.relative_l2 == math.inf
    assert (outcome(right), outcome(wrong)) == (Outcome.OK, Outcome.WRONG)


def test_compare_empty_output_has_no_error() -> None:
    empty = torch.zeros(0, 4, dtype=torch.float64)
    assert compare_output(empty.float(), empty).relative_l2 == 0.0


@pytest.mark.parametrize(
    ("dtype", "ulp"), [(torch.float32, 2.0**-23), (torch.bfloat16, 2.0**-7), (torch.half, 2.0**-10)]
)
def test_compare_counts_units_in_the_last_place(dtype: torch.dtype, ulp: float) -> None:
    # in [1, 2) a unit is the machine epsilon, in [4, 8) it is four times that
    truth = torch.tensor([1.0, 1.0, 1.0, 4.0], dtype=torch.float64)
    got = (truth + torch.tensor([0.0, ulp, 0.0, 12 * ulp])).to(dtype)
    found = compare_output(got, truth)
    assert (found.ulp_p50, found.ulp_p99) == (0.0, 1.0)


def test_compare_leaves_tiny_truths_out_of_the_units() -> None:
    truth = torch.tensor([1.0, 1.0, 1e-9], dtype=torch.float64)
    found = compare_output(truth.float() + torch.tensor([0, 0, 1e-9]), truth)
    assert found.ulp_p99 == 0.0


def test_compare_in_blocks_gives_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    truth = torch.randn(7, 11, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    got = truth.bfloat16()
    whole = compare_output(got, truth)
    monkeypatch.setattr(accuracy, "BLOCK_ELEMENTS", 10)
    parts = compare_output(got, truth)
    assert parts.relative_l2 == pytest.approx(whole.relative_l2)
    assert parts.best_fit_scale == pytest.approx(whole.best_fit_scale)
    assert (parts.max_abs, parts.zero_share) == (whole.max_abs, whole.zero_share)


DTYPES = (torch.float32, torch.bfloat16, torch.float64)


@settings(max_examples=60, deadline=None)
@given(st.data(), st.sampled_from(DTYPES))
def test_checksum_changes_when_two_values_are_swapped(
    data: st.DataObject, dtype: torch.dtype
) -> None:
    values = torch.randn(50, generator=torch.Generator().manual_seed(0)).to(dtype)
    first, second = data.draw(st.lists(st.integers(0, 49), min_size=2, max_size=2, unique=True))
    swapped = values.clone()
    swapped[[first, second]] = values[[second, first]]
    same = bool(values[first] == values[second])
    assert (checksum([swapped]) == checksum([values])) is same


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 49), st.integers(0, 31))
def test_checksum_changes_when_one_bit_flips(place: int, bit: int) -> None:
    values = torch.randn(50, generator=torch.Generator().manual_seed(0))
    flipped = values.clone()
    flipped.view(torch.int32)[place] ^= 1 << bit if bit < 31 else -(2**31)
    assert checksum([flipped]) != checksum([values])


def test_checksum_tells_outputs_and_their_order_apart() -> None:
    a, b = torch.ones(2), torch.zeros(2)
    found = {
        checksum(list(each)) for each in ((a, b), (b, a), (a, None), (None, a), (a,), (a[:0], a))
    }
    assert len(found) == 5, "a missing and an empty output read the same, all else differs"
    assert checksum([torch.tensor(0.0)]) != checksum([torch.tensor(-0.0)])


def test_checksum_does_not_depend_on_layout_or_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    values = torch.randn(6, 5, generator=torch.Generator().manual_seed(0))
    whole = checksum([values])
    assert checksum([values.t().contiguous().t()]) == whole
    monkeypatch.setattr(accuracy, "BLOCK_ELEMENTS", 7)
    assert checksum([values]) == whole


@pytest.mark.parametrize(
    ("zeroed", "rows", "expected"),
    [
        ([], [0, 1, 2, 3, 4], 0),
        ([1, 3], [0, 1, 2, 3, 4], 2),
        ([1, 3], [0, 1], 1),
        ([4], [0, 1, 2, 3, 4], 0),
        ([0], [], 0),
    ],
)
def test_unwritten_rows_are_the_chosen_zero_ones_with_a_large_truth(
    zeroed: list[int], rows: list[int], expected: int
) -> None:
    """Row 4 is 1/100 of the others: it may be zero by rounding; row 5 is zero in the truth."""
    truth = torch.ones(6, 3, dtype=torch.float64) * torch.tensor([1, 2, 1, 1, 0.01, 0])[:, None]
    got = truth.to(torch.bfloat16)
    got[zeroed] = 0
    chosen = torch.zeros(6, dtype=torch.bool)
    chosen[rows] = True
    chosen[5] = True
    assert unwritten_rows(got, truth, chosen) == expected
