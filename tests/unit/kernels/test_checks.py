"""The correctness grid: what it covers, and that its truth is the reference."""

from __future__ import annotations

from dataclasses import replace
from fnmatch import fnmatchcase

import pytest
import torch

from lossbench.kernels.adapters.torch_plain import build_upcast
from lossbench.kernels.catalogue import CATALOGUE
from lossbench.kernels.checks.calls import CALLS, observe
from lossbench.kernels.checks.cases import CheckCase, inputs_of, widened
from lossbench.kernels.checks.grid import BY_ID, GRID
from lossbench.kernels.checks.truth import exact_loss
from lossbench.kernels.entries.known_faults import KNOWN_FAULTS
from lossbench.kernels.kernel_spec import OPTIONS
from lossbench.kernels.reference import reference

WITH_REFERENCE = [
    case
    for case in GRID
    if case.call == "plain"
    and not case.needs_gpu
    and case.problem.tokens * case.problem.vocab < 2**18
]


@pytest.mark.parametrize("case", WITH_REFERENCE, ids=lambda case: case.id)
def test_truth_of_a_case_is_the_blocked_reference(case: CheckCase) -> None:
    inputs = widened(inputs_of(case, "cpu"))
    expected = reference(inputs, inputs.problem)

    seen = observe(exact_loss, case, inputs)

    assert seen.faults == []
    for name, value in seen.outputs.items():
        want = getattr(expected, name)
        assert value is not None
        torch.testing.assert_close(value, want, rtol=1e-9, atol=1e-13)


def test_grid_crosses_every_option_with_every_reduction_and_dtype() -> None:
    for option in OPTIONS - {"reduction_sum", "reduction_none"}:
        for reduction in ("mean", "sum", "none"):
            for dtype in ("float32", "bfloat16", "float16"):
                case = BY_ID[f"options/{option}/{reduction}/{dtype}"]
                assert option in case.problem.options_used
                assert (case.problem.reduction, case.problem.dtype) == (reduction, dtype)


def test_grid_ids_are_unique_and_every_way_of_calling_is_asked() -> None:
    assert len(BY_ID) == len(GRID)
    assert {case.call for case in GRID} == set(CALLS)
    assert {case.group for case in GRID if case.quick} >= {"options", "sizes", "calls", "reports"}


@pytest.mark.parametrize("layout", ["x_columns", "x_transposed", "weight_transposed"])
def test_layout_keeps_the_values_and_changes_the_strides(layout: str) -> None:
    case = BY_ID[f"layouts/{layout}/float32"]
    plain = inputs_of(replace(case, layout="contiguous"), "cpu")

    laid_out = inputs_of(case, "cpu")

    assert torch.equal(laid_out.x, plain.x)
    assert torch.equal(laid_out.weight, plain.weight)
    strides = (laid_out.x.stride(), laid_out.weight.stride())
    assert strides != (plain.x.stride(), plain.weight.stride())


def test_input_that_is_written_to_is_a_fault() -> None:
    case = BY_ID["options/none/mean/float32"]
    right = build_upcast(None, {})

    def writes(x, weight, target, bias=None, **options):  # type: ignore[no-untyped-def]
        loss = right(x, weight, target, bias, **options)
        x.data.mul_(2)
        return loss

    assert "it changed its input" in observe(writes, case, inputs_of(case, "cpu")).faults


@pytest.mark.parametrize(
    "case",
    ["no_grad", "two_backwards", "micro_batches", "autocast", "tied", "nonleaf"],
)
def test_label_that_is_written_to_is_a_fault_in_every_way_of_calling(case: str) -> None:
    chosen = next(known for known in GRID if known.call == case)
    right = build_upcast(None, {})

    def writes(x, weight, target, bias=None, **options):  # type: ignore[no-untyped-def]
        loss = right(x, weight, target.clone(), bias, **options)
        target.zero_()
        return loss

    assert "it changed its target" in observe(writes, chosen, inputs_of(chosen, "cpu")).faults


def test_missing_gradient_and_wrong_dtype_are_faults() -> None:
    case = BY_ID["options/none/mean/bfloat16"]

    def detached(x, weight, target, bias=None, **options):  # type: ignore[no-untyped-def]
        return exact_loss(x.float(), weight.detach().float(), target, bias, **options)

    assert observe(detached, case, inputs_of(case, "cpu")).faults == ["dw is missing"]


def test_known_faults_name_kernels_cases_of_the_grid_and_a_source() -> None:
    for fault in KNOWN_FAULTS:
        assert fault.kernel in CATALOGUE
        assert fault.source
        for pattern in fault.cases:
            assert any(fnmatchcase(case.id, pattern) for case in GRID), pattern
