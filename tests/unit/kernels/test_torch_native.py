"""torch-native on the CPU: its chunked path against the float64 reference, and no other path."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from lossbench.kernels.catalogue import Need, build, spec_of, why_unsupported
from lossbench.kernels.chunk_rules import aspect_chunk_rows
from lossbench.kernels.errors import UnsupportedHere
from lossbench.kernels.inputs import make_inputs
from lossbench.kernels.problem import Inputs, Problem, forward_backward
from lossbench.kernels.reference import reference, relative_errors

needs_options = pytest.mark.skipif(
    not hasattr(torch.nn, "LinearCrossEntropyOptions"),
    reason="this torch has no LinearCrossEntropyOptions; they came with 2.13",
)
CASES: list[dict[str, Any]] = [
    {},
    {"bias": True, "ignored_share": 0.4},
    {"class_weight": True, "ignored_share": 0.3},
    {"ignore_index": 5, "ignored_share": 0.2},
    {"reduction": "sum", "bias": True, "class_weight": True},
    {"reduction": "none", "bias": True, "ignored_share": 0.2},
    {"frozen": "input"},
    {"frozen": "weight", "bias": True},
]
PARAMS: list[dict[str, Any]] = [
    {},
    {"chunk_rows": 16},
    {"acc_policy": "accurate", "accum_dtype": "float32"},
    {"acc_policy": "compact", "accum_dtype": "float32", "chunk_rows": 7},
    {"acc_policy": "compact"},
]
# Twice the rounding of torch itself in that dtype at this size; dW is rounded once a chunk.
TOLERANCE = {"float64": 1e-13, "float32": 2e-6, "bfloat16": 2e-2, "float16": 2.5e-3}


def inputs_of(dtype: str = "float32", **options: Any) -> Inputs:
    """50 rows leave a ragged chunk of 16 and of 7; 131 columns are odd."""
    return make_inputs(Problem(50, 24, 131, dtype, upstream="random", **options), "cpu", 0)


@needs_options
@pytest.mark.parametrize(
    ("params", "dtype"),
    # torch sums float64 in float64 only
    [(p, d) for p in PARAMS for d in TOLERANCE if "accum_dtype" not in p or d != "float64"],
)
def test_torch_native_declared_options_match_the_reference(
    params: dict[str, Any], dtype: str
) -> None:
    function = build("torch-native", None, params)
    for case in CASES:
        inputs = inputs_of(dtype, **case)
        assert inputs.problem.options_used <= spec_of("torch-native").options

        outputs = forward_backward(function, inputs)

        errors = relative_errors(outputs, reference(inputs, inputs.problem))
        # its loss is rounded to the input's dtype, and in bfloat16 it is summed in bfloat16
        assert outputs.loss.dtype is inputs.x.dtype
        assert max(errors.values()) <= TOLERANCE[dtype], (case, errors)


@needs_options
@pytest.mark.filterwarnings("ignore")  # as in a worker, where a warning alone changes nothing
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"softcap": 30.0}, "torch-native has no softcap"),
        ({"logit_scale": 0.5}, "torch-native has no logit_scale"),
        ({"lse_square_scale": 0.1}, "torch-native has no lse_square_scale"),
        ({"label_smoothing": 0.1}, "leaves its chunked path: .*label_smoothing=0.1"),
    ],
)
def test_torch_native_option_that_it_lacks_is_refused(options: dict[str, Any], reason: str) -> None:
    inputs = inputs_of(**options)

    assert not inputs.problem.options_used <= spec_of("torch-native").options
    with pytest.raises(UnsupportedHere, match=reason):
        inputs.loss(build("torch-native", None, {}))


@needs_options
@pytest.mark.filterwarnings("ignore")
def test_torch_native_targets_that_torch_falls_back_on_are_refused() -> None:
    inputs = inputs_of()

    with pytest.raises(UnsupportedHere, match=r"chunked path: .*target.dtype=torch.int32"):
        build("torch-native", None, {})(inputs.x, inputs.weight, inputs.target.to(torch.int32))


class _Operators(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        self.calls.append((str(func), args))
        return func(*args, **(kwargs or {}))

    def chunked(self) -> tuple[Any, ...]:
        """Arguments of torch's one chunked operator."""
        (found,) = (args for name, args in self.calls if "_entropy_batch_chunked" in name)
        return found


@needs_options
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize(
    ("params", "reached"),
    [
        # torch's own for float32: half of 16 rows, the power of two from 50 / 6 on
        ({}, (8, "compact", torch.float32)),
        ({"chunk_rows": 16}, (16, "compact", torch.float32)),
        (
            {"chunk_rows": 7, "acc_policy": "balanced", "accum_dtype": "float32"},
            (7, "balanced", torch.float32),
        ),
    ],
)
def test_torch_native_runs_torchs_chunked_operator_with_its_params(
    params: dict[str, Any], reached: tuple[object, ...], reduction: str
) -> None:
    function = build("torch-native", None, params)

    with _Operators() as operators:
        inputs_of(reduction=reduction).loss(function)

    arguments = operators.chunked()
    start = arguments.index(reached[1]) - 1
    assert arguments[start : start + 3] == reached


@needs_options
def test_torch_native_no_valid_label_is_nan_in_loss_and_gradients() -> None:
    """Unlike torch's own cross entropy, whose gradients are then zero."""
    outputs = forward_backward(build("torch-native", None, {}), inputs_of(ignored_share=1.0))

    assert torch.isnan(outputs.loss)
    assert outputs.dw is not None
    assert torch.isnan(outputs.dw).all()


@needs_options
@pytest.mark.parametrize(
    ("tokens", "hidden", "vocab"),
    [(8192, 4096, 128256), (50, 24, 131), (4097, 576, 49152), (1, 8, 8)],
)
def test_torch_native_chunk_rule_is_torchs_own(tokens: int, hidden: int, vocab: int) -> None:
    """Without a device torch resolves to what it takes on a GPU."""
    adjusted = torch.nn.LinearCrossEntropyOptions()._adjust(tokens, hidden, vocab, torch.bfloat16)

    assert adjusted.acc_policy == "compact"
    assert aspect_chunk_rows(tokens, hidden, vocab) == adjusted.batch_chunk_size


@needs_options
def test_torch_native_float64_summed_in_float32_is_refused() -> None:
    function = build("torch-native", None, {"accum_dtype": "float32"})

    with pytest.raises(UnsupportedHere, match="does not sum float64 in float32"):
        inputs_of("float64").loss(function)


def test_torch_native_torch_without_the_function_is_unsupported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(torch.nn, "LinearCrossEntropyOptions", raising=False)

    with pytest.raises(UnsupportedHere, match="has no chunked linear_cross_entropy"):
        build("torch-native", None, {})


@needs_options
def test_torch_native_policy_that_a_later_torch_drops_is_unsupported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def without_balanced(**settings: object) -> object:
        raise ValueError(f"invalid acc_policy: {settings['acc_policy']!r}")

    monkeypatch.setattr(torch.nn, "LinearCrossEntropyOptions", without_balanced)

    with pytest.raises(UnsupportedHere, match="refuses its options: invalid acc_policy: 'balanced"):
        build("torch-native", None, {"acc_policy": "balanced"})


def test_torch_native_older_torch_is_named() -> None:
    need = Need("bfloat16", frozenset(), "cuda", "2.11.0+cu128", "3.6.0", (9, 0))

    reason = why_unsupported(spec_of("torch-native"), "2.11.0", {}, need)

    assert reason == "torch-native needs torch >= 2.13; here is 2.11.0+cu128"
