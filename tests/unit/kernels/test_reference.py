"""The float64 reference against torch's autograd in float64, over the option grid."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
import torch

from lossbench.kernels.adapters.torch_plain import build_upcast
from lossbench.kernels.inputs import make_inputs
from lossbench.kernels.problem import Inputs, Outputs, Problem, forward_backward
from lossbench.kernels.reference import Reference, reference, relative_errors

OPTIONS: list[dict[str, Any]] = [
    {},
    {"bias": True},
    {"class_weight": True},
    {"label_smoothing": 0.1},
    {"softcap": 1.5},
    {"logit_scale": 0.25},
    {"lse_square_scale": 0.01},
    {"ignore_index": 3},
    {"frozen": "input"},
    {"frozen": "weight"},
    {"recipe": "large_logits"},
    {"class_weight": True, "label_smoothing": 0.2, "softcap": 2.0, "bias": True},
    {"logit_scale": -2.0, "softcap": 2.0, "lse_square_scale": 0.02, "label_smoothing": 0.1},
]


def torch_in_float64(inputs: Inputs) -> Outputs:
    problem = replace(inputs.problem, dtype="float64")
    wide = Inputs(
        problem,
        inputs.x.double(),
        inputs.weight.double(),
        inputs.target,
        None if inputs.bias is None else inputs.bias.double(),
        None if inputs.class_weight is None else inputs.class_weight.double(),
        inputs.upstream.double(),
    )
    return forward_backward(build_upcast(None, {}), wide)


@pytest.mark.parametrize(
    ("options", "reduction"), list(itertools.product(OPTIONS, ("mean", "sum", "none")))
)
def test_reference_option_grid_equals_torch_in_float64(
    options: dict[str, Any], reduction: str
) -> None:
    # 37 rows and 101 columns are multiples of neither block: the last blocks are ragged.
    problem = Problem(
        37,
        12,
        101,
        "bfloat16",
        ignored_share=0.3,
        upstream="random",
        reduction=reduction,  # type: ignore[arg-type]
        **options,
    )
    inputs = make_inputs(problem, "cpu", 0)

    truth = reference(inputs, problem, row_block=16, vocab_block=32)

    errors = relative_errors(torch_in_float64(inputs), truth)
    assert max(errors.values()) <= 1e-12
    assert (truth.dx is None) == (problem.frozen == "input")
    assert (truth.dw is None) == (problem.frozen == "weight")


def test_reference_class_weight_and_z_loss_mean_each_have_their_denominator() -> None:
    problem = Problem(20, 8, 30, "float64", class_weight=True, lse_square_scale=0.1)
    inputs = make_inputs(problem, "cpu", 0)
    without = replace(problem, lse_square_scale=0.0)
    z = inputs.x @ inputs.weight.t()

    difference = reference(inputs, problem).loss - reference(inputs, without).loss

    assert float(difference) == pytest.approx(0.1 * float(torch.logsumexp(z, 1).square().mean()))


@pytest.mark.parametrize("tokens", [0, 5])
def test_reference_no_valid_label_is_zero(tokens: int) -> None:
    problem = Problem(tokens, 8, 11, "float32", bias=True, ignored_share=1.0)

    truth = reference(make_inputs(problem, "cpu", 0), problem)

    assert float(truth.loss) == 0
    for gradient, shape in ((truth.dx, (tokens, 8)), (truth.dw, (11, 8)), (truth.db, (11,))):
        assert gradient is not None
        assert gradient.shape == shape
        assert not gradient.any()


def test_reference_label_out_of_range_is_refused() -> None:
    problem = Problem(4, 8, 11, "float32")
    inputs = make_inputs(problem, "cpu", 0)
    inputs.target[2] = 11

    with pytest.raises(ValueError, match="neither in the vocabulary nor ignore_index"):
        reference(inputs, problem)


def test_reference_masked_classes_have_zero_gradient() -> None:
    problem = Problem(6, 8, 12, "float32", bias=True)
    inputs = make_inputs(problem, "cpu", 0)
    assert inputs.bias is not None
    inputs.bias[1::3] = -torch.inf
    inputs.target.remainder_(4).mul_(3)

    truth = reference(inputs, problem, vocab_block=5)

    assert truth.db is not None
    assert torch.isfinite(truth.loss)
    assert not truth.db[1::3].any()
    assert truth.db[0::3].any()


def test_relative_errors_missing_gradient_is_infinitely_wrong() -> None:
    ones = torch.ones(3, dtype=torch.float64)
    truth = Reference(ones.sum(), ones, ones, None)

    errors = relative_errors(Outputs(ones.sum(), None, ones * 2, None), truth)

    assert errors == {"loss": 0.0, "dx": float("inf"), "dw": 1.0}
