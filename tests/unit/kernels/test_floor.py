"""The floor: the right products, with the true dZ, on valid rows only."""

from __future__ import annotations

import pytest
import torch

from lossbench.kernels.floor import Floor, floor_products
from lossbench.kernels.inputs import make_inputs
from lossbench.kernels.problem import Problem
from lossbench.kernels.reference import reference


@pytest.mark.parametrize(
    ("pass_name", "gradients_in_forward", "frozen", "expected"),
    [
        ("forward", False, None, ("logits",)),
        ("forward", True, None, ("logits", "dx", "dw")),
        ("backward", False, None, ("dx", "dw")),
        ("backward", True, None, ()),
        ("forward_backward", False, None, ("logits", "dx", "dw")),
        ("forward_backward", True, "weight", ("logits", "dx")),
        ("forward_backward", True, "input", ("logits", "dw")),
    ],
)
def test_floor_products_of_a_pass_are_those_it_cannot_do_without(
    pass_name: str, gradients_in_forward: bool, frozen: str | None, expected: tuple[str, ...]
) -> None:
    assert floor_products(pass_name, gradients_in_forward, frozen) == expected


def test_floor_unknown_pass_is_refused() -> None:
    with pytest.raises(ValueError, match="pass='full': must be forward"):
        floor_products("full", False)


@pytest.mark.parametrize(
    "problem",
    [
        Problem(50, 16, 101, "float64"),
        Problem(50, 16, 101, "float64", ignored_share=0.4, bias=True, softcap=2.0),
        Problem(50, 16, 101, "float64", class_weight=True, lse_square_scale=0.1, upstream="random"),
        Problem(50, 16, 101, "float64", reduction="none", upstream="random", ignored_share=0.2),
        Problem(50, 16, 101, "float64", reduction="sum", label_smoothing=0.1, logit_scale=0.5),
    ],
)
def test_floor_outputs_are_the_gradients_of_the_op(problem: Problem) -> None:
    inputs = make_inputs(problem, "cpu", 0)
    truth = reference(inputs, problem)
    valid = inputs.target != problem.ignore_index
    floor = Floor(inputs)

    floor.run("forward_backward")

    assert floor.dz.shape == (int(valid.sum()), 101)
    assert truth.dx is not None
    torch.testing.assert_close(floor._dx, truth.dx[valid], rtol=1e-10, atol=1e-14)
    torch.testing.assert_close(floor._dw, truth.dw, rtol=1e-10, atol=1e-14)


def test_floor_closed_holds_no_memory() -> None:
    floor = Floor(make_inputs(Problem(8, 4, 10, "float32"), "cpu", 0))

    floor.close()

    assert floor.dz.numel() == 0


def test_floor_no_valid_row_runs() -> None:
    floor = Floor(make_inputs(Problem(8, 4, 10, "float32", ignored_share=1.0), "cpu", 0))

    floor.run("forward_backward")

    assert floor.dz.shape == (0, 10)
