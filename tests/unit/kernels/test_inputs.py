"""Inputs by recipe: the same for the same seed, and with the statistics that they promise."""

from __future__ import annotations

import math
from dataclasses import fields

import pytest
import torch

from lossbench.kernels.inputs import make_inputs
from lossbench.kernels.problem import Inputs, Problem


def logits(inputs: Inputs) -> torch.Tensor:
    scale = inputs.problem.logit_scale or 1.0
    return scale * (inputs.x.double() @ inputs.weight.double().t())


def test_inputs_same_seed_are_equal_and_another_seed_differs() -> None:
    problem = Problem(32, 16, 40, "float32", bias=True, class_weight=True, ignored_share=0.25)

    one, two, other = (make_inputs(problem, "cpu", seed) for seed in (1, 1, 2))

    for field in fields(Inputs):
        value = getattr(one, field.name)
        if isinstance(value, torch.Tensor):
            assert torch.equal(value, getattr(two, field.name))
    assert not torch.equal(one.x, other.x)
    assert not torch.equal(one.target, other.target)


@pytest.mark.parametrize(
    ("recipe", "deviation"),
    [("normal", 1.0), ("zipf_labels", 1.0), ("unit_normal", 8.0), ("large_logits", 16.0)],
)
def test_inputs_recipe_has_its_logit_deviation(recipe: str, deviation: float) -> None:
    inputs = make_inputs(Problem(256, 64, 500, "float32", recipe=recipe), "cpu", 0)  # type: ignore[arg-type]

    assert float(logits(inputs).std()) == pytest.approx(deviation, rel=0.05)
    assert float((inputs.x == 0).double().mean()) == 0


@pytest.mark.parametrize(
    ("hidden", "vocab", "logit_scale", "dtype"),
    [
        (64, 1000, None, "float32"),
        (128, 8192, None, "bfloat16"),
        (256, 32000, None, "bfloat16"),
        (256, 4096, 0.0625, "float32"),
    ],
)
def test_inputs_trained_give_the_target_a_median_probability_of_about_0_3(
    hidden: int, vocab: int, logit_scale: float | None, dtype: str
) -> None:
    problem = Problem(512, hidden, vocab, dtype, recipe="trained", logit_scale=logit_scale)
    inputs = make_inputs(problem, "cpu", 0)

    probability = torch.softmax(logits(inputs), dim=1).gather(1, inputs.target[:, None])

    assert 0.22 <= float(probability.median()) <= 0.38


def test_inputs_zipf_labels_give_half_the_mass_to_the_square_root_of_the_vocabulary() -> None:
    target = make_inputs(Problem(20000, 4, 10000, recipe="zipf_labels"), "cpu", 0).target

    share = float((target < math.isqrt(10000)).double().mean())

    assert share == pytest.approx(0.5, abs=0.02)
    assert int(target.min()) == 0
    assert int(target.max()) < 10000


@pytest.mark.parametrize(("share", "expected"), [(0.0, 0), (0.3, 30), (1.0, 100)])
def test_inputs_ignored_share_ignores_that_many_labels(share: float, expected: int) -> None:
    inputs = make_inputs(Problem(100, 8, 50, ignored_share=share), "cpu", 0)

    assert int((inputs.target == -100).sum()) == expected


def test_inputs_class_weight_is_exact_in_bf16() -> None:
    weight = make_inputs(Problem(4, 8, 500, class_weight=True), "cpu", 0).class_weight

    assert weight is not None
    assert torch.equal(weight, weight.bfloat16().float())
    assert float(weight.min()) >= 0.5
    assert float(weight.max()) <= 1.5


def test_inputs_upstream_has_the_shape_of_the_loss() -> None:
    scalar = make_inputs(Problem(6, 8, 5, upstream="random"), "cpu", 0).upstream
    rows = make_inputs(Problem(6, 8, 5, upstream="random", reduction="none"), "cpu", 0).upstream
    ones = make_inputs(Problem(6, 8, 5, reduction="none"), "cpu", 0).upstream

    assert scalar.shape == ()
    assert 0.5 <= float(scalar) <= 1.5
    assert rows.shape == (6,)
    assert torch.equal(ones, torch.ones(6))


@pytest.mark.parametrize("frozen", [None, "input", "weight"])
def test_inputs_fresh_are_new_leaves_that_need_what_the_problem_says(frozen: str | None) -> None:
    inputs = make_inputs(Problem(4, 8, 5, bias=True, frozen=frozen), "cpu", 0)  # type: ignore[arg-type]

    leaves = inputs.fresh()

    assert leaves.x.requires_grad is (frozen != "input")
    assert leaves.weight.requires_grad is (frozen != "weight")
    assert leaves.bias is not None
    assert leaves.bias.requires_grad
    assert leaves.x.data_ptr() != inputs.x.data_ptr()
    assert torch.equal(leaves.x, inputs.x)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden": 0}, "hidden=0: must be >= 1"),
        ({"dtype": "int8"}, "dtype='int8': must be one of"),
        ({"reduction": "max"}, "reduction='max': must be one of"),
        ({"ignored_share": 1.5}, "ignored_share=1.5: must be in"),
        ({"softcap": 0.0}, "softcap=0.0: must be > 0"),
    ],
)
def test_problem_bad_field_is_named(change: dict[str, object], message: str) -> None:
    arguments: dict[str, object] = {"tokens": 4, "hidden": 8, "vocab": 5, **change}

    with pytest.raises(ValueError, match=message):
        Problem(**arguments)  # type: ignore[arg-type]


def test_problem_options_used_names_what_differs_from_the_plain_call() -> None:
    plain = Problem(4, 8, 5)
    busy = Problem(4, 8, 5, bias=True, ignored_share=0.5, reduction="none", frozen="weight")

    assert plain.options_used == frozenset()
    assert busy.options_used == {"bias", "ignore_index", "reduction_none", "frozen_weight"}
