"""The check catches every mutant, and passes what is right."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from lossbench.kernels.catalogue import build, spec_of
from lossbench.kernels.cheats import CHEATS
from lossbench.kernels.checks.cases import CheckCase, inputs_of
from lossbench.kernels.checks.grid import BY_ID, GRID
from lossbench.kernels.checks.truth import exact_loss
from lossbench.kernels.flce import linear_cross_entropy
from lossbench.kernels.mutants import MUTANTS
from lossbench.kernels.protocol import LossFunction
from lossbench.service.contract.contender import Contender
from lossbench.service.contract.words import Grade, Outcome
from lossbench.worker.bench import names_to_prove
from lossbench.worker.checks import GridChecker, _copy, check_function
from lossbench.worker.guards import TimerGuard

RIGHT = build("torch-upcast", None, {})
QUICK = [case for case in GRID if case.quick]
FOR_MUTANTS = [
    case for case in QUICK if case.id not in ("sizes/no-token/mean/float32", "calls/autocast")
]
"""Mutants spoil torch's own backward, which knows neither empty batches nor autocast."""
COARSE = {"softmax_in_bf16", "dw_summed_in_bf16"}
"""Mutants that only lose digits: at least `coarse`; all others are `wrong`."""
HONEST: dict[str, LossFunction] = {
    "flce": linear_cross_entropy,
    "flce-chunks-of-7": partial(linear_cross_entropy, chunk_rows=7),
    "torch-upcast": build("torch-upcast", None, {}),
}


def results(function: LossFunction, cases: list[CheckCase]) -> set[str]:
    return {check_function(function, case, "cpu").result for case in cases}


@pytest.mark.parametrize("name", sorted(set(MUTANTS) - COARSE))
def test_mutant_is_called_wrong(name: str) -> None:
    assert "wrong" in results(MUTANTS[name], FOR_MUTANTS)


@pytest.mark.parametrize("name", sorted(COARSE))
def test_mutant_that_loses_digits_is_called_coarse_at_least(name: str) -> None:
    assert results(MUTANTS[name], FOR_MUTANTS) & {"coarse", "poor", "wrong"}


def test_replayed_output_is_called_wrong() -> None:
    found = check_function(CHEATS["replayed_output"], BY_ID["cheats/renewed/float32"], "cpu")

    assert found.outcome is Outcome.WRONG


class _ScalesUpstream(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, loss: Tensor) -> Tensor:
        return loss.clone()

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> Tensor:
        return upstream.mul_(3)


def doubles_class_weight(*tensors: Any, class_weight: Tensor, **options: Any) -> Tensor:
    class_weight.mul_(2)
    return RIGHT(*tensors, class_weight=class_weight, **options)


def clears_bias(x: Tensor, weight: Tensor, target: Tensor, bias: Tensor, **options: Any) -> Tensor:
    loss = RIGHT(x, weight, target, bias, **options)
    bias.data.zero_()
    return loss


def scales_upstream(*tensors: Any, **options: Any) -> Tensor:
    loss: Tensor = _ScalesUpstream.apply(RIGHT(*tensors, **options))  # type: ignore[no-untyped-call]
    return loss


@pytest.mark.parametrize(
    ("spoils", "case", "named"),
    [
        (doubles_class_weight, "options/class_weight/sum/float32", "class weight"),
        (clears_bias, "options/bias/mean/float32", "bias"),
        (scales_upstream, "dtypes/upstream-ramp/bfloat16", "upstream gradient"),
        (scales_upstream, "options/none/mean/float32", "upstream gradient"),
    ],
)
def test_tensor_that_a_contender_changes_is_named_and_spoils_no_truth(
    spoils: LossFunction, case: str, named: str
) -> None:
    found = check_function(spoils, BY_ID[case], "cpu")

    assert (found.outcome, found.reason) == (Outcome.WRONG, f"it changed its {named}")
    assert found.relative_l2 is not None
    if spoils is not clears_bias:
        # three or two times too large, by a truth that was made from what was asked
        expected = 2.0 if spoils is scales_upstream else 1.0
        assert found.relative_l2 == pytest.approx(expected, rel=1e-2)


def test_copy_of_inputs_has_their_values_and_strides_in_storage_of_its_own() -> None:
    expanded = next(case.id for case in GRID if case.upstream == "expanded")
    for name in (
        "options/class_weight/sum/float32",
        "options/bias/none/float32",
        "layouts/x_columns/float32",
        expanded,
    ):
        inputs = inputs_of(BY_ID[name], "cpu")
        copied = _copy(inputs)
        for field in ("x", "weight", "target", "bias", "class_weight", "upstream"):
            own, given = getattr(copied, field), getattr(inputs, field)
            assert (own is None) == (given is None)
            if own is not None:
                assert torch.equal(own, given)
                assert own.stride() == given.stride()
                assert own.untyped_storage().data_ptr() != given.untyped_storage().data_ptr()


def test_lazy_output_is_called_wrong() -> None:
    found = check_function(CHEATS["lazy_output"], BY_ID["options/none/mean/float32"], "cpu")

    assert found.outcome is Outcome.WRONG
    assert found.reason == "loss is a _Deferred, not a plain tensor"


def test_patched_timer_is_found_and_put_back() -> None:
    guard, clock = TimerGuard(), time.perf_counter

    check_function(CHEATS["patched_timer"], BY_ID["options/none/mean/float32"], "cpu")

    assert guard.replaced() == ["it replaced time.perf_counter"]
    assert time.perf_counter is clock
    assert guard.replaced() == []


@pytest.mark.parametrize("name", list(HONEST))
@pytest.mark.parametrize(
    "case", [case for case in GRID if case.group == "reports"], ids=lambda case: case.id
)
def test_reported_case_is_right(case: CheckCase, name: str) -> None:
    found = check_function(HONEST[name], case, "cpu")

    assert found.outcome is Outcome.OK, found.reason
    if name != "torch-upcast":
        assert found.notes == ()
    assert found.grade in (Grade.EXACT, Grade.FAIR, Grade.COARSE)


def test_bf16_loss_of_torch_naive_is_poor_and_not_tuned_away() -> None:
    found = check_function(build("torch-naive", None, {}), BY_ID["reports/K22"], "cpu")

    assert (found.worst_output, found.grade) == ("loss", Grade.POOR)
    assert found.relative_l2 is not None
    assert found.relative_l2 > 1e-4


def test_nan_loss_of_an_empty_batch_is_noted() -> None:
    found = check_function(build("torch-naive", None, {}), BY_ID["reports/K01"], "cpu")

    assert found.outcome is Outcome.OK
    assert found.notes == ("nan_on_empty",)


def test_nan_gradients_of_an_empty_batch_are_wrong() -> None:
    def divides(x, weight, target, bias=None, **options):  # type: ignore[no-untyped-def]
        return exact_loss(x, weight, target, bias, reduction="sum") / (target != -100).sum()

    found = check_function(divides, BY_ID["reports/K01"], "cpu")

    assert found.outcome is Outcome.WRONG
    assert "dx is not zero" in (found.reason or "")


def test_option_that_a_contender_lacks_is_unsupported_with_its_reason() -> None:
    checker = GridChecker(Contender.parse("torch-compile-chunked"), "cpu", False)

    found = checker.check(BY_ID["options/bias/none/float32"])

    assert found.outcome is Outcome.UNSUPPORTED
    assert found.reason == "torch-compile-chunked has no reduction_none"


def test_case_that_needs_a_gpu_says_so_on_a_cpu() -> None:
    checker = GridChecker(Contender.parse("torch-naive"), "cpu", False)

    assert checker.why_not(BY_ID["cheats/side-stream"]) == "this case needs a GPU"


def test_own_kernel_is_proved_except_on_a_declared_plain_path() -> None:
    """flce takes torch's own kernels for float64, and says so; every other dtype needs its own."""
    assert names_to_prove(spec_of("flce"), "float64") == ()
    assert names_to_prove(spec_of("flce"), "bfloat16") == spec_of("flce").kernel_names != ()
    assert names_to_prove(spec_of("liger"), "float64") == spec_of("liger").kernel_names != ()
