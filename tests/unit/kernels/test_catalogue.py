"""The catalogue: params, reasons, estimates, and that it is data without torch."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from lossbench.kernels.catalogue import (
    CATALOGUE,
    OPTIONS,
    PASSES,
    ROOFS,
    Need,
    Param,
    as_json,
    build,
    estimate_peak_bytes,
    estimate_seconds,
    spec_of,
    why_unsupported,
)
from lossbench.kernels.errors import UnknownKernel

GPU = Need(
    dtype="bfloat16",
    options=frozenset(),
    device_type="cuda",
    torch_version="2.11.0+cu128",
    triton_version="3.6.0",
    compute_capability=(9, 0),
)
CPU = Need(
    dtype="float32",
    options=frozenset(),
    device_type="cpu",
    torch_version="2.13.0+cpu",
    triton_version="3.7.1",
)
LLAMA = (8192, 4096, 128256, 2)


@pytest.mark.parametrize(
    ("param", "value", "expected"),
    [
        (Param("rows", "int", 4, minimum=1, maximum=8), 8, 8),
        (Param("rows", "int", None, nullable=True), None, None),
        (Param("cap", "float", 1.0), 3, 3.0),
        (Param("mode", "str", "a", choices=("a", "b")), "b", "b"),
        (Param("flag", "bool", False), True, True),
    ],
)
def test_param_allowed_value_is_returned(param: Param, value: object, expected: object) -> None:
    got = param.check(value)

    assert got == expected
    assert type(got) is type(expected)


@pytest.mark.parametrize(
    ("param", "value", "message"),
    [
        (Param("rows", "int", 4, minimum=1, maximum=8), 9, "rows=9: must be an integer >= 1 and"),
        (Param("rows", "int", 4), True, "rows=True: must be an integer"),
        (Param("rows", "int", 4), 1.5, "rows=1.5: must be an integer"),
        (Param("rows", "int", 4), None, "rows=None: must be an integer"),
        (Param("mode", "str", "a", choices=("a", "b")), "c", "mode='c': must be 'a' or 'b'"),
        (Param("cap", "float", 1.0, minimum=0), float("nan"), "cap=nan: must be a number >= 0"),
        (Param("flag", "bool", None, nullable=True), 1, "flag=1: must be a bool or null"),
    ],
)
def test_param_forbidden_value_is_named(param: Param, value: object, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        param.check(value)

    assert message in str(caught.value)


def test_spec_unknown_param_lists_its_params() -> None:
    with pytest.raises(ValueError, match="liger has no param 'chunks'; it has: accum_dtype, chunk"):
        spec_of("liger").complete({"chunks": 8})


def test_spec_missing_params_become_defaults() -> None:
    params = spec_of("torch-compile-chunked").complete({"chunk_rows": 256})

    assert params == {
        "chunk_rows": 256,
        "split": "fixed",
        "dynamic": None,
        "shape_padding": False,
    }


def test_catalogue_order_is_torchs_own_then_the_peers_then_ours() -> None:
    assert " ".join(CATALOGUE) == (
        "torch-upcast torch-naive torch-compile torch-compile-chunked torch-native "
        "liger cce quack fla geiping flce"
    )


def test_catalogue_unknown_kernel_is_an_error_that_lists_the_known() -> None:
    with pytest.raises(UnknownKernel, match="no kernel 'liga'; known: torch-upcast"):
        spec_of("liga")


def test_catalogue_specs_use_only_known_words() -> None:
    for name, spec in CATALOGUE.items():
        assert spec.name == name
        assert spec.options <= OPTIONS
        assert set(spec.option_since) <= spec.options
        assert set(spec.products) == set(PASSES)
        products = spec.products
        # cce alone keeps no logits and makes them twice
        total = 4 if name == "cce" else 3
        assert products["forward"] + products["backward"] == products["forward_backward"] == total
        for param in spec.params:
            assert param.check(param.default) == param.default


def test_liger_versions_are_35_of_which_20_differ() -> None:
    spec = spec_of("liger")

    assert len(spec.versions) == 35
    assert spec.versions[:3] == ("0.0.0", "0.0.1", "0.1.0")
    assert spec.versions[-1] == "0.8.5"
    assert len(set(spec.versions) - set(spec.twins)) == 20
    assert spec.twins["0.6.1"] == "0.5.9"
    assert not set(spec.twins.values()) & set(spec.twins)


@pytest.mark.parametrize(
    ("kernel", "version", "params", "need", "reason"),
    [
        ("liger", "0.8.5", {}, GPU, None),
        ("liger", "0.9.0", {}, GPU, "liger has no known version 0.9.0"),
        (
            "liger",
            "0.1.1",
            {},
            replace(GPU, options=frozenset({"bias"})),
            "liger@0.1.1 has no bias; it came with 0.2.0",
        ),
        ("liger", "0.5.10", {}, replace(GPU, options=frozenset({"class_weight"})), None),
        (
            "liger",
            "0.8.5",
            {},
            replace(GPU, options=frozenset({"logit_scale"})),
            "liger@0.8.5 has no logit_scale",
        ),
        (
            "liger",
            "0.6.1",
            {"accum_dtype": "float32"},
            GPU,
            "liger@0.6.1 has no param accum_dtype; it came with 0.6.2",
        ),
        ("liger", "0.6.1", {"accum_dtype": None}, GPU, None),
        (
            "liger",
            "0.8.5",
            {},
            replace(GPU, dtype="float64"),
            "liger@0.8.5 does not take float64; it takes bfloat16, float16, float32",
        ),
        (
            "liger",
            "0.8.5",
            {},
            CPU,
            "liger@0.8.5 is a Triton kernel: on the CPU it runs only interpreted and in float32",
        ),
        ("liger", "0.8.5", {}, replace(CPU, interpreted=True), None),
        (
            "liger",
            "0.8.5",
            {},
            replace(CPU, interpreted=True, dtype="bfloat16"),
            "on the CPU, interpreted, liger@0.8.5 is only right in float32",
        ),
        (
            "liger",
            "0.8.5",
            {},
            replace(GPU, triton_version=None),
            "liger@0.8.5 needs triton, which is not installed",
        ),
        ("flce", "1", {}, CPU, None),
        ("flce", "1", {}, replace(CPU, dtype="bfloat16"), None),
        (
            "flce",
            "1",
            {},
            replace(GPU, torch_version="2.8.1"),
            "flce@1 needs torch >= 2.9; here is 2.8.1",
        ),
        ("flce", "1", {}, replace(GPU, torch_version="2.9.0a0+git12"), None),
        (
            "torch-compile-chunked",
            None,
            {},
            replace(CPU, compiler=False),
            "torch-compile-chunked needs a C++ compiler on the CPU; none is on the PATH",
        ),
        (
            "torch-compile-chunked",
            "2.11.0",
            {},
            replace(GPU, options=frozenset({"reduction_none"})),
            "torch-compile-chunked has no reduction_none",
        ),
        ("torch-naive", "2.13.0", {}, replace(CPU, options=OPTIONS, dtype="float64"), None),
        ("torch-native", "2.13.0", {}, replace(CPU, dtype="bfloat16"), None),
        (
            "torch-native",
            "2.13.0",
            {},
            replace(CPU, options=frozenset({"label_smoothing"})),
            "torch-native has no label_smoothing",
        ),
        (
            "liger",
            "0.8.1",
            {"impl": "cutile"},
            GPU,
            "liger@0.8.1 has no param impl; it came with 0.8.2",
        ),
        (
            "liger",
            "0.8.5",
            {"impl": "cutedsl"},
            replace(GPU, sizes={"N": 4096, "H": 4096, "V": 50257}),
            "liger@0.8.5 needs V % 256 == 0; here is 50257",
        ),
        ("liger", "0.8.5", {}, replace(GPU, sizes={"N": 7, "H": 9, "V": 50257}), None),
        ("cce", "25.1.1", {}, GPU, None),
        ("cce", "25.1.1", {}, replace(CPU, dtype="bfloat16"), "cce@25.1.1 needs an NVIDIA GPU"),
        (
            "cce",
            "25.1.1",
            {},
            replace(GPU, dtype="float32"),
            "cce@25.1.1 does not take float32; it takes bfloat16, float16",
        ),
        ("quack", "0.6.5", {}, replace(GPU, sizes={"N": 4097, "H": 4096, "V": 128256}), None),
        (
            "quack",
            "0.6.5",
            {"scaled_exp": False},
            replace(GPU, sizes={"N": 4097, "H": 4096, "V": 128256}),
            "quack@0.6.5 needs N % 8 == 0; here is 4097",
        ),
        (
            "quack",
            "0.6.5",
            {},
            replace(GPU, compute_capability=(8, 0)),
            "quack@0.6.5 needs compute capability >= 9.0; this GPU has 8.0",
        ),
        ("fla", "0.6.0", {}, replace(CPU, interpreted=True), None),
        (
            "geiping",
            "3da8e5f",
            {},
            replace(GPU, sizes={"N": 8192, "H": 4096, "V": 128256}),
            "geiping needs V % 4096 == 0; here is 128256",
        ),
    ],
)
def test_why_unsupported_case_gives_its_reason(
    kernel: str, version: str | None, params: dict[str, Any], need: Need, reason: str | None
) -> None:
    assert why_unsupported(spec_of(kernel), version, params, need) == reason


def test_why_unsupported_old_gpu_names_both_capabilities() -> None:
    spec = replace(spec_of("liger"), minimum_compute_capability=(9, 0))

    reason = why_unsupported(spec, "0.8.5", {}, replace(GPU, compute_capability=(8, 6)))

    assert reason == "liger@0.8.5 needs compute capability >= 9.0; this GPU has 8.6"


def workspace(kernel: str, version: str | None = None, **params: Any) -> int:
    """Bytes beyond inputs and outputs at the Llama shape."""
    tokens, hidden, vocab, size = LLAMA
    kept = 2 * size * (tokens * hidden + vocab * hidden) + 8 * tokens + 2 * size * vocab
    return estimate_peak_bytes(spec_of(kernel), params, *LLAMA, version=version) - kept


def test_estimate_peak_bytes_llama_shape_follows_each_kernels_formula() -> None:
    tokens, hidden, vocab, size = LLAMA
    logits, weights, liger_rows = size * tokens * vocab, size * vocab * hidden, 256
    outputs = size * tokens * hidden + weights

    # measured on an H200, to the MiB: 4946 and 10958
    assert workspace("torch-naive") == 3 * logits - outputs == 4946 * 2**20
    assert workspace("torch-upcast") == 6 * logits - outputs == 10958 * 2**20
    assert workspace("flce", "1") == logits + 2 * tokens * hidden
    assert workspace("flce", "1", chunk_rows=4096) == 2 * weights + 4 * tokens * hidden
    assert workspace("liger", "0.8.5") == size * liger_rows * vocab
    assert workspace("liger", "0.8.5", chunk_mem_const=8) == 8 * size * liger_rows * vocab
    assert workspace("liger", "0.8.5", accum_dtype="float32") == (
        size * liger_rows * vocab + 2 * weights
    )


def test_estimate_peak_bytes_peers_follow_their_formulas() -> None:
    tokens, hidden, vocab, size = LLAMA
    logits, weights, hiddens = size * tokens * vocab, size * vocab * hidden, size * tokens * hidden

    # measured on an H200: 2004 MiB, and 2270.5 with the float32 rows of dX
    assert workspace("torch-compile") == logits == 2004 * 2**20
    assert workspace("torch-compile-chunked") == 2 * weights + size * 1024 * vocab
    # 128 rows of float32 logits with a copy in bfloat16
    assert workspace("torch-native") == 6 * 128 * vocab
    assert workspace("torch-native", chunk_rows=512) == 6 * 512 * vocab
    accurate = {"acc_policy": "accurate", "accum_dtype": "float32"}
    assert workspace("torch-native", **accurate) == 6 * 128 * vocab + 4 * weights + 2 * hiddens
    assert workspace("liger", "0.8.5", impl="cutedsl") == logits + hiddens
    assert workspace("cce", "25.1.1") == 12 * tokens + 16 * vocab
    # the larger of: a chunk beside dW in float32, and that dW beside its cast
    assert workspace("quack", "0.6.5") == 2 * weights
    assert workspace("quack", "0.6.5", chunk_size=8192) == logits + weights
    assert workspace("fla", "0.6.0") == 2 * weights
    assert workspace("fla", "0.6.0", num_chunks=1) == 6 * tokens * vocab + weights


def test_estimate_peak_bytes_liger_has_its_known_regression_and_repair() -> None:
    before, during, after = (workspace("liger", version) for version in ("0.6.1", "0.6.2", "0.8.3"))

    assert during > 10 * before
    assert after <= before


def test_estimate_seconds_are_above_the_products_and_in_the_known_order() -> None:
    tokens, hidden, vocab, _ = LLAMA
    products = 3 * 2 * tokens * hidden * vocab / ROOFS["cuda"].flops_per_second

    def seconds(kernel: str, version: str | None = None) -> float:
        spec = spec_of(kernel)
        return estimate_seconds(spec, {}, tokens, hidden, vocab, ROOFS["cuda"], version)

    assert products < seconds("flce", "1") < seconds("torch-naive") < seconds("torch-upcast")
    assert seconds("torch-upcast") < seconds("liger", "0.8.5") < seconds("liger", "0.8.0")


def test_estimate_no_tokens_is_the_size_of_the_weights() -> None:
    for spec in CATALOGUE.values():
        peak = estimate_peak_bytes(spec, {}, 0, 64, 100, 4)

        assert peak >= 2 * 64 * 100 * 4


def test_json_is_stable_and_survives_a_round_trip() -> None:
    text = json.dumps(as_json(), indent=1, sort_keys=True)

    assert json.dumps(as_json(), indent=1, sort_keys=True) == text
    data = json.loads(text)
    assert data["kernels"]["liger"]["params"][0]["choices"] == ["float32"]
    assert data["kernels"]["flce"]["options"] == sorted(OPTIONS)
    assert data["presets"]["gemma-2-2b"]["options"] == {"softcap": 30.0}
    assert list(data["kernels"]) == sorted(CATALOGUE)


def test_catalogue_cli_prints_json_without_importing_torch() -> None:
    script = (
        "import runpy, sys\n"
        "try: runpy.run_module('lossbench.kernels.catalogue', run_name='__main__')\n"
        "except SystemExit: pass\n"
        "assert 'torch' not in sys.modules and 'triton' not in sys.modules\n"
    )

    done = subprocess.run(
        [sys.executable, "-P", "-c", script], capture_output=True, text=True, check=True
    )

    assert json.loads(done.stdout) == as_json()


def test_build_wrong_param_is_refused_before_any_import() -> None:
    with pytest.raises(ValueError, match="chunk_rows=0: must be an integer >= 1"):
        build("flce", "1", {"chunk_rows": 0})
