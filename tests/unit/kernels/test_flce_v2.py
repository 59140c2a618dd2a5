"""flce version 2 on the CPU: every plan is right, and a backward leaves nothing behind."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from lossbench.kernels.flce.v2 import op
from lossbench.kernels.flce.v2.loss import linear_cross_entropy
from lossbench.kernels.flce.v2.module import LinearCrossEntropyLoss, LossOptions
from lossbench.kernels.flce.v2.op import Tuning
from lossbench.kernels.flce.v2.plan import Plan, Sizes
from lossbench.kernels.inputs import make_inputs
from lossbench.kernels.problem import Problem, forward_backward
from lossbench.kernels.reference import reference, relative_errors

ALL = {
    "bias": True,
    "class_weight": True,
    "label_smoothing": 0.2,
    "softcap": 2.0,
    "logit_scale": 0.5,
    "lse_square_scale": 0.02,
    "ignored_share": 0.3,
}
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "bias": {"bias": True, "ignored_share": 0.3},
    "class_weight": {"class_weight": True},
    "smoothing": {"label_smoothing": 0.1},
    "softcap": {"softcap": 0.5},
    "logit_scale": {"logit_scale": 0.25},
    "z_loss": {"lse_square_scale": 0.01},
    "sum": {"reduction": "sum"},
    "none": {"reduction": "none", "ignored_share": 0.2},
    "all": ALL,
    "all_none": ALL | {"reduction": "none"},
    "all_ignored": {"ignored_share": 1.0},
    "frozen_weight": {"frozen": "weight", "bias": True},
    "frozen_input": {"frozen": "input"},
}
PLANS = {
    "one pass": Tuning(),
    "token chunks": Tuning(chunk_rows=9),
    "two sweeps": Tuning(chunk_rows=7, block=40),
    "cast outside": Tuning(cast="outside"),
}
LIMITS = {"float64": 1e-14, "float32": 2e-6, "bfloat16": 8e-3, "float16": 2e-3}


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("name", OPTIONS)
def test_every_plan_agrees_with_the_reference(name: str, plan: str, dtype: str) -> None:
    problem = Problem(20, 16, 131, dtype, upstream="random", **OPTIONS[name])
    inputs = make_inputs(problem, "cpu", 0)
    outputs = forward_backward(
        lambda *a, **k: linear_cross_entropy(*a, tuning=PLANS[plan], **k), inputs
    )
    errors = relative_errors(outputs, reference(inputs, problem))
    assert max(errors.values()) < LIMITS[dtype], errors


@pytest.mark.parametrize("kept", [0, 128, 256, 300])
def test_two_sweeps_with_rows_kept_give_what_one_pass_gives(
    kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, weight, target = torch.randn(300, 8), torch.randn(520, 8), torch.randint(0, 520, (300,))
    target[::7] = -100
    right = gradients(x, weight, target)

    def plan_of(sizes: Sizes, _: Tuning) -> Plan:
        return Plan("two sweeps", sizes, 64, 200, kept)

    monkeypatch.setattr(op, "plan_of", plan_of)
    for one, other in zip(right, gradients(x, weight, target), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-7)


def gradients(
    x: torch.Tensor, weight: torch.Tensor, target: torch.Tensor, **settings: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    x, weight = x.clone().requires_grad_(), weight.clone().requires_grad_()
    linear_cross_entropy(x, weight, target, **settings).backward()  # type: ignore[union-attr]
    assert x.grad is not None
    assert weight.grad is not None
    return x.grad, weight.grad


def small() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    x, weight = torch.randn(6, 8, requires_grad=True), torch.randn(11, 8, requires_grad=True)
    return x, weight, torch.tensor([1, 2, 3, -100, 5, 6])


def test_second_backward_of_a_kept_graph_gives_the_same_gradient() -> None:
    x, weight, target = small()
    loss = linear_cross_entropy(x, weight, target) * 3.0
    first = torch.autograd.grad(loss, (x, weight), retain_graph=True)
    kept = [gradient.clone() for gradient in first]
    second = torch.autograd.grad(loss, (x, weight))
    for before, now, again in zip(kept, first, second, strict=True):
        assert torch.equal(before, now), "the second backward changed what the first handed out"
        assert torch.equal(before, again)


def test_accumulated_gradients_are_sums() -> None:
    x, weight, target = small()
    for _ in range(2):
        linear_cross_entropy(x, weight, target).backward()
    once = torch.autograd.grad(linear_cross_entropy(x, weight, target), weight)[0]
    assert weight.grad is not None
    torch.testing.assert_close(weight.grad, 2 * once)


def test_inputs_are_left_as_they_were() -> None:
    x, weight, target = small()
    before = [tensor.detach().clone() for tensor in (x, weight, target)]
    (linear_cross_entropy(x, weight, target) * 2.0).backward()
    for one, other in zip(before, (x, weight, target), strict=True):
        assert torch.equal(one, other.detach())


def test_second_derivative_is_refused() -> None:
    x, weight, target = small()
    with pytest.raises(RuntimeError, match="create_graph"):
        torch.autograd.grad(linear_cross_entropy(x, weight, target), x, create_graph=True)


def test_metrics_are_those_of_the_logits() -> None:
    x, weight, target = small()
    loss, metrics = linear_cross_entropy(x, weight, target, lse_square_scale=0.1, with_metrics=True)
    logits, valid = (x @ weight.t()).detach(), target != -100
    z_loss = 0.1 * torch.logsumexp(logits, 1)[valid].square().mean()
    torch.testing.assert_close(metrics.z_loss, z_loss)
    right = (logits.argmax(1) == target)[valid].float().mean()
    assert metrics.token_accuracy == pytest.approx(float(right))
    assert not metrics.z_loss.requires_grad
    assert loss.requires_grad


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_compact_leaves_ignored_tokens_out_and_changes_nothing(reduction: str) -> None:
    x, weight, target = small()
    found = []
    for compact in (False, True):
        loss = linear_cross_entropy(
            x,
            weight,
            target,
            reduction=reduction,
            compact=compact,  # type: ignore[call-overload]
        )
        found.append((loss.detach(), *torch.autograd.grad(loss.sum(), (x, weight))))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


def test_sizes_of_nothing_and_of_one_work() -> None:
    weight = torch.randn(5, 4, requires_grad=True)
    for tokens in (0, 1):
        x = torch.randn(tokens, 4, requires_grad=True)
        loss = linear_cross_entropy(x, weight, torch.zeros(tokens, dtype=torch.int64))
        loss.backward()
        assert bool(torch.isfinite(loss))
    assert weight.grad is not None


def test_no_gradient_is_made_where_none_is_wanted() -> None:
    x, weight, target = small()
    with torch.no_grad():
        assert not linear_cross_entropy(x, weight, target).requires_grad


@pytest.mark.parametrize("workspace", ["quick", 0, -1, True, 2.5])
def test_workspace_that_is_none_is_refused_by_name(workspace: Any) -> None:
    x, weight, target = small()
    with pytest.raises(ValueError, match="workspace="):
        linear_cross_entropy(x, weight, target, workspace=workspace)


def test_float16_keeps_small_gradients() -> None:
    torch.manual_seed(0)
    x = torch.randn(64, 16, dtype=torch.float16, requires_grad=True)
    weight = torch.randn(64, 16, dtype=torch.float16, requires_grad=True)
    target = torch.randint(0, 64, (64,))
    (linear_cross_entropy(x, weight, target) * 1024.0).backward()
    wide = [tensor.detach().double().requires_grad_() for tensor in (x, weight)]
    (torch.nn.functional.cross_entropy(wide[0] @ wide[1].t(), target) * 1024.0).backward()
    for tensor, right in zip((x, weight), wide, strict=True):
        assert tensor.grad is not None
        assert right.grad is not None
        error = (tensor.grad.double() - right.grad).norm() / right.grad.norm()
        assert error < LIMITS["float16"]
    with pytest.raises(ValueError, match="float16"):
        linear_cross_entropy(x, weight, target, with_metrics=True)


def test_module_is_the_call_with_its_options_fixed() -> None:
    x, weight, target = small()
    class_weight = torch.rand(11)
    options = LossOptions(label_smoothing=0.1, softcap=3.0)
    module = LinearCrossEntropyLoss(options, class_weight)
    want = linear_cross_entropy(
        x, weight, target, class_weight=class_weight, label_smoothing=0.1, softcap=3.0
    )
    assert torch.equal(module(x, weight, target), want)
    assert "label_smoothing=0.1, softcap=3.0" in repr(module)
    assert list(module.state_dict()) == ["class_weight"]
    with pytest.raises(ValueError, match="softcap=-1"):
        LinearCrossEntropyLoss(LossOptions(softcap=-1.0))


def test_gradients_are_handed_out_and_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    x, weight, target = small()
    made: list[tuple[int, int]] = []
    plain = op.run

    def watched(call: op.Operands) -> Any:
        results, gradients = plain(call)
        assert gradients.dx is not None
        assert gradients.dw is not None
        made.append((gradients.dx.data_ptr(), gradients.dw.data_ptr()))
        return results, gradients

    monkeypatch.setattr(op, "run", watched)
    linear_cross_entropy(x, weight, target).backward()
    assert x.grad is not None
    assert weight.grad is not None
    assert made == [(x.grad.data_ptr(), weight.grad.data_ptr())]
