"""The kernels room on a GPU: numbers, memory, 64-bit offsets and no host synchronisation."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from lossbench.kernels.catalogue import build, estimate_peak_bytes, spec_of
from lossbench.kernels.flce.v1.op import linear_cross_entropy
from lossbench.kernels.flce.v1.plan import make_plan
from lossbench.kernels.floor import Floor
from lossbench.kernels.inputs import make_inputs
from lossbench.kernels.problem import Inputs, Problem, forward_backward
from lossbench.kernels.reference import reference, relative_errors

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
    pytest.mark.filterwarnings("ignore:Synchronization debug mode:UserWarning"),
]

# Odd vocabulary and ragged rows; 2 full row-pass tiles and a rest.
SHAPE = (1000, 512, 20001)
CASES: list[dict[str, Any]] = [
    {},
    {"bias": True, "ignored_share": 0.3, "upstream": "random"},
    {"class_weight": True, "label_smoothing": 0.1, "lse_square_scale": 1e-3, "bias": True},
    {"softcap": 2.0, "logit_scale": 0.5},
    {"reduction": "sum", "upstream": "random"},
    {"reduction": "none", "ignored_share": 0.2, "upstream": "random"},
    {"frozen": "weight"},
    {"frozen": "input"},
    {"recipe": "trained"},
    {"ignored_share": 1.0},
]
FLCE_PARAMS: list[dict[str, Any]] = [{}, {"chunk_rows": 384}]


@contextmanager
def no_synchronisation() -> Iterator[None]:
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def peak_beyond_inputs(inputs: Inputs, function: Any) -> int:
    """Bytes at the peak of one forward and backward, over what was there before."""
    leaves = inputs.fresh()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    leaves.loss(function).backward()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


@pytest.mark.parametrize("params", FLCE_PARAMS)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64"])
def test_flce_error_is_no_larger_than_torchs_own(dtype: str, params: dict[str, Any]) -> None:
    function = build("flce", "1", params)
    for case in CASES:
        problem = Problem(*SHAPE, dtype, **case)
        inputs = make_inputs(problem, "cuda", 0)
        truth = reference(inputs, problem)
        errors = relative_errors(forward_backward(function, inputs), truth)
        if problem.ignored_share == 1.0:
            assert errors == {"loss": 0.0, "dx": 0.0, "dw": 0.0}
            continue
        naive = relative_errors(forward_backward(build("torch-naive", None, {}), inputs), truth)
        # The loss is that of bf16 logits, whose rounding a mean averages out and a token does not.
        assert errors.pop("loss") <= (1e-3 if dtype == "bfloat16" else 1e-4), case
        # A bf16 dW of one product is rounded again by an upstream gradient other than 2^k.
        allowed = 1.5 if problem.upstream == "random" and dtype == "bfloat16" else 1.1
        for name, error in errors.items():
            assert error <= allowed * naive[name] + 1e-6, (case, name, error, naive)


@pytest.mark.parametrize("name", ["torch-naive", "torch-upcast", "torch-compile-chunked"])
@pytest.mark.parametrize(("dtype", "tolerance"), [("bfloat16", 2e-2), ("float32", 1e-5)])
@pytest.mark.filterwarnings("ignore")
def test_torch_contenders_match_the_reference(name: str, dtype: str, tolerance: float) -> None:
    problem = Problem(*SHAPE, dtype, ignored_share=0.2, upstream="random")
    inputs = make_inputs(problem, "cuda", 0)

    errors = relative_errors(
        forward_backward(build(name, None, {}), inputs), reference(inputs, problem)
    )

    assert max(errors.values()) <= tolerance


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("params", FLCE_PARAMS)
def test_flce_never_synchronises_with_the_host(reduction: str, params: dict[str, Any]) -> None:
    options: dict[str, Any] = {"class_weight": True, "lse_square_scale": 1e-3, "bias": True}
    problem = Problem(*SHAPE, ignored_share=0.2, reduction=reduction, **options)  # type: ignore[arg-type]
    inputs = make_inputs(problem, "cuda", 0)
    function = partial(linear_cross_entropy, **params)
    forward_backward(function, inputs)
    leaves = inputs.fresh()

    with no_synchronisation():
        loss = leaves.loss(function)
        torch.autograd.backward(loss, leaves.upstream)

    assert leaves.weight.grad is not None
    assert bool(torch.isfinite(leaves.weight.grad).all())


def test_flce_rows_beyond_2_to_the_31_elements_are_right() -> None:
    """pytorch/pytorch#85786: the row offset wrapped in 32 bits."""
    problem = Problem(65537, 64, 32769, reduction="sum")
    inputs = make_inputs(problem, "cuda", 0)
    assert problem.tokens * problem.vocab > 2**31

    outputs = forward_backward(partial(linear_cross_entropy, chunk_rows=65537), inputs)

    last = slice(65537 - 64, 65537)
    tail = Problem(64, 64, 32769, reduction="sum")
    part = Inputs(
        tail, inputs.x[last], inputs.weight, inputs.target[last], None, None, inputs.upstream
    )
    want = reference(part, tail).dx
    assert want is not None
    assert outputs.dx is not None
    assert float((outputs.dx[last].double() - want).norm() / want.norm()) <= 5e-3


@pytest.mark.parametrize(
    ("tokens", "params"), [(4096, {}), (4096, {"chunk_rows": 512}), (4096, {"chunk_rows": 4096})]
)
def test_flce_workspace_is_what_the_plan_and_the_catalogue_say(
    tokens: int, params: dict[str, Any]
) -> None:
    problem = Problem(tokens, 2048, 50257)
    inputs = make_inputs(problem, "cuda", 0)
    function = build("flce", "1", params)
    forward_backward(function, inputs)

    peak = peak_beyond_inputs(inputs, function)

    shape = (problem.tokens, problem.hidden, problem.vocab)
    plan = make_plan(*shape, torch.bfloat16, params.get("chunk_rows"))
    outputs = 2 * (tokens * 2048 + 50257 * 2048)
    estimate = estimate_peak_bytes(spec_of("flce"), params, *shape, 2) - outputs - 8 * tokens
    # 4 MiB: the allocator's rounding, and vectors of N and V.
    assert peak == pytest.approx(plan.workspace_bytes + outputs, rel=0.02, abs=2**22)
    assert peak == pytest.approx(estimate, rel=0.02, abs=2**22)


def test_flce_frozen_weight_needs_no_buffer_of_its_size() -> None:
    problem = Problem(512, 4096, 50257, frozen="weight")
    inputs = make_inputs(problem, "cuda", 0)
    function = partial(linear_cross_entropy, chunk_rows=128)
    forward_backward(function, inputs)

    assert peak_beyond_inputs(inputs, function) < 50257 * 4096 * 2 / 4


def test_flce_label_out_of_range_poisons_the_loss() -> None:
    inputs = make_inputs(Problem(64, 64, 1000), "cuda", 0).fresh()
    inputs.target[5] = 1000

    loss = linear_cross_entropy(inputs.x, inputs.weight, inputs.target)

    assert bool(torch.isnan(loss))


def test_flce_is_captured_by_a_cuda_graph() -> None:
    inputs = make_inputs(Problem(512, 256, 5000), "cuda", 0).fresh()
    arguments = (inputs.x, inputs.weight, inputs.target)

    def step() -> tuple[Tensor, ...]:
        loss = linear_cross_entropy(*arguments, chunk_rows=128)
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


def test_flce_two_calls_give_the_same_bits() -> None:
    inputs = make_inputs(Problem(*SHAPE), "cuda", 0)

    one, two = (forward_backward(linear_cross_entropy, inputs) for _ in range(2))

    assert one.dx is not None
    assert one.dw is not None
    assert two.dx is not None
    assert two.dw is not None
    assert torch.equal(one.loss, two.loss)
    assert torch.equal(one.dx, two.dx)
    assert torch.equal(one.dw, two.dw)


def test_flce_autocast_float32_weight_gets_a_float32_gradient() -> None:
    inputs = make_inputs(Problem(*SHAPE), "cuda", 0)
    truth = reference(inputs, inputs.problem)
    x, weight = inputs.x.clone().requires_grad_(), inputs.weight.float().requires_grad_()

    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = linear_cross_entropy(x, weight, inputs.target, chunk_rows=256)
    loss.backward()

    assert truth.dw is not None
    assert weight.grad is not None
    assert weight.grad.dtype is torch.float32
    assert float((weight.grad.double() - truth.dw).norm() / truth.dw.norm()) <= 4e-3


@pytest.mark.parametrize("recipe", ["normal", "trained"])
def test_reference_llama_shape_fits_and_agrees_with_flce(recipe: str) -> None:
    problem = Problem(8192, 4096, 128256, recipe=recipe)  # type: ignore[arg-type]
    inputs = make_inputs(problem, "cuda", 0)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()

    truth = reference(inputs, problem)

    assert torch.cuda.max_memory_allocated() - before < 40 * 10**9
    errors = relative_errors(forward_backward(linear_cross_entropy, inputs), truth)
    # Trained logits reach 12, where bf16 steps are 1/16; torch's own loss has that error too.
    assert errors["loss"] <= (1e-5 if recipe == "normal" else 5e-4)
    assert errors["dx"] <= (4e-3 if recipe == "normal" else 8e-3)
    assert errors["dw"] <= (4e-3 if recipe == "normal" else 8e-3)


def test_floor_products_are_the_gradients() -> None:
    problem = Problem(*SHAPE, ignored_share=0.2)
    inputs = make_inputs(problem, "cuda", 0)
    truth = reference(inputs, problem)
    floor = Floor(inputs)

    floor.run("forward_backward")

    assert truth.dw is not None
    assert float((floor._dw.double() - truth.dw).norm() / truth.dw.norm()) <= 4e-3


@pytest.mark.skipif(
    importlib.util.find_spec("liger_kernel") is None, reason="liger_kernel is not on the path"
)
def test_liger_on_the_path_matches_the_reference() -> None:
    problem = Problem(*SHAPE, ignored_share=0.2, upstream="random")
    inputs = make_inputs(problem, "cuda", 0)

    errors = relative_errors(
        forward_backward(build("liger", None, {}), inputs), reference(inputs, problem)
    )

    assert max(errors.values()) <= 2e-2
