"""Cases from public bug reports on fused linear cross entropy kernels, restated as our own data.

Each names the report that it comes from. Truth is the float64 reference of the same rounded
inputs; errors are relative to the largest value of the truth, since an absolute tolerance would
pass a kernel that returns zeros.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from lossbench.kernels.catalogue import build
from lossbench.kernels.flce import linear_cross_entropy
from lossbench.kernels.problem import DTYPES, Inputs, Outputs, Problem, forward_backward
from lossbench.kernels.protocol import LossFunction
from lossbench.kernels.reference import Reference, reference

CONTENDERS: dict[str, LossFunction] = {
    "flce": linear_cross_entropy,
    "flce-chunks-of-7": partial(linear_cross_entropy, chunk_rows=7),
    "torch-upcast": build("torch-upcast", None, {}),
}
FLCE = ["flce", "flce-chunks-of-7"]
TOLERANCE = {"float64": 1e-10, "float32": 2e-5, "bfloat16": 1.5e-2}


@dataclass(frozen=True)
class Report:
    """One report. `labels` and `layout` name how target and x are made; `upstream` is a number,
    "ramp" (one value per row) or "expanded" (one value with stride 0)."""

    id: str
    source: str
    what: str
    tokens: int = 24
    hidden: int = 16
    vocab: int = 37
    dtype: str = "float32"
    labels: str = "third_ignored"
    bias: float | None = None
    masked: bool = False
    upstream: float | str = 1.0
    layout: str = "contiguous"
    x_scale: float = 1.0
    weight_scale: float = 0.3
    tolerance: float | None = None
    options: dict[str, Any] = field(default_factory=dict)


def report(id: str, source: str, what: str, **rest: Any) -> Report:
    known = {name: rest.pop(name) for name in list(rest) if name in Report.__dataclass_fields__}
    return Report(id, source, what, **known, options=rest)


MATCHING = [
    report("K02", "unslothai/unsloth#5230", "whole chunks ignored", tokens=64, bias=0.0,
           labels="first_seven_eighths_ignored"),
    report("K03", "linkedin/Liger-Kernel#968", "per-token upstream gradient", tokens=8, hidden=10,
           vocab=15, bias=0.0, reduction="none", upstream="ramp"),
    report("K04", "Dao-AILab/quack PR 126", "upstream with stride 0", bias=0.0, reduction="none",
           upstream="expanded"),
    report("K07", "NVIDIA-NeMo/Automodel#3803", "mean must not depend on chunks", tokens=100,
           bias=0.0, upstream=3.7),
    report("K08", "linkedin/Liger-Kernel#243", "smoothing with ignored rows", tokens=40, bias=0.0,
           label_smoothing=0.1),
    report("K09", "unslothai/unsloth PR 10616", "padding must stay out after the cap", tokens=33,
           bias=-1.0, softcap=1.0),
    report("K10", "apple/ml-cross-entropy#48", "the cap must bind", tokens=33, vocab=50,
           x_scale=8.0, weight_scale=4.0, tolerance=2e-4, softcap=30.0),
    report("K11", "linkedin/Liger-Kernel PR 239", "z-loss over valid rows", tokens=48, upstream=0.5,
           lse_square_scale=1e-2),
    report("K12", "verl-project/verl#2899", "vocabulary no multiple of a tile", tokens=65,
           hidden=24, vocab=1015, bias=0.0),
    report("K13", "apple/ml-cross-entropy PR 59", "all targets beside the padding", tokens=32,
           vocab=300, labels="last"),
    report("K15", "unslothai/unsloth PR 10713", "x is a column slice", tokens=32, upstream=1.5,
           layout="column_slice"),
    report("K15t", "NVIDIA/TransformerEngine#2734", "x is a transposed view", tokens=32,
           layout="transposed"),
    report("K21", "axolotl-ai-cloud/axolotl PR 1601", "same-sign bf16 sums over many chunks",
           tokens=4096, hidden=32, vocab=64, dtype="bfloat16", labels="constant", x_scale=0.05,
           weight_scale=0.05, bias=1.0, layout="plus_one"),
    report("K23", "pytorch/pytorch PR 195829", "large common logit offset", tokens=32, vocab=64,
           bias=1000.0, tolerance=2e-3),
    report("K24", "pytorch/pytorch PR 195829", "masked classes", tokens=32, vocab=64, bias=0.0,
           masked=True),
    report("K28", "unslothai/unsloth-zoo PR 248", "upstream of a gradient scaler", tokens=64,
           dtype="bfloat16", bias=0.0, upstream=65536.0, tolerance=2e-2),
    report("K30", "pytorch/pytorch#141639", "float64 stays float64", tokens=64, dtype="float64",
           bias=0.0, upstream=1.3, tolerance=1e-9, label_smoothing=0.05),
    report("K38", "apple/ml-cross-entropy#52", "bias dominates the logits", tokens=40, x_scale=0.01,
           bias=0.0, upstream=2.0),
    report("K39", "apple/ml-cross-entropy#14", "tiny gradients are kept", tokens=32, hidden=8,
           vocab=8192, weight_scale=0.02, labels="constant"),
]  # fmt: skip


def labels_of(kind: str, tokens: int, vocab: int, generator: torch.Generator) -> Tensor:
    target = torch.randint(0, vocab, (tokens,), generator=generator)
    if kind == "third_ignored":
        target[::3] = -100
    elif kind == "first_seven_eighths_ignored":
        target[: tokens - tokens // 8] = -100
    elif kind == "all_ignored":
        target[:] = -100
    elif kind == "last":
        target[:] = vocab - 1
    elif kind == "constant":
        target[:] = 3
    return target


def upstream_of(case: Report) -> Tensor:
    if case.upstream == "ramp":
        return torch.linspace(-1, 2, case.tokens)
    if case.upstream == "expanded":
        return torch.full((), 0.75).expand(case.tokens)
    value = torch.tensor(float(case.upstream))
    return value.repeat(case.tokens) if case.options.get("reduction") == "none" else value


def inputs_of(case: Report) -> Inputs:
    generator = torch.Generator().manual_seed(0)
    dtype = DTYPES[case.dtype]
    x = torch.randn(case.tokens, case.hidden, generator=generator) * case.x_scale
    weight = torch.randn(case.vocab, case.hidden, generator=generator) * case.weight_scale
    bias = None
    if case.bias is not None:
        bias = torch.randn(case.vocab, generator=generator) * 0.1 + case.bias
    target = labels_of(case.labels, case.tokens, case.vocab, generator)
    if case.masked and bias is not None:
        bias[1::3] = -torch.inf
        target = torch.where(target % 3 == 1, target - 1, target)
    x = (x + 1 if case.layout == "plus_one" else x).to(dtype)
    if case.layout == "column_slice":
        x = torch.cat([x, x + 9], dim=1)[:, : case.hidden]
    if case.layout == "transposed":
        x = x.t().contiguous().t()
    problem = Problem(
        case.tokens, case.hidden, case.vocab, case.dtype, bias=bias is not None, **case.options
    )
    bias = None if bias is None else bias.to(dtype)
    return Inputs(problem, x, weight.to(dtype), target, bias, None, upstream_of(case))


def run(function: LossFunction, inputs: Inputs) -> Outputs:
    """Like forward_backward, but the layouts of x and of the upstream gradient are kept."""
    x, weight = inputs.x.detach().requires_grad_(), inputs.weight.detach().requires_grad_()
    bias = None if inputs.bias is None else inputs.bias.detach().requires_grad_()
    before = [tensor.detach().clone() for tensor in (x, weight, inputs.target)]
    loss = function(x, weight, inputs.target, bias, **inputs.problem.keywords(None))
    torch.autograd.backward(loss, inputs.upstream.to(loss.dtype))
    for tensor, copy in zip((x, weight, inputs.target), before, strict=True):
        assert torch.equal(tensor.detach(), copy), "an input was overwritten"
    return Outputs(loss.detach(), x.grad, weight.grad, None if bias is None else bias.grad)


def worst(got: Tensor | None, want: Tensor | None) -> float:
    """Largest error relative to the largest value of the truth."""
    if want is None:
        return 0.0
    assert got is not None
    assert got.shape == want.shape
    assert torch.isfinite(got).all()
    largest = float(want.abs().max()) if want.numel() else 0.0
    error = float((got.double() - want).abs().max()) if want.numel() else 0.0
    return error / largest if largest > 0 else error


def worst_of(outputs: Outputs, truth: Reference) -> dict[str, float]:
    return {
        name: worst(getattr(outputs, name), getattr(truth, name)) for name in ("dx", "dw", "db")
    }


def contenders(names: list[str]) -> Callable[[Any], Any]:
    return pytest.mark.parametrize("name", names)


@contenders(list(CONTENDERS))
@pytest.mark.parametrize("case", MATCHING, ids=lambda case: case.id)
def test_reported_case_matches_the_reference(case: Report, name: str) -> None:
    inputs = inputs_of(case)
    truth = reference(inputs, inputs.problem)

    outputs = run(CONTENDERS[name], inputs)

    tolerance = case.tolerance or TOLERANCE[case.dtype]
    assert worst(outputs.loss, truth.loss) <= (5e-3 if case.dtype == "bfloat16" else tolerance)
    assert max(worst_of(outputs, truth).values()) <= tolerance
    for gradient in (outputs.dx, outputs.dw):
        assert gradient is not None
        assert gradient.dtype is DTYPES[case.dtype]
    if case.id == "K39":
        rest = torch.arange(case.vocab) != 3
        assert outputs.dw is not None
        assert truth.dw is not None
        assert worst(outputs.dw[rest], truth.dw[rest]) <= 1e-3
    if case.masked:
        assert outputs.db is not None
        assert not outputs.db[1::3].any()


@contenders(FLCE)
@pytest.mark.parametrize(
    ("tokens", "labels", "source"),
    [
        (16, "all_ignored", "K01 linkedin/Liger-Kernel#177"),
        (0, "random", "K25 huggingface/trl PR 6859"),
    ],
)
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_reported_nothing_to_train_on_gives_zero_loss_and_zero_gradients(
    name: str, tokens: int, labels: str, source: str, reduction: str
) -> None:
    inputs = inputs_of(
        report("K01", source, "", tokens=tokens, labels=labels, bias=0.0, reduction=reduction)
    )

    outputs = run(CONTENDERS[name], inputs)

    assert outputs.loss.item() == 0
    for gradient, tensor in (
        (outputs.dx, inputs.x),
        (outputs.dw, inputs.weight),
        (outputs.db, inputs.bias),
    ):
        assert gradient is not None
        assert tensor is not None
        assert gradient.shape == tensor.shape
        assert not gradient.any()


@contenders(list(CONTENDERS))
def test_reported_k06_none_returns_one_value_per_token(name: str) -> None:
    """linkedin/Liger-Kernel#421: none returned a single number."""
    inputs = inputs_of(report("K06", "", "", tokens=12, vocab=5, reduction="none"))

    loss = inputs.loss(CONTENDERS[name])

    assert loss.shape == (12,)
    assert not loss[::3].any()
    assert worst(loss, reference(inputs, inputs.problem).loss) <= 2e-5


@contenders(list(CONTENDERS))
def test_reported_k14_label_beyond_the_vocabulary_is_refused(name: str) -> None:
    """pytorch/pytorch PR 195829: a label of V was read out of bounds."""
    inputs = inputs_of(report("K14", "", "", tokens=8))
    inputs.target[4] = 37

    with pytest.raises((ValueError, IndexError)):
        inputs.loss(CONTENDERS[name])


@contenders(list(CONTENDERS))
def test_reported_k16_frozen_head_gets_no_gradient(name: str) -> None:
    """PrimeIntellect-ai/prime-rl PR 3011: a frozen head still filled a V x H gradient."""
    inputs = inputs_of(report("K16", "", "", tokens=32, bias=0.0, frozen="weight"))
    truth = reference(inputs, inputs.problem)

    outputs = forward_backward(CONTENDERS[name], inputs)

    assert outputs.dw is None
    assert max(worst_of(outputs, truth).values()) <= 2e-5


@contenders(list(CONTENDERS))
def test_reported_k18_two_backwards_are_both_right(name: str) -> None:
    """Dao-AILab/quack PR 209: saved gradients were scaled in place."""
    inputs = inputs_of(report("K18", "", "", tokens=32, bias=0.0))
    truth = reference(inputs, inputs.problem)
    leaves = inputs.fresh()
    assert leaves.bias is not None
    tensors = [leaves.x, leaves.weight, leaves.bias]
    loss = leaves.loss(CONTENDERS[name])

    first = torch.autograd.grad(loss, tensors, torch.tensor(2.0), retain_graph=True)
    kept = [gradient.clone() for gradient in first]
    second = torch.autograd.grad(loss, tensors, torch.tensor(-0.5))

    for one, copy, two, want in zip(
        first, kept, second, (truth.dx, truth.dw, truth.db), strict=True
    ):
        assert want is not None
        assert torch.equal(one, copy)
        assert worst(one, 2 * want) <= 2e-5
        assert worst(two, -0.5 * want) <= 2e-5


@contenders(list(CONTENDERS))
def test_reported_k19_input_saved_upstream_is_not_overwritten(name: str) -> None:
    """linkedin/Liger-Kernel PR 1251: gradients were written into the input."""
    inputs = inputs_of(report("K19", "", "", tokens=32))
    leaf = inputs.x.clone().requires_grad_()
    wide = inputs.x.double().requires_grad_()

    CONTENDERS[name](leaf.sigmoid(), inputs.weight, inputs.target).backward()
    F.cross_entropy(wide.sigmoid() @ inputs.weight.double().t(), inputs.target).backward()

    assert worst(leaf.grad, wide.grad) <= 2e-5


@contenders(list(CONTENDERS))
def test_reported_k20_autocast_keeps_each_gradients_dtype(name: str) -> None:
    """linkedin/Liger-Kernel#305: bf16 activations with a float32 weight."""
    inputs = inputs_of(report("K20", "", "", tokens=32, hidden=32, vocab=64, dtype="bfloat16"))
    truth = reference(inputs, inputs.problem)
    x, weight = inputs.x.clone().requires_grad_(), inputs.weight.float().requires_grad_()

    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = CONTENDERS[name](x, weight, inputs.target)
    loss.backward()

    assert x.grad is not None
    assert weight.grad is not None
    assert (x.grad.dtype, weight.grad.dtype) == (torch.bfloat16, torch.float32)
    assert worst(x.grad, truth.dx) <= 1.5e-2
    assert worst(weight.grad, truth.dw) <= 1.5e-2


@contenders(list(CONTENDERS))
def test_reported_k22_summed_loss_keeps_float32_digits(name: str) -> None:
    """NVIDIA/TransformerEngine PR 3193: the loss was stored in the input dtype."""
    inputs = inputs_of(
        report("K22", "", "", tokens=1024, hidden=32, vocab=256, dtype="bfloat16",
               labels="random", reduction="sum")
    )  # fmt: skip
    rounded_logits = F.linear(inputs.x, inputs.weight).double()
    want = F.cross_entropy(rounded_logits, inputs.target, reduction="sum")

    loss = inputs.loss(CONTENDERS[name])

    assert loss.dtype is torch.float32
    assert worst(loss, want) <= 1e-4


@contenders(list(CONTENDERS))
def test_reported_k26_micro_batches_add_up_to_the_mean(name: str) -> None:
    """linkedin/Liger-Kernel#802: a mean per micro-batch scaled the loss."""
    inputs = inputs_of(report("K26", "", "", tokens=48, bias=0.0))
    truth = reference(inputs, inputs.problem)
    leaves = inputs.fresh()
    assert leaves.bias is not None
    valid = (inputs.target != -100).sum()

    for part in (slice(0, 13), slice(13, None)):
        loss = CONTENDERS[name](
            leaves.x[part], leaves.weight, leaves.target[part], leaves.bias, reduction="sum"
        )
        (loss / valid).backward()

    assert worst(leaves.x.grad, truth.dx) <= 2e-5
    assert worst(leaves.weight.grad, truth.dw) <= 2e-5
    assert worst(leaves.bias.grad, truth.db) <= 2e-5


@contenders(list(CONTENDERS))
def test_reported_k27_tied_embedding_gets_both_gradients(name: str) -> None:
    """verl-project/verl#7834: one of the two paths was lost."""
    inputs = inputs_of(report("K27", "", "", tokens=37, labels="random"))
    weight = inputs.weight.clone().requires_grad_()
    wide = inputs.weight.double().requires_grad_()
    ids = torch.arange(37)

    CONTENDERS[name](weight[ids], weight, inputs.target).backward()
    F.cross_entropy(wide[ids] @ wide.t(), inputs.target).backward()

    assert worst(weight.grad, wide.grad) <= 2e-5


@contenders(FLCE)
def test_reported_k17_evaluation_under_no_grad_works(name: str) -> None:
    """linkedin/Liger-Kernel#930: no_grad read a variable that was never set."""
    inputs = inputs_of(report("K17", "", "", tokens=32))

    with torch.no_grad():
        loss = inputs.fresh().loss(CONTENDERS[name])

    assert not loss.requires_grad
    assert worst(loss, reference(inputs, inputs.problem).loss) <= 2e-5


def test_reported_cases_are_told_apart_from_a_kernel_that_returns_zeros() -> None:
    inputs = inputs_of(replace(MATCHING[3], upstream=1.0))
    truth = reference(inputs, inputs.problem)
    zeros = Outputs(
        truth.loss, *(torch.zeros_like(inputs.x), torch.zeros_like(inputs.weight), None)
    )

    assert worst(zeros.dx, truth.dx) == 1
    assert worst(zeros.dw, truth.dw) == 1
