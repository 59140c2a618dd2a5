"""Rows of a gradient that were never written: too few for an error norm, and found all the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from lossbench.kernels.adapters.torch_plain import build_naive
from lossbench.kernels.catalogue import build
from lossbench.kernels.protocol import LossFunction
from lossbench.service.contract.case import Case
from lossbench.service.contract.contender import Contender
from lossbench.service.contract.words import Pass
from lossbench.worker import bench as bench_module
from lossbench.worker.bench import CaseBench

NAIVE = build_naive(None, {})
RECIPES = ["normal", "unit_normal", "trained", "zipf_labels", "large_logits"]
Checked = Callable[[LossFunction, str], dict[str, Any]]


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> Checked:
    """The check of a loss that takes the place of `flce`."""

    def check(function: LossFunction, case: str) -> dict[str, Any]:
        def planted(name: str, *rest: Any) -> LossFunction:
            return function if name == "flce" else build(name, *rest)

        monkeypatch.setattr(bench_module, "build", planted)
        monkeypatch.setattr(CaseBench, "_memory", lambda self, timed: None)
        bench = CaseBench(Case.parse(case), 0, "cpu", False)
        bench.add_contender("a", Contender.parse("flce@1"), Pass.FORWARD_BACKWARD)
        return bench.check("a", only_bits=False)

    return check


@pytest.mark.parametrize(
    ("output", "rows", "fault"),
    [
        ("dx", slice(-4, None), "4 rows of dx are zero where the truth is not"),
        ("dw", slice(-1, None), "1 rows of dw are zero where the truth is not"),
    ],
)
def test_last_rows_that_were_never_written_are_a_fault(
    checked: Checked, output: str, rows: slice, fault: str
) -> None:
    def without(gradient: Tensor) -> Tensor:
        spoilt = gradient.clone()
        spoilt[rows] = 0
        return spoilt

    def leaves_out(input: Tensor, weight: Tensor, *rest: Any, **options: Any) -> Tensor:
        tensors = {"dx": input * 1, "dw": weight * 1}
        tensors[output].register_hook(without)  # type: ignore[no-untyped-call]
        return NAIVE(tensors["dx"], tensors["dw"], *rest, **options)

    found = checked(leaves_out, "N4096-H8-V1000-bfloat16")

    assert found["faults"] == [fault]
    assert found["outputs"][output]["relative_l2"] < 0.05


class _Filtered(torch.autograd.Function):
    """A mean loss whose backward drops small numbers of softmax - one-hot, as CCE does by tile."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, weight: Tensor, target: Tensor) -> Tensor:
        ctx.save_for_backward(input, weight, target)
        return torch.nn.functional.cross_entropy((input @ weight.t()).float(), target)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> Any:
        input, weight, target = ctx.saved_tensors
        dz = torch.softmax((input @ weight.t()).float(), 1)
        valid = target != -100
        dz[valid, target[valid]] -= 1
        dz[(dz.abs() < torch.finfo(input.dtype).eps / 32) | ~valid[:, None]] = 0
        dz = (dz * upstream / valid.sum()).to(input.dtype)
        return dz @ weight, dz.t() @ input, None


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("recipe", RECIPES)
def test_filter_of_tiny_probabilities_leaves_no_row_out(
    checked: Checked, recipe: str, dtype: str
) -> None:
    def filtered(input: Tensor, weight: Tensor, target: Tensor, *_: Any, **__: Any) -> Tensor:
        loss: Tensor = _Filtered.apply(input, weight, target)  # type: ignore[no-untyped-call]
        return loss

    case = f"N256-H64-V2000-{dtype}-ignored_share=0.25-recipe={recipe}"

    assert checked(filtered, case.replace("-recipe=normal", ""))["faults"] == []


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("recipe", RECIPES)
def test_honest_gradients_have_no_row_left_out(checked: Checked, recipe: str, dtype: str) -> None:
    case = f"N512-H64-V2000-{dtype}-recipe={recipe}-softcap=5.0".replace("-recipe=normal", "")

    assert checked(NAIVE, case)["faults"] == []
