"""Every contender that runs on a CPU against the float64 reference, over its declared options."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from lossbench.kernels.catalogue import build, spec_of
from lossbench.kernels.inputs import make_inputs
from lossbench.kernels.problem import Problem, forward_backward
from lossbench.kernels.reference import reference, relative_errors

CONTENDERS: list[tuple[str, dict[str, Any]]] = [
    ("torch-naive", {}),
    ("torch-upcast", {}),
    ("torch-compile", {}),
    ("torch-compile-chunked", {"chunk_rows": 16}),
    ("torch-compile-chunked", {"chunk_rows": 16, "split": "even"}),
    ("flce", {}),
    ("flce", {"chunk_rows": 7}),
]
CASES: list[dict[str, Any]] = [
    {},
    {"bias": True},
    {"class_weight": True},
    {"ignored_share": 0.4},
    {"ignore_index": 5, "ignored_share": 0.2},
    {"label_smoothing": 0.1, "bias": True},
    {"softcap": 1.5},
    {"logit_scale": 0.25},
    {"lse_square_scale": 0.01, "ignored_share": 0.2},
    {"reduction": "sum"},
    {"reduction": "none", "ignored_share": 0.2},
    {"frozen": "input"},
    {"frozen": "weight", "bias": True},
    {"recipe": "trained"},
    {
        "bias": True,
        "class_weight": True,
        "label_smoothing": 0.2,
        "softcap": 2.0,
        "logit_scale": 0.5,
        "lse_square_scale": 0.02,
        "ignored_share": 0.3,
    },
]
# Twice the rounding of torch itself in that dtype at this size.
TOLERANCE = {"float64": 1e-13, "float32": 2e-6, "bfloat16": 8e-3, "float16": 2.5e-3}


@pytest.fixture(autouse=True)
def _uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    def identity(function: Callable[..., Any], **_: object) -> Callable[..., Any]:
        return function

    # The arithmetic is the same; compiling it is test_compiled_chunks_..._agree's business.
    monkeypatch.setattr(torch, "compile", identity)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
@pytest.mark.parametrize(("name", "params"), CONTENDERS)
def test_contender_declared_options_match_the_reference(
    name: str, params: dict[str, Any], dtype: str
) -> None:
    function = build(name, None, params)
    checked = 0
    for case in CASES:
        # 50 rows leave a ragged chunk of 16 and of 7; 131 columns are odd.
        problem = Problem(50, 24, 131, dtype, upstream="random", **case)
        if not problem.options_used <= spec_of(name).options:
            continue
        inputs = make_inputs(problem, "cpu", 0)
        errors = relative_errors(forward_backward(function, inputs), reference(inputs, problem))
        loss_tolerance = 0.02 if name == "torch-naive" else TOLERANCE[dtype]
        assert errors.pop("loss") <= loss_tolerance, case
        assert max(errors.values()) <= TOLERANCE[dtype], (case, errors)
        checked += 1
    assert checked >= len(CASES) - 1


@pytest.mark.parametrize(("name", "params"), CONTENDERS)
def test_contender_under_no_grad_gives_the_loss_without_a_graph(
    name: str, params: dict[str, Any]
) -> None:
    problem = Problem(20, 8, 30, "float32")
    inputs = make_inputs(problem, "cpu", 0)

    with torch.no_grad():
        loss = inputs.fresh().loss(build(name, None, params))

    assert not loss.requires_grad
    assert float(loss) == pytest.approx(float(reference(inputs, problem).loss), rel=1e-6)


def test_naive_loss_in_bf16_is_rounded_to_bf16_and_upcast_is_not() -> None:
    inputs = make_inputs(Problem(20, 8, 30, "bfloat16"), "cpu", 0)

    assert inputs.loss(build("torch-naive", None, {})).dtype is torch.bfloat16
    assert inputs.loss(build("torch-upcast", None, {})).dtype is torch.float32


@pytest.mark.parametrize("name", ["torch-naive", "torch-upcast"])
def test_torch_no_valid_label_is_nan_with_zero_gradients(name: str) -> None:
    inputs = make_inputs(Problem(6, 8, 30, "float32", ignored_share=1.0), "cpu", 0)

    outputs = forward_backward(build(name, None, {}), inputs)

    assert torch.isnan(outputs.loss)
    assert outputs.dx is not None
    assert not outputs.dx.any()


def test_chunked_bias_gradient_over_many_chunks_is_as_exact_as_torch() -> None:
    """Summed in bfloat16 over 64 chunks it would be four times as far off as torch."""
    problem = Problem(1024, 32, 500, dtype="bfloat16", bias=True)
    inputs = make_inputs(problem, "cpu", 3)
    truth = reference(inputs, problem)

    def error(name: str, params: dict[str, Any]) -> float:
        outputs = forward_backward(build(name, None, params), inputs)
        assert outputs.db is not None
        assert outputs.db.dtype is torch.bfloat16
        return relative_errors(outputs, truth)["db"]

    torchs_own = error("torch-naive", {})
    assert error("torch-compile-chunked", {"chunk_rows": 16}) < 1.5 * torchs_own
