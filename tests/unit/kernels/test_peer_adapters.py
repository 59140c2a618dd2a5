"""Adapters of the peers, on stand-ins with their signatures whose arithmetic is torch's.

A stand-in computes what the real one promises for the arguments it gets, so an option that is
passed on wrongly, or dropped, shows as a wrong loss or gradient.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from lossbench.kernels.catalogue import OPTIONS, build, spec_of
from lossbench.kernels.errors import UnsupportedHere
from lossbench.kernels.problem import Problem, forward_backward
from lossbench.kernels.reference import reference, relative_errors

Install = Callable[[str, dict[str, Any]], None]
Make = Callable[[Callable[..., Any]], Any]


def cce(install: Install, make_peer: type) -> Any:
    peer = make_peer("cce", {}, (50, 24, 131), "bfloat16")

    def linear_cross_entropy(
        e: Tensor,
        c: Tensor,
        targets: Tensor,
        ignore_index: int = -100,
        softcap: float | None = None,
        reduction: str = "mean",
        shift: bool = False,
        filter_eps: float | str | None = "high",
        impl: str = "cce",
    ) -> Tensor:
        peer.calls.append({"shift": shift, "filter_eps": filter_eps, "impl": impl})
        return peer.loss(
            e, c, targets, ignore_index=ignore_index, softcap=softcap, reduction=reduction
        )

    install("cut_cross_entropy", {"linear_cross_entropy": linear_cross_entropy})
    return peer


def quack(install: Install, make_peer: type) -> Any:
    peer = make_peer("quack", {"scaled_exp": False}, (48, 24, 136), "bfloat16")

    def chunked_linear_cross_entropy(
        x: Tensor,
        weight: Tensor,
        target: Tensor,
        chunk_size: int = 4096,
        ignore_index: int = -100,
        reduction: str = "mean",
        tuned: bool = True,
        use_scaled_exp: bool | None = None,
    ) -> Tensor:
        peer.calls.append({"chunk": chunk_size, "tuned": tuned, "scaled_exp": use_scaled_exp})
        return peer.loss(x, weight, target, ignore_index=ignore_index, reduction=reduction)

    members = {
        "chunked_linear_cross_entropy": chunked_linear_cross_entropy,
        "scaled_exp_lce_supported": lambda x, weight, chunk, reduction: weight.shape[0] % 128 == 0,
    }
    install("quack.linear_cross_entropy", members)
    return peer


def fla(install: Install, make_peer: type) -> Any:
    peer = make_peer("fla", {}, (50, 24, 131), "float32")

    def fused_linear_cross_entropy_loss(
        x: Tensor,
        target: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        ignore_index: int = -100,
        label_smoothing: float = 0.0,
        logit_scale: float = 1.0,
        logit_softcapping: float | None = None,
        num_chunks: int = 8,
        reduction: str = "mean",
        use_l2warp: bool = False,
        l2_penalty_factor: float = 1e-4,
        accumulate_grad_in_fp32: bool = True,
        process_group: object = None,
    ) -> Tensor:
        peer.calls.append({"num_chunks": num_chunks, "fp32": accumulate_grad_in_fp32})
        return peer.loss(
            x,
            weight,
            target,
            bias=bias,
            ignore_index=ignore_index,
            label_smoothing=label_smoothing,
            logit_scale=logit_scale,
            softcap=logit_softcapping,
            reduction="mean" if reduction == "mean" else "sum",
        )

    members = {"fused_linear_cross_entropy_loss": fused_linear_cross_entropy_loss}
    install("fla.modules.fused_linear_cross_entropy", members)
    for name in ("fused_linear_cross_entropy", "fused_cross_entropy"):
        install(f"fla.modules.{name}.ops", {})
    install("fla.modules.fused_linear_cross_entropy", members)
    return peer


def geiping(install: Install, make_peer: type) -> Any:
    peer = make_peer("geiping", {}, (512, 256, 4096), "float32")

    def linear_cross_entropy(
        x: Tensor,
        y: Tensor,
        At: Tensor,
        ignore_index: int = -100,
        z_regularization: float = 0.0,
        logit_scale: float = 1.0,
        N_chunk_size: int = 4096,
        monitoring: bool = False,
    ) -> tuple[Tensor, ...]:
        peer.calls.append({"shape": tuple(At.shape), "view_of": At.data_ptr(), "N": N_chunk_size})
        loss = peer.loss(
            x,
            At.t(),
            y,
            ignore_index=ignore_index,
            lse_square_scale=z_regularization,
            logit_scale=logit_scale,
        )
        return loss, *(torch.zeros(()) for _ in range(4))

    install("linear_cross_entropy", {"linear_cross_entropy": linear_cross_entropy})
    return peer


PEERS = [cce, quack, fla, geiping]
CASES: list[dict[str, Any]] = [
    {},
    {"bias": True},
    {"class_weight": True},
    {"ignored_share": 0.4},
    {"ignore_index": 5, "ignored_share": 0.2},
    {"label_smoothing": 0.1},
    {"softcap": 1.5},
    {"logit_scale": 0.25},
    {"lse_square_scale": 0.01, "ignored_share": 0.2},
    {"reduction": "sum", "ignored_share": 0.2},
    {"reduction": "none", "ignored_share": 0.2},
    {"frozen": "input"},
    {"frozen": "weight"},
]


@pytest.fixture
def make(install: Install, make_peer: type) -> Make:
    """Put a peer's stand-in where its adapter imports it from."""
    return lambda peer: peer(install, make_peer)


def test_peer_cases_cover_every_option() -> None:
    used = (Problem(4, 8, 10, **case).options_used for case in CASES)

    assert frozenset().union(*used) == OPTIONS


@pytest.mark.parametrize("stand_in", PEERS)
def test_peer_does_what_its_entry_declares_and_refuses_the_rest(
    make: Make, stand_in: Callable[..., Any]
) -> None:
    peer = make(stand_in)
    function, declared = peer.build(), spec_of(peer.kernel).options
    for case in CASES:
        inputs, calls = peer.inputs(**case), len(peer.calls)
        lacking = inputs.problem.options_used - declared
        if lacking:
            with pytest.raises(UnsupportedHere, match=f"has no {min(lacking)}"):
                inputs.loss(function)
            assert len(peer.calls) == calls
            continue

        outputs = forward_backward(function, inputs)

        errors = relative_errors(outputs, reference(inputs, inputs.problem))
        # the stand-ins work in float32: what is left is the rounding of bfloat16 gradients
        assert max(errors.values()) <= (1e-5 if peer.dtype == "float32" else 5e-3), (case, errors)


@pytest.mark.parametrize(
    ("kernel", "package"),
    [
        ("cce", "cut_cross_entropy"),
        ("quack", "quack"),
        ("fla", "fla"),
        ("geiping", "linear_cross_entropy"),
    ],
)
def test_peer_that_does_not_import_is_unsupported(
    kernel: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)

    with pytest.raises(UnsupportedHere, match=f"{kernel} does not import here: .*{package}"):
        build(kernel, None, {})


@pytest.mark.parametrize("filter_eps", ["high", "auto", None])
def test_cce_filter_reaches_its_triton_implementation(make: Make, filter_eps: str | None) -> None:
    peer = make(cce)

    peer.inputs().loss(peer.build(filter_eps=filter_eps))

    assert peer.calls == [{"shift": False, "filter_eps": filter_eps, "impl": "cce"}]


def test_cce_git_form_with_a_bias_gets_it(install: Install, make: Make) -> None:
    given: dict[str, Any] = {}

    def linear_cross_entropy(
        e: Tensor, c: Tensor, targets: Tensor, bias: Tensor | None = None, **rest: Any
    ) -> Tensor:
        given.update(rest, bias=bias)
        return e.sum()

    peer = make(cce)
    install("cut_cross_entropy", {"linear_cross_entropy": linear_cross_entropy})
    inputs = peer.inputs(bias=True, softcap=3.0)

    inputs.loss(peer.build())

    assert given["bias"] is inputs.bias
    assert given["softcap"] == 3.0


def test_cce_float32_that_its_backward_asserts_against_is_refused(make: Make) -> None:
    peer = make(cce)
    peer.dtype = "float32"

    with pytest.raises(UnsupportedHere, match=r"does not take torch.float32"):
        peer.inputs().loss(peer.build())


@pytest.mark.parametrize("scaled_exp", [None, False])
def test_quack_is_called_with_its_params_and_its_own_tuning(
    make: Make, scaled_exp: bool | None
) -> None:
    peer = make(quack)

    peer.inputs().loss(peer.build(chunk_size=16, scaled_exp=scaled_exp))

    assert peer.calls == [{"chunk": 16, "tuned": True, "scaled_exp": scaled_exp}]


def test_quack_scaled_exp_where_it_cannot_be_is_refused(make: Make) -> None:
    peer = make(quack)

    with pytest.raises(UnsupportedHere, match="scaled-exp needs sm_90, bfloat16"):
        peer.inputs().loss(peer.build(scaled_exp=True))


def test_quack_ragged_tokens_are_left_to_scaled_exp_and_refused_by_the_base(
    make: Make,
) -> None:
    peer = make(quack)
    peer.sizes = (50, 24, 256)

    peer.inputs().loss(peer.build(scaled_exp=None))
    assert peer.calls[-1]["scaled_exp"] is None

    for params, vocab in (({"scaled_exp": False}, 256), ({"scaled_exp": None}, 136)):
        peer.sizes = (50, 24, vocab)
        with pytest.raises(UnsupportedHere, match="base pipeline needs N % 8 == 0"):
            peer.inputs().loss(peer.build(**params))


def test_fla_params_reach_it(make: Make) -> None:
    peer = make(fla)

    peer.inputs().loss(peer.build(num_chunks=2, accumulate_grad_in_fp32=False))
    peer.inputs().loss(peer.build())

    assert peer.calls == [{"num_chunks": 2, "fp32": False}, {"num_chunks": 8, "fp32": True}]


def test_geiping_weight_is_a_transposed_view_without_a_copy(make: Make) -> None:
    peer = make(geiping)
    inputs = peer.inputs()

    inputs.loss(peer.build(chunk_rows=512))

    call = {"shape": (256, 4096), "view_of": inputs.weight.data_ptr(), "N": 512}
    assert peer.calls == [call]


@pytest.mark.parametrize(
    ("sizes", "chunk_rows", "message"),
    [
        ((500, 256, 4096), 4096, r"N % 512 == 0; here is 500"),
        ((512, 128, 4096), 4096, r"H % 256 == 0; here is 128"),
        ((512, 256, 4000), 4096, r"V % 4096 == 0; here is 4000"),
        ((512, 256, 4096), 768, r"chunk_rows % 512 == 0; here is 768"),
        # its kernels check no bounds: the last chunk would be read past its end
        ((1536, 256, 4096), 1024, r"N % 1024 == 0 above that; here is 1536"),
    ],
)
def test_geiping_size_that_its_author_excludes_is_refused(
    make: Make, sizes: tuple[int, int, int], chunk_rows: int, message: str
) -> None:
    peer = make(geiping)
    peer.sizes = sizes

    with pytest.raises(UnsupportedHere, match=message):
        peer.inputs().loss(peer.build(chunk_rows=chunk_rows))
    assert not peer.calls


FLA_INTERPRETED = """
import json, sys
from lossbench.kernels.catalogue import build
from lossbench.kernels.inputs import make_inputs
from lossbench.kernels.problem import Problem, forward_backward
from lossbench.kernels.reference import reference, relative_errors

function, found = build("fla", None, {"num_chunks": 3}), []
for case in json.loads(sys.argv[1]):
    problem = Problem(50, 24, 131, "float32", upstream="random", **case)
    inputs = make_inputs(problem, "cpu", 0)
    errors = relative_errors(forward_backward(function, inputs), reference(inputs, problem))
    found.append(max(errors.values()))
print(json.dumps(found))
"""


@pytest.mark.skipif(
    importlib.util.find_spec("fla") is None, reason="fla is not on the path (fla-core, einops)"
)
def test_fla_in_tritons_interpreter_matches_the_reference() -> None:
    options = spec_of("fla").options
    cases = [case for case in CASES if Problem(4, 8, 10, **case).options_used <= options]

    done = subprocess.run(
        [sys.executable, "-P", "-W", "ignore", "-c", FLA_INTERPRETED, json.dumps(cases)],
        env=os.environ | {"TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert len(cases) == 10
    assert max(json.loads(done.stdout)) <= 2e-6
