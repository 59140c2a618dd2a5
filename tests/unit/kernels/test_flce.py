"""flce beyond the option grid: plans, validation and edges."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from lossbench.kernels.flce.v1.op import linear_cross_entropy
from lossbench.kernels.flce.v1.plan import make_plan
from lossbench.kernels.inputs import make_inputs
from lossbench.kernels.problem import Problem, forward_backward
from lossbench.kernels.reference import reference, relative_errors


def small(**options: Any) -> tuple[Tensor, Tensor, Tensor]:
    inputs = make_inputs(Problem(12, 8, 20, "float32", **options), "cpu", 0).fresh()
    return inputs.x, inputs.weight, inputs.target


@pytest.mark.parametrize(
    ("shape", "dtype", "chunk_rows", "expected_rows", "float32_sum"),
    [
        # 2NV = 2.1e9 <= 4VH: one chunk.
        ((8192, 4096, 128256), torch.bfloat16, None, 8192, False),
        # 2NV = 8.4e9 > max(4VH, 2 GiB): eight chunks of 4096.
        ((32768, 2048, 128000), torch.bfloat16, None, 4096, True),
        # 33000 / 8 = 4125 rows, up to a multiple of 128.
        ((33000, 2048, 128000), torch.bfloat16, None, 4224, True),
        # Small logits fit in 2 GiB whatever H is.
        ((32768, 64, 32000), torch.bfloat16, None, 32768, False),
        ((100, 64, 500), torch.bfloat16, 30, 30, True),
        ((100, 64, 500), torch.bfloat16, 300, 100, False),
        # float16 sums in float32 even in one product: 65504 is soon passed.
        ((100, 64, 500), torch.float16, None, 100, True),
        ((100, 64, 500), torch.float32, 30, 30, False),
        ((0, 64, 500), torch.float32, None, 1, False),
    ],
)
def test_plan_shape_gives_its_chunks(
    shape: tuple[int, int, int],
    dtype: torch.dtype,
    chunk_rows: int | None,
    expected_rows: int,
    float32_sum: bool,
) -> None:
    plan = make_plan(*shape, dtype, chunk_rows)

    assert plan.chunk_rows == expected_rows
    assert plan.sum_in_float32 is float32_sum
    assert sum(rows.stop - rows.start for rows in plan.rows()) == shape[0]
    assert len(list(plan.rows())) == plan.chunks


def test_plan_workspace_is_the_larger_of_forward_and_backward() -> None:
    dx, dw = 8192 * 4096, 128256 * 4096

    assert make_plan(8192, 4096, 128256, torch.bfloat16).workspace_bytes == (
        2 * 8192 * 128256 + 2 * dx
    )
    assert make_plan(8192, 4096, 128256, torch.bfloat16, 4096).workspace_bytes == 4 * dx + 4 * dw


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"label_smoothing": 1.0}, "label_smoothing=1.0: must be in"),
        ({"softcap": -1.0}, "softcap=-1.0: must be positive and finite"),
        ({"logit_scale": 0.0}, "logit_scale=0.0: must be finite and not 0"),
        ({"lse_square_scale": float("inf")}, "lse_square_scale=inf: must be finite"),
        ({"reduction": "max"}, "reduction='max': must be 'none', 'mean' or 'sum'"),
        ({"chunk_rows": 0}, "chunk_rows=0: must be >= 1"),
        ({"bias": torch.zeros(3)}, r"bias has shape \(3,\): must be \(20,\)"),
        ({"bias": torch.zeros(20).half()}, "bias has dtype torch.float16, input torch.float32"),
        ({"class_weight": torch.zeros(3)}, r"class_weight has shape \(3,\): must be \(20,\)"),
        ({"weight": torch.zeros(20, 9)}, r"input has shape \(12, 8\): must be \(\.\.\., 9\)"),
        ({"weight": torch.zeros(0, 8)}, r"weight has shape \(0, 8\): must be \(V, H\) with V > 0"),
        ({"target": torch.zeros(11).long()}, r"target has shape \(11,\): must be \(12,\)"),
        ({"target": torch.zeros(12)}, "target has dtype torch.float32: must be integers"),
        ({"target": torch.full((12,), 20)}, r"target has label 20: must be in \[0, 20\) or -100"),
        ({"target": torch.full((12,), -1)}, "target has label -1"),
    ],
)
def test_flce_bad_argument_is_named_with_its_value(change: dict[str, Any], message: str) -> None:
    x, weight, target = small()
    arguments = {"input": x, "weight": weight, "target": target, **change}

    with pytest.raises(ValueError, match=message):
        linear_cross_entropy(**arguments)


def test_flce_leading_dimensions_are_those_of_the_target() -> None:
    x, weight, target = small()
    flat = linear_cross_entropy(x, weight, target, reduction="none")

    shaped = linear_cross_entropy(
        x.reshape(3, 4, 8), weight, target.reshape(3, 4), reduction="none"
    )

    assert shaped.shape == (3, 4)
    assert torch.equal(shaped.reshape(-1), flat)


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8])
def test_flce_narrow_integer_labels_are_accepted(dtype: torch.dtype) -> None:
    x, weight, target = small()

    loss = linear_cross_entropy(x, weight, target.to(dtype))

    assert torch.equal(loss, linear_cross_entropy(x, weight, target))


def test_flce_chunk_rows_change_nothing_but_rounding() -> None:
    problem = Problem(50, 16, 60, "float64", bias=True, ignored_share=0.3)
    inputs = make_inputs(problem, "cpu", 0)
    truth = reference(inputs, problem)

    for chunk_rows in (1, 3, 49, 50, 1000):
        outputs = forward_backward(
            lambda *args, rows=chunk_rows, **options: linear_cross_entropy(
                *args, chunk_rows=rows, **options
            ),
            inputs,
        )
        assert max(relative_errors(outputs, truth).values()) <= 1e-13


def test_flce_single_token_and_single_class_are_right() -> None:
    one = torch.ones(1, 4, requires_grad=True)

    loss = linear_cross_entropy(one, torch.ones(1, 4), torch.zeros(1, dtype=torch.int64))
    loss.backward()

    assert loss.item() == 0
    assert one.grad is not None
    assert not one.grad.any()


def test_flce_column_major_weight_is_right_and_its_gradient_has_its_shape() -> None:
    x, weight, target = small()
    transposed = weight.detach().t().contiguous().t().requires_grad_()

    linear_cross_entropy(x, transposed, target, chunk_rows=5).backward()
    linear_cross_entropy(x.detach(), weight, target, chunk_rows=5).backward()

    assert transposed.grad is not None
    assert weight.grad is not None
    torch.testing.assert_close(transposed.grad, weight.grad)


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_flce_float16_small_gradients_survive_a_gradient_scaler(reduction: str) -> None:
    problem = Problem(4096, 8, 64, "float16")
    inputs = make_inputs(problem, "cpu", 0)
    leaves = inputs.fresh()

    loss = linear_cross_entropy(leaves.x, leaves.weight, leaves.target, reduction=reduction)  # type: ignore[arg-type]
    # 1/N = 2.4e-4 times p = 1/64 is below float16's normal range before the scaler's factor.
    (loss.mean() * 4096.0).backward()

    truth = reference(inputs, problem)
    assert truth.dx is not None
    assert leaves.x.grad is not None
    error = (leaves.x.grad.double() / 4096 - truth.dx).norm() / truth.dx.norm()
    assert float(error) <= 1.5e-3


def test_flce_float16_common_target_does_not_overflow_the_weight_gradient() -> None:
    x = torch.full((70000, 2), 1.0, dtype=torch.float16)
    weight = torch.zeros(4, 2, dtype=torch.float16, requires_grad=True)

    linear_cross_entropy(x, weight, torch.zeros(70000, dtype=torch.int64)).backward()

    assert weight.grad is not None
    torch.testing.assert_close(weight.grad[0].float(), torch.full((2,), -0.75))


def test_flce_saved_gradients_are_not_changed_by_two_backwards() -> None:
    x, weight, target = small()
    loss = linear_cross_entropy(x, weight, target)

    first = torch.autograd.grad(loss, [x, weight], torch.tensor(3.0), retain_graph=True)
    kept = [gradient.clone() for gradient in first]
    second = torch.autograd.grad(loss, [x, weight], torch.tensor(1.0))

    for gradient, copy, other in zip(first, kept, second, strict=True):
        assert torch.equal(gradient, copy)
        torch.testing.assert_close(gradient, 3 * other)


def test_flce_second_derivative_is_refused() -> None:
    x, weight, target = small()
    loss = linear_cross_entropy(x, weight, target)

    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.autograd.grad(loss, x, create_graph=True)


def test_flce_frozen_weight_makes_no_buffer_of_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    from lossbench.kernels.flce.v1 import chunks

    def refuse(*_: object) -> Tensor:
        raise AssertionError("the weight gradient's product ran")

    monkeypatch.setattr(chunks, "_add_weight_gradient", refuse)
    x, weight, target = small()

    linear_cross_entropy(x, weight.detach(), target).backward()

    assert x.grad is not None


def test_flce_without_triton_takes_the_torch_path(monkeypatch: pytest.MonkeyPatch) -> None:
    from lossbench.kernels.flce.v1 import chunks

    monkeypatch.setattr(chunks, "triton_cross_entropy", None)

    assert not chunks.uses_triton(torch.zeros(1))
    assert not chunks.uses_triton(torch.zeros(1, dtype=torch.bfloat16))
