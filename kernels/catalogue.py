"""Every kernel that can be a contender: pure data; adapters are imported when built.

`python -P -m lossbench.kernels.catalogue` prints it as JSON.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, cast

from .errors import UnknownKernel
from .estimates import INPUTS_AND_OUTPUTS, ROOFS, Roof, estimate_peak_bytes, estimate_seconds
from .kernel_spec import (
    OPTIONS,
    PASSES,
    KernelSpec,
    Memory,
    Need,
    Param,
    ParamValue,
    Term,
)
from .presets import PRESETS
from .support import why_unsupported

if TYPE_CHECKING:
    from .protocol import LossFunction

__all__ = [
    "CATALOGUE",
    "OPTIONS",
    "PASSES",
    "ROOFS",
    "KernelSpec",
    "Memory",
    "Need",
    "Param",
    "ParamValue",
    "Roof",
    "Term",
    "as_json",
    "build",
    "estimate_peak_bytes",
    "estimate_seconds",
    "spec_of",
    "why_unsupported",
]

_ALL_DTYPES = frozenset({"bfloat16", "float16", "float32", "float64"})
_THREE_DTYPES = frozenset({"bfloat16", "float16", "float32"})
_AUTOGRAD_PRODUCTS = {"forward": 1, "backward": 2, "forward_backward": 3}
_FORWARD_PRODUCTS = {"forward": 3, "backward": 0, "forward_backward": 3}

# The 35 releases on PyPI; 20 differ in the code of the two files that this call runs
# (hash of their syntax trees without docstrings, 2026-11-30).
_LIGER_PATCHES: Mapping[str, int] = {
    "0.0": 1,
    "0.1": 1,
    "0.2": 1,
    "0.3": 1,
    "0.4": 2,
    "0.5": 10,
    "0.6": 5,
    "0.7": 0,
    "0.8": 5,
}
_LIGER_VERSIONS = tuple(
    f"{minor}.{patch}" for minor, last in _LIGER_PATCHES.items() for patch in range(last + 1)
)
_LIGER_TWINS = {
    "0.0.1": "0.0.0",
    "0.1.0": "0.0.0",
    "0.1.1": "0.0.0",
    "0.2.1": "0.2.0",
    "0.3.1": "0.3.0",
    "0.4.2": "0.4.1",
    "0.5.1": "0.5.0",
    "0.5.2": "0.5.0",
    "0.5.4": "0.5.3",
    "0.5.7": "0.5.6",
    "0.5.8": "0.5.6",
    "0.5.10": "0.5.9",
    "0.6.0": "0.5.9",
    "0.6.1": "0.5.9",
    "0.7.0": "0.6.5",
}

_KERNELS: tuple[KernelSpec, ...] = (
    KernelSpec(
        name="torch-naive",
        summary="logits in the input dtype, then torch's cross entropy: the default baseline",
        origin="built-in",
        build="lossbench.kernels.adapters.torch_plain:build_naive",
        options=OPTIONS,
        dtypes=_ALL_DTYPES,
        gradients_in_forward=False,
        products=_AUTOGRAD_PRODUCTS,
        # Alive at once in the backward: log-probabilities, their gradient, the logits' gradient.
        memory=Memory(forward=(Term("NV", 2),), backward=(Term("NV", 3),)),
        traffic=(Term("NV", 5),),
    ),
    KernelSpec(
        name="torch-upcast",
        summary="logits cast to float32, then torch's cross entropy: what Hugging Face did",
        origin="built-in",
        build="lossbench.kernels.adapters.torch_plain:build_upcast",
        options=OPTIONS,
        dtypes=_ALL_DTYPES,
        gradients_in_forward=False,
        products=_AUTOGRAD_PRODUCTS,
        # The same three in float32: 12 bytes x NV for bf16, 24 for fp64.
        memory=Memory(forward=(Term("NV", 1, 8),), backward=(Term("NV", 2, 8),)),
        traffic=(Term("NV", 3, 22),),
    ),
    KernelSpec(
        name="torch-compile-chunked",
        summary="gradient-in-forward token chunks compiled with torch.compile",
        origin="built-in",
        build="lossbench.kernels.adapters.torch_compile_chunked:build",
        params=(
            Param("chunk_rows", "int", 1024, minimum=16, maximum=65536, help="rows per chunk"),
            Param(
                "split",
                "str",
                "fixed",
                choices=("even", "fixed"),
                help="even: the chunk size follows N, so each new N may recompile; "
                "fixed: the last chunk is padded with ignored rows",
            ),
            Param(
                "dynamic",
                "bool",
                None,
                nullable=True,
                help="torch.compile's `dynamic`; null lets it choose after the first recompile",
            ),
            Param("shape_padding", "bool", False, help="Inductor's shape_padding"),
        ),
        options=OPTIONS - {"reduction_none"},
        dtypes=_ALL_DTYPES,
        gradients_in_forward=True,
        products=_FORWARD_PRODUCTS,
        needs_compiler=True,
        chunk_rule="fixed:chunk_rows",
        memory=Memory(
            forward=(Term("VH", 1), Term("CV", 2)), backward=(Term("VH", 1), Term("NH", 1))
        ),
        traffic=(Term("KVH", 4), Term("NV", 4), Term("VH", 2)),
    ),
    KernelSpec(
        name="liger",
        summary="Liger-Kernel's fused linear cross entropy (Triton), every release",
        origin="package",
        package="liger-kernel",
        versions=_LIGER_VERSIONS,
        twins=_LIGER_TWINS,
        build="lossbench.kernels.adapters.liger:build",
        params=(
            Param(
                "accum_dtype",
                "str",
                None,
                choices=("float32",),
                nullable=True,
                since="0.6.2",
                help="dtype in which dW is summed over chunks; null: the weight's own",
            ),
            Param(
                "chunk_mem_const",
                "int",
                1,
                minimum=1,
                maximum=1024,
                since="0.8.3",
                help="logits may take this many times N x H; 1 is Liger's default",
            ),
        ),
        options=OPTIONS - {"logit_scale"},
        option_since={
            "bias": "0.2.0",
            "label_smoothing": "0.3.0",
            "reduction_sum": "0.3.0",
            "lse_square_scale": "0.4.1",
            "softcap": "0.4.1",
            "class_weight": "0.5.3",
            # Returned per token since 0.5.3, but the gradients were wrong until 0.8.2.
            "reduction_none": "0.8.2",
        },
        dtypes=_THREE_DTYPES,
        gradients_in_forward=True,
        products=_FORWARD_PRODUCTS,
        uses_triton=True,
        minimum_torch="2.1.2",
        minimum_triton="2.3.0",
        chunk_rule="liger",
        memory=Memory(
            forward=(
                Term("CV", 2, 4, before="0.5.0"),
                Term("CV", 2, since="0.5.0", before="0.8.3"),
                Term("CV", 1, since="0.8.3"),
                Term("VH", 1, 4, since="0.6.2", before="0.8.3", when={"accum_dtype": None}),
                Term("VH", 1, 8, since="0.6.2", before="0.8.1", when={"accum_dtype": "float32"}),
                Term("VH", bytes=4, since="0.8.1", when={"accum_dtype": "float32"}),
            )
        ),
        traffic=(
            Term("NV", 4, 16, before="0.5.0"),
            Term("NV", 3, since="0.5.0"),
            Term("KVH", 2, before="0.6.2"),
            Term("KVH", 4, 16, since="0.6.2", before="0.8.3", when={"accum_dtype": None}),
            Term("KVH", 2, since="0.8.3", when={"accum_dtype": None}),
            Term("KVH", 2, 16, since="0.6.2", before="0.8.1", when={"accum_dtype": "float32"}),
            Term("KVH", bytes=8, since="0.8.1", when={"accum_dtype": "float32"}),
        ),
    ),
    KernelSpec(
        name="flce",
        summary="ours: Triton cross entropy in place over token chunks, dW rounded once",
        origin="built-in",
        versions=("1",),
        build="lossbench.kernels.flce.contender:build",
        params=(
            Param(
                "chunk_rows",
                "int",
                None,
                minimum=1,
                maximum=1 << 20,
                nullable=True,
                help="tokens per chunk; null: one chunk where it fits, else at least 4096",
            ),
        ),
        options=OPTIONS,
        dtypes=_ALL_DTYPES,
        gradients_in_forward=True,
        products=_FORWARD_PRODUCTS,
        uses_triton=True,
        fallback=True,
        minimum_torch="2.9",
        minimum_triton="3.5",
        chunk_rule="flce",
        memory=Memory(
            forward=(
                Term("CV", 1),
                Term("VH", -1, 4, chunked=True),
                Term("NH", -1, 4),
            ),
            backward=(
                Term("VH", 1, chunked=False),
                Term("VH", bytes=4, chunked=True),
                Term("NH", bytes=4),
            ),
        ),
        traffic=(
            Term("NV", 3),
            Term("VH", 2, chunked=False),
            Term("VH", 1, 4, chunked=True),
            Term("KVH", bytes=8, chunked=True),
        ),
    ),
)

CATALOGUE: dict[str, KernelSpec] = {spec.name: spec for spec in _KERNELS}


def spec_of(name: str) -> KernelSpec:
    """The kernel of that name. Raises: UnknownKernel."""
    if name not in CATALOGUE:
        raise UnknownKernel(name, tuple(CATALOGUE))
    return CATALOGUE[name]


def build(name: str, version: str | None, params: Mapping[str, object]) -> LossFunction:
    """The contender as one call (`LossFunction`); imports its adapter.

    Raises: UnknownKernel; ValueError for a param it lacks; UnsupportedHere if its package is not
    importable or has a signature that the adapter does not know.
    """
    spec = spec_of(name)
    complete = spec.complete(params)
    module_name, _, function_name = spec.build.partition(":")
    factory = getattr(importlib.import_module(module_name), function_name)
    return cast("LossFunction", factory(version, complete))


def _plain(value: Any) -> Any:
    """JSON form: sets become sorted lists, tuples become lists."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    return value


def as_json() -> dict[str, Any]:
    """The whole catalogue and the presets as JSON data, in a fixed order."""
    return {
        "inputs_and_outputs": [_plain(asdict(term)) for term in INPUTS_AND_OUTPUTS],
        "kernels": {name: _plain(asdict(spec)) for name, spec in CATALOGUE.items()},
        "options": sorted(OPTIONS),
        "passes": list(PASSES),
        "presets": {name: _plain(asdict(preset)) for name, preset in PRESETS.items()},
        "roofs": {name: asdict(roof) for name, roof in ROOFS.items()},
    }


def main() -> int:
    """Print the catalogue as JSON."""
    sys.stdout.write(json.dumps(as_json(), indent=1, sort_keys=True) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
