"""Arguments of the Liger adapter, on small stand-ins with the signatures of three generations."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from lossbench.kernels.adapters.liger import build
from lossbench.kernels.errors import UnsupportedHere
from lossbench.kernels.inputs import make_inputs
from lossbench.kernels.problem import Problem
from lossbench.kernels.protocol import LossFunction

# Parameters after ctx, as in releases 0.1.0, 0.4.1 and 0.8.3.
V0_1 = "_input, linear, target, ignore_index"
V0_4 = (
    "_input, weight, target, bias=None, ignore_index=-100, lse_square_scale=0.0, "
    "label_smoothing=0.0, reduction='mean', softcap=None"
)
V0_8 = (
    "_input, weight, target, bias=None, ce_weight=None, ignore_index=-100, lse_square_scale=0.0, "
    "label_smoothing=0.0, reduction='mean', softcap=None, return_z_loss=False, accum_dtype=None, "
    "use_token_scaling=False, return_token_accuracy=False, return_predicted_tokens=False, "
    "ce_impl=None, ce_mode=None, chunk_mem_const=1"
)
MODULE = """
import torch

CALLS = []


def liger_cross_entropy_kernel():
    pass


class LigerFusedLinearCrossEntropyFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, {parameters}):
        CALLS.append({{k: v for k, v in locals().items() if k != "ctx"}})
        loss = _input.sum() * 0 + 7.0
        return {result}
"""

Install = Callable[[str, str], LossFunction]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Put a stand-in package first on the path and build the contender from it."""

    def forget() -> None:
        for name in [name for name in sys.modules if name.split(".")[0] == "liger_kernel"]:
            del sys.modules[name]

    def make(parameters: str, result: str = "loss", **params: Any) -> LossFunction:
        ops = tmp_path / "liger_kernel" / "ops"
        ops.mkdir(parents=True)
        (ops / "cross_entropy.py").write_text("")
        source = MODULE.format(parameters=parameters, result=result)
        (ops / "fused_linear_cross_entropy.py").write_text(source)
        monkeypatch.syspath_prepend(str(tmp_path))
        forget()
        return build(None, params)

    yield make
    forget()


def last_call() -> dict[str, Any]:
    module = sys.modules["liger_kernel.ops.fused_linear_cross_entropy"]
    call: dict[str, Any] = module.CALLS[-1]
    return call


def test_liger_first_generation_gets_four_arguments(install: Install) -> None:
    function = install(V0_1, "loss")
    inputs = make_inputs(Problem(4, 8, 10, "float32", ignore_index=3), "cpu", 0)

    loss = inputs.loss(function)

    call = last_call()
    assert float(loss) == 7
    assert list(call) == ["_input", "linear", "target", "ignore_index"]
    assert call["linear"] is inputs.weight
    assert call["ignore_index"] == 3


@pytest.mark.parametrize(
    ("option", "word"),
    [
        ({"bias": True}, "bias"),
        ({"class_weight": True}, "class_weight"),
        ({"label_smoothing": 0.1}, "label_smoothing"),
        ({"softcap": 30.0}, "softcap"),
        ({"lse_square_scale": 0.1}, "lse_square_scale"),
        ({"reduction": "sum"}, "reduction"),
        ({"logit_scale": 0.5}, "logit_scale"),
    ],
)
def test_liger_option_that_the_release_lacks_is_never_dropped(
    install: Install, option: dict[str, Any], word: str
) -> None:
    function = install(V0_1, "loss")
    inputs = make_inputs(Problem(4, 8, 10, "float32", **option), "cpu", 0)

    with pytest.raises(UnsupportedHere, match=f"liger has no {word}"):
        inputs.loss(function)


def test_liger_second_generation_gets_its_options_by_name(install: Install) -> None:
    function = install(V0_4, "loss")
    problem = Problem(
        4, 8, 10, "float32", bias=True, label_smoothing=0.1, softcap=3.0, lse_square_scale=0.2
    )
    inputs = make_inputs(problem, "cpu", 0)

    inputs.loss(function)

    call = last_call()
    assert call["bias"] is inputs.bias
    assert (call["label_smoothing"], call["softcap"], call["lse_square_scale"]) == (0.1, 3.0, 0.2)
    assert (call["ignore_index"], call["reduction"]) == (-100, "mean")


def test_liger_third_generation_gets_defaults_for_the_rest_and_its_tuple_is_unpacked(
    install: Install,
) -> None:
    function = install(V0_8, "loss, None, None, None")
    inputs = make_inputs(Problem(4, 8, 10, "float32", class_weight=True, reduction="sum"), "cpu", 0)

    loss = inputs.loss(function)

    call = last_call()
    assert float(loss) == 7
    assert call["ce_weight"] is inputs.class_weight
    assert call["reduction"] == "sum"
    assert call["return_z_loss"] is False
    assert call["chunk_mem_const"] == 1
    assert call["ce_impl"] is None


def test_liger_params_reach_the_release(install: Any) -> None:
    function = install(V0_8, "loss, None", accum_dtype="float32", chunk_mem_const=8)

    make_inputs(Problem(4, 8, 10, "float32"), "cpu", 0).loss(function)

    assert last_call()["accum_dtype"] is torch.float32
    assert last_call()["chunk_mem_const"] == 8


def test_liger_param_that_the_release_lacks_is_refused(install: Any) -> None:
    function = install(V0_4, "loss", accum_dtype="float32")

    with pytest.raises(UnsupportedHere, match="this release of liger has no accum_dtype"):
        make_inputs(Problem(4, 8, 10, "float32"), "cpu", 0).loss(function)


def test_liger_unknown_required_parameter_is_a_clear_error(install: Install) -> None:
    with pytest.raises(UnsupportedHere, match="liger's forward asks for 'mesh', unknown here"):
        install("_input, weight, target, mesh, ignore_index=-100", "loss")


def test_liger_missing_package_is_unsupported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "liger_kernel", None)

    with pytest.raises(UnsupportedHere, match="liger does not import here"):
        build(None, {})


def test_interpreter_gaps_are_filled_only_when_interpreted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from types import ModuleType

    from lossbench.kernels.adapters import interpreter_gaps

    linear, rows = ModuleType("linear"), ModuleType("rows")
    linear.liger_cross_entropy_kernel = kernel = object()  # type: ignore[attr-defined]
    rows.tanh = tanh = object()  # type: ignore[attr-defined]

    interpreter_gaps.fill_gaps(linear, rows)
    assert linear.liger_cross_entropy_kernel is kernel  # type: ignore[attr-defined]
    assert rows.tanh is tanh  # type: ignore[attr-defined]

    monkeypatch.setattr(interpreter_gaps, "is_interpreted", lambda: True)
    interpreter_gaps.fill_gaps(linear, rows)
    assert linear.liger_cross_entropy_kernel is not kernel  # type: ignore[attr-defined]
    assert rows.tanh is not tanh  # type: ignore[attr-defined]


def test_interpreter_launcher_hands_floats_over_with_a_to_method() -> None:
    from lossbench.kernels.adapters.interpreter_gaps import _Launcher

    class Kernel:
        def __getitem__(self, grid: object) -> Callable[..., Any]:
            return lambda *args, **keywords: (grid, args, keywords)

    grid, args, keywords = _Launcher(Kernel())[(3,)](1, 2.5, softcap=30.0)  # type: ignore[misc]

    assert grid == (3,)
    assert args[0] == 1
    assert args[1].to(torch.float32) == 2.5
    assert keywords["softcap"].to(torch.float32) == 30.0
