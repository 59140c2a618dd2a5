"""liger's CuTe DSL and cuTile implementations, on stand-ins that take the same positions."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from torch import Tensor

from lossbench.kernels.adapters import liger_hopper
from lossbench.kernels.catalogue import build
from lossbench.kernels.errors import UnsupportedHere
from lossbench.kernels.problem import forward_backward
from lossbench.kernels.reference import reference, relative_errors

Install = Callable[[str, dict[str, Any]], None]
Make = Callable[..., Any]
NAMES = {
    "cutedsl": ("ignore_index", "reduction"),
    "cutile": (
        *("bias", "class_weight", "ignore_index", "lse_square_scale", "label_smoothing"),
        "reduction",
    ),
}
LACKING: list[dict[str, Any]] = [
    {"bias": True},
    {"class_weight": True},
    {"label_smoothing": 0.1},
    {"softcap": 1.5},
    {"logit_scale": 0.25},
    {"lse_square_scale": 0.01},
    {"reduction": "none"},
]
IMPLS = pytest.mark.parametrize("impl", ["cutedsl", "cutile"])


def put_apply(install: Install, impl: str, apply: Callable[..., Any]) -> None:
    """Make `apply` the autograd function of an implementation."""
    module, name = liger_hopper._PLACES[impl]
    install(f"liger_kernel.ops.{impl}.ops.{module}", {name: SimpleNamespace(apply=apply)})


@pytest.fixture
def make(install: Install, make_peer: type, monkeypatch: pytest.MonkeyPatch) -> Make:
    """The stand-in of an implementation, on what passes for a Hopper GPU."""
    monkeypatch.setattr(liger_hopper, "on_hopper", lambda tensor: True)

    def put(impl: str, sizes: tuple[int, int, int] = (128, 24, 256)) -> Any:
        peer = make_peer("liger", {"impl": impl}, sizes, "bfloat16")

        def apply(x: Tensor, weight: Tensor, target: Tensor, *rest: Any) -> Any:
            given = dict(zip(NAMES[impl], rest, strict=True))
            peer.calls.append(given)
            loss = peer.loss(x, weight, target, **given)
            return loss if impl == "cutedsl" else (loss, None, None, None)

        put_apply(install, impl, apply)
        return peer

    return put


@IMPLS
@pytest.mark.parametrize(
    "case",
    [
        {},
        {"ignored_share": 0.3},
        {"ignore_index": 5, "ignored_share": 0.2},
        {"reduction": "sum"},
        {"frozen": "input"},
        {"frozen": "weight"},
    ],
)
def test_liger_hopper_implementation_does_what_it_has(
    make: Make, impl: str, case: dict[str, Any]
) -> None:
    peer = make(impl)
    inputs = peer.inputs(**case)

    outputs = forward_backward(peer.build(), inputs)

    errors = relative_errors(outputs, reference(inputs, inputs.problem))
    assert max(errors.values()) <= 5e-3
    assert len(peer.calls) == 1


@IMPLS
@pytest.mark.parametrize("case", LACKING)
def test_liger_hopper_implementation_refuses_every_other_option(
    make: Make, impl: str, case: dict[str, Any]
) -> None:
    peer = make(impl)
    inputs = peer.inputs(**case)
    (option,) = inputs.problem.options_used

    with pytest.raises(UnsupportedHere, match=f"liger's {impl} has no {option}"):
        inputs.loss(peer.build())
    assert not peer.calls


@IMPLS
def test_liger_hopper_implementation_that_does_not_import_is_unsupported(
    monkeypatch: pytest.MonkeyPatch, impl: str
) -> None:
    monkeypatch.setitem(sys.modules, "liger_kernel", None)

    with pytest.raises(UnsupportedHere, match=f"liger's {impl} does not import here: "):
        build("liger", None, {"impl": impl})


def test_liger_variable_for_another_device_is_unsupported(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What liger raises on import where LIGER_KERNEL_IMPL names what the device cannot run."""

    def refuse(name: str) -> None:
        raise RuntimeError("LIGER_KERNEL_IMPL='cutile' supports devices (cuda), not 'cpu'")

    monkeypatch.setattr(liger_hopper.importlib, "import_module", refuse)

    with pytest.raises(UnsupportedHere, match="supports devices"):
        liger_hopper.build("cutile", {})


@IMPLS
def test_liger_hopper_implementation_is_refused_off_hopper_and_off_bfloat16(
    make: Make, monkeypatch: pytest.MonkeyPatch, impl: str
) -> None:
    peer = make(impl)
    peer.dtype = "float16"
    with pytest.raises(UnsupportedHere, match=r"bfloat16 only; here is torch.float16"):
        peer.inputs().loss(peer.build())

    monkeypatch.undo()
    peer = make(impl)
    monkeypatch.setattr(liger_hopper, "on_hopper", lambda tensor: False)
    with pytest.raises(UnsupportedHere, match=f"liger's {impl} needs a Hopper GPU"):
        peer.inputs().loss(peer.build())
    assert not peer.calls


def test_liger_hopper_is_no_cpu(make_peer: type) -> None:
    inputs = make_peer("liger", {}, (4, 8, 16), "bfloat16").inputs()

    assert not liger_hopper.on_hopper(inputs.x)


@IMPLS
@pytest.mark.parametrize("params", [{"accum_dtype": "float32"}, {"chunk_mem_const": 8}])
def test_liger_hopper_implementation_refuses_params_of_the_triton_one(
    make: Make, impl: str, params: dict[str, Any]
) -> None:
    with pytest.raises(UnsupportedHere, match="has neither accum_dtype nor chunk_mem_const"):
        make(impl).build(**params)


@pytest.mark.parametrize("sizes", [(100, 24, 256), (128, 24, 300)])
def test_liger_cutedsl_size_off_its_tiles_is_refused_and_cutile_takes_it(
    make: Make, sizes: tuple[int, int, int]
) -> None:
    peer = make("cutedsl", sizes)
    with pytest.raises(UnsupportedHere, match="needs N % 128 == 0 and V % 256 == 0"):
        peer.inputs().loss(peer.build())

    peer = make("cutile", sizes)
    peer.inputs().loss(peer.build())
    assert len(peer.calls) == 1


def test_liger_cutile_without_its_compiler_is_unsupported_and_other_errors_are_not(
    install: Install, make: Make
) -> None:
    peer = make("cutile")
    error: Exception = FileNotFoundError("'tileiras' compiler not found")

    def apply(*_: object) -> None:
        raise error

    put_apply(install, "cutile", apply)
    with pytest.raises(UnsupportedHere, match="liger's cutile: 'tileiras' compiler not found"):
        peer.inputs().loss(peer.build())

    error = RuntimeError("an illegal memory access was encountered")
    with pytest.raises(RuntimeError, match="illegal memory access"):
        peer.inputs().loss(peer.build())
