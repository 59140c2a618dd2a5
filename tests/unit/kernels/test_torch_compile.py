"""torch-compile: what it hands to the compiler, and that an eager run never passes for it.

The options are checked with Dynamo's own graphs but without Inductor, which takes seconds a graph.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._dynamo import config

from lossbench.kernels.catalogue import build
from lossbench.kernels.errors import UnsupportedHere
from lossbench.kernels.inputs import make_inputs
from lossbench.kernels.problem import Problem, forward_backward
from lossbench.kernels.protocol import LossFunction
from lossbench.kernels.reference import reference, relative_errors

needs_compiler = pytest.mark.skipif(
    shutil.which("g++") is None, reason="Inductor needs g++; install it to run this test"
)
ALL_OPTIONS: dict[str, Any] = {
    "bias": True,
    "class_weight": True,
    "label_smoothing": 0.2,
    "softcap": 2.0,
    "logit_scale": 0.5,
    "lse_square_scale": 0.02,
    "ignored_share": 0.3,
}


def errors(function: LossFunction, tokens: int, **options: Any) -> dict[str, float]:
    """Relative errors of one case of 131 odd columns in float32."""
    problem = Problem(tokens, 24, 131, "float32", upstream="random", **options)
    inputs = make_inputs(problem, "cpu", 0)
    return relative_errors(forward_backward(function, inputs), reference(inputs, problem))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What torch.compile was asked for; graphs run as they are."""
    real, seen = torch.compile, []

    def graphs_only(function: Callable[..., Any], **keywords: Any) -> Callable[..., Any]:
        seen.append(keywords)
        return real(function, backend="eager", **keywords)

    monkeypatch.setattr(torch, "compile", graphs_only)
    return seen


@pytest.mark.parametrize("dynamic", [None, True, False])
def test_torch_compile_asks_for_one_whole_graph(
    asked: list[dict[str, Any]], dynamic: bool | None
) -> None:
    build("torch-compile", None, {"dynamic": dynamic})

    assert asked == [{"fullgraph": True, "dynamic": dynamic}]


@pytest.mark.parametrize("dynamic", [None, True])
def test_torch_compile_ragged_lengths_with_every_option_match_the_reference(
    asked: list[dict[str, Any]], dynamic: bool | None
) -> None:
    function = build("torch-compile", None, {"dynamic": dynamic})

    for tokens in (50, 33, 17):
        assert max(errors(function, tokens, **ALL_OPTIONS).values()) <= 2e-6
    assert max(errors(function, 20, reduction="none", ignored_share=0.2).values()) <= 2e-6


def test_torch_compile_past_the_recompile_limit_is_unsupported_and_never_eager(
    asked: list[dict[str, Any]],
) -> None:
    function = build("torch-compile", None, {"dynamic": False})

    with config.patch(recompile_limit=2):
        assert max(errors(function, 8).values()) <= 2e-6
        assert max(errors(function, 9).values()) <= 2e-6
        with pytest.raises(
            UnsupportedHere, match="gives up after 2 recompiles and would run eager"
        ):
            errors(function, 10)
        # what is compiled already goes on
        assert max(errors(function, 8).values()) <= 2e-6


def test_torch_compile_contenders_do_not_share_a_recompile_count(
    asked: list[dict[str, Any]],
) -> None:
    with config.patch(recompile_limit=1):
        for tokens in (8, 9, 10):
            function = build("torch-compile", None, {"dynamic": False})
            assert max(errors(function, tokens).values()) <= 2e-6


@pytest.mark.slow
@needs_compiler
@pytest.mark.filterwarnings("ignore")
def test_torch_compile_compiled_by_inductor_matches_the_reference() -> None:
    function = build("torch-compile", None, {})

    for tokens in (50, 33):
        assert max(errors(function, tokens, **ALL_OPTIONS).values()) <= 2e-6
