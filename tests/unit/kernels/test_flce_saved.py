"""What a call saves for its backward is watched by autograd: a change in place is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from lossbench.kernels.flce.v1.op import linear_cross_entropy as first
from lossbench.kernels.flce.v2.loss import linear_cross_entropy as second

VERSIONS = pytest.mark.parametrize("loss_of", [first, second], ids=["v1", "v2"])


def tensors() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x, weight = (
        torch.randn(rows, 4, dtype=torch.float64, generator=generator).requires_grad_()
        for rows in (6, 9)
    )
    target = torch.randint(0, 9, (6,), generator=generator)
    class_weight = torch.rand(9, dtype=torch.float64, generator=generator) + 0.5
    return {"input": x, "weight": weight, "target": target, "class_weight": class_weight}


@VERSIONS
@pytest.mark.parametrize("changed", ["input", "weight", "target", "class_weight"])
def test_per_token_backward_after_a_change_in_place_is_refused(
    loss_of: Callable[..., Tensor], changed: str
) -> None:
    given = tensors()
    loss = loss_of(**given, reduction="none").sum()
    with torch.no_grad():
        given[changed].copy_(given[changed].flip(0))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()  # type: ignore[no-untyped-call]


@VERSIONS
@pytest.mark.parametrize("changed", ["target", "class_weight"])
def test_mean_backward_after_a_change_in_place_is_that_of_the_forward(
    loss_of: Callable[..., Tensor], changed: str
) -> None:
    given = tensors()
    loss = loss_of(**given)
    (expected,) = torch.autograd.grad(loss, given["input"], retain_graph=True)
    given[changed].copy_(given[changed].flip(0))
    (dx,) = torch.autograd.grad(loss, given["input"])
    assert torch.equal(dx, expected)


@VERSIONS
def test_per_token_backward_without_a_change_is_that_of_torch(
    loss_of: Callable[..., Tensor],
) -> None:
    given = tensors()
    loss_of(**given, reduction="none").sum().backward()  # type: ignore[no-untyped-call]
    own = [given[name].grad for name in ("input", "weight")]
    again = tensors()
    logits = again["input"] @ again["weight"].t()
    torch.nn.functional.cross_entropy(
        logits, again["target"], weight=again["class_weight"], reduction="sum"
    ).backward()  # type: ignore[no-untyped-call]
    for gradient, name in zip(own, ("input", "weight"), strict=True):
        torch.testing.assert_close(gradient, again[name].grad)
