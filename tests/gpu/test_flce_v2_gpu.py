"""flce version 2 on a GPU: errors, planned workspace, no host synchronisation, 64-bit offsets."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from lossbench.kernels.catalogue import build
from lossbench.kernels.flce.v2.loss import linear_cross_entropy
from lossbench.kernels.flce.v2.op import Tuning, plan_of
from lossbench.kernels.flce.v2.plan import Sizes
from lossbench.kernels.inputs import make_inputs
from lossbench.kernels.problem import Inputs, Problem, forward_backward
from lossbench.kernels.reference import reference, relative_errors

from .test_kernels_gpu import CASES, SHAPE, no_synchronisation, peak_beyond_inputs

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
    pytest.mark.filterwarnings("ignore:Synchronization debug mode:UserWarning"),
]
MIB = 2**20
PLANS = {
    "one pass": Tuning(),
    "token chunks": Tuning(chunk_rows=384),
    "two sweeps": Tuning(chunk_rows=256, block=4096),
    "cast outside": Tuning(cast="outside"),
}


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
def test_error_is_no_larger_than_torchs_own(dtype: str, plan: str) -> None:
    function = partial(linear_cross_entropy, tuning=PLANS[plan])
    for case in CASES:
        problem = Problem(*SHAPE, dtype, **case)
        inputs = make_inputs(problem, "cuda", 0)
        truth = reference(inputs, problem)
        errors = relative_errors(forward_backward(function, inputs), truth)
        if problem.ignored_share == 1.0:
            assert errors == {"loss": 0.0, "dx": 0.0, "dw": 0.0}
            continue
        naive = relative_errors(forward_backward(build("torch-naive", None, {}), inputs), truth)
        assert errors.pop("loss") <= (1e-3 if dtype == "bfloat16" else 1e-4), case
        # Final gradients in bf16 are rounded again by an upstream gradient other than 2^k.
        allowed = 1.5 if problem.upstream == "random" and dtype == "bfloat16" else 1.1
        for name, error in errors.items():
            assert error <= allowed * naive[name] + 1e-6, (case, name, error, naive)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("plan", PLANS)
def test_call_never_synchronises_with_the_host(reduction: str, plan: str) -> None:
    options: dict[str, Any] = {"class_weight": True, "lse_square_scale": 1e-3, "bias": True}
    problem = Problem(*SHAPE, ignored_share=0.2, reduction=reduction, **options)  # type: ignore[arg-type]
    inputs = make_inputs(problem, "cuda", 0)
    function = partial(linear_cross_entropy, tuning=PLANS[plan])
    forward_backward(function, inputs)
    leaves = inputs.fresh()
    with no_synchronisation():
        loss = leaves.loss(function)
        torch.autograd.backward(loss, leaves.upstream)
    assert leaves.weight.grad is not None
    assert bool(torch.isfinite(leaves.weight.grad).all())


@pytest.mark.parametrize("block", [None, 8192])
def test_rows_beyond_2_to_the_31_elements_are_right(block: int | None) -> None:
    """pytorch/pytorch#85786: the row offset wrapped in 32 bits."""
    problem = Problem(65537, 64, 32769, reduction="sum")
    inputs = make_inputs(problem, "cuda", 0)
    assert problem.tokens * problem.vocab > 2**31
    tuning = Tuning(chunk_rows=65537, block=block)
    outputs = forward_backward(partial(linear_cross_entropy, tuning=tuning), inputs)
    last = slice(65537 - 64, 65537)
    tail = Problem(64, 64, 32769, reduction="sum")
    part = Inputs(
        tail, inputs.x[last], inputs.weight, inputs.target[last], None, None, inputs.upstream
    )
    want = reference(part, tail).dx
    assert want is not None
    assert outputs.dx is not None
    assert float((outputs.dx[last].double() - want).norm() / want.norm()) <= 5e-3


@pytest.mark.parametrize("workspace", ["fast", "lean", 96 * MIB, 200 * MIB, 380 * MIB])
def test_workspace_is_what_the_plan_says(workspace: Any) -> None:
    tokens, hidden, vocab = 4096, 2048, 50257
    inputs = make_inputs(Problem(tokens, hidden, vocab), "cuda", 0)
    function = partial(linear_cross_entropy, workspace=workspace)
    forward_backward(function, inputs)
    peak = peak_beyond_inputs(inputs, function)
    plan = plan_of(Sizes(tokens, hidden, vocab), Tuning(workspace))
    outputs = 2 * (tokens * hidden + vocab * hidden)
    assert peak - outputs == pytest.approx(plan.workspace_bytes, rel=0.02, abs=2**20)


def test_upstream_gradient_of_one_copies_nothing() -> None:
    inputs = make_inputs(Problem(2048, 2048, 50257), "cuda", 0).fresh()
    loss = linear_cross_entropy(inputs.x, inputs.weight, inputs.target)
    torch.cuda.synchronize()
    held = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    loss.backward()
    torch.cuda.synchronize()
    assert torch.cuda.max_memory_allocated() - held < 2**20


def test_call_is_captured_by_a_cuda_graph() -> None:
    inputs = make_inputs(Problem(512, 256, 5000), "cuda", 0).fresh()
    arguments = (inputs.x, inputs.weight, inputs.target)

    def step() -> tuple[Tensor, ...]:
        loss = linear_cross_entropy(*arguments, tuning=Tuning(chunk_rows=128, block=1024))
        return loss.detach(), *torch.autograd.grad(loss, arguments[:2])

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    want = step()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = step()
    graph.replay()
    for one, other in zip(got, want, strict=True):
        assert torch.equal(one, other)
