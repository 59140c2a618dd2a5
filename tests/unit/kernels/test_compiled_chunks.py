"""torch-compile-chunked with the real compiler."""

from __future__ import annotations

import shutil

import pytest
import torch

from lossbench.kernels.catalogue import build
from lossbench.kernels.errors import UnsupportedHere
from lossbench.kernels.inputs import make_inputs
from lossbench.kernels.problem import Problem, forward_backward
from lossbench.kernels.reference import reference, relative_errors

needs_compiler = pytest.mark.skipif(
    shutil.which("g++") is None, reason="Inductor needs g++; install it to run this test"
)


@pytest.mark.slow
@needs_compiler
@pytest.mark.filterwarnings("ignore")
def test_compiled_chunks_ragged_lengths_agree_with_the_reference() -> None:
    function = build("torch-compile-chunked", None, {"chunk_rows": 16, "split": "fixed"})

    for tokens in (50, 33, 16):
        problem = Problem(tokens, 24, 131, "float32", bias=True, softcap=2.0, ignored_share=0.3)
        inputs = make_inputs(problem, "cpu", 0)
        errors = relative_errors(forward_backward(function, inputs), reference(inputs, problem))
        assert max(errors.values()) <= 2e-6


def test_compiled_chunks_fixed_split_sees_one_shape_and_even_split_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shapes: set[int] = set()

    def recording(function: object, **_: object) -> object:
        def call(*args: object) -> object:
            if isinstance(args[0], tuple):
                shapes.add(args[1].shape[0])  # type: ignore[attr-defined]
            return function(*args)  # type: ignore[operator]

        return call

    monkeypatch.setattr(torch, "compile", recording)
    seen = {}
    for split in ("fixed", "even"):
        shapes.clear()
        function = build("torch-compile-chunked", None, {"chunk_rows": 16, "split": split})
        for tokens in (50, 33, 20):
            forward_backward(function, make_inputs(Problem(tokens, 8, 30, "float32"), "cpu", 0))
        seen[split] = set(shapes)

    assert seen["fixed"] == {16}
    assert seen["even"] == {13, 11, 10}


def test_compiled_chunks_reduction_none_is_unsupported() -> None:
    inputs = make_inputs(Problem(4, 8, 10, "float32", reduction="none"), "cpu", 0)

    with pytest.raises(UnsupportedHere, match="no reduction_none"):
        inputs.loss(build("torch-compile-chunked", None, {}))
