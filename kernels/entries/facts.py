"""Sets and counts that several entries share."""

from __future__ import annotations

from ..kernel_spec import OPTIONS

__all__ = [
    "ALL_DTYPES",
    "AUTOGRAD_PRODUCTS",
    "CUTE_DSL",
    "CUTE_DSL_PATHS",
    "FORWARD_PRODUCTS",
    "OPTIONS",
    "PER_TOKEN",
    "RECOMPUTED_PRODUCTS",
    "THREE_DTYPES",
]

ALL_DTYPES = frozenset({"bfloat16", "float16", "float32", "float64"})
THREE_DTYPES = frozenset({"bfloat16", "float16", "float32"})
AUTOGRAD_PRODUCTS = {"forward": 1, "backward": 2, "forward_backward": 3}
FORWARD_PRODUCTS = {"forward": 3, "backward": 0, "forward_backward": 3}
RECOMPUTED_PRODUCTS = {"forward": 1, "backward": 3, "forward_backward": 4}
"""The backward makes the logits again: nothing of size N x V is ever stored."""

PER_TOKEN = frozenset({"reduction_none"})
"""Each row has an upstream gradient of its own, which only the backward knows."""

# One build of the CuTe DSL with all its parts. Its own .pth file puts the folder on the path; an
# installation into a folder of its own does not read that.
CUTE_DSL = (
    "nvidia-cutlass-dsl==4.8.1",
    "nvidia-cutlass-dsl-libs-base==4.8.1",
    "nvidia-cutlass-dsl-libs-core==4.8.1",
    "nvidia-cutlass-dsl-libs-cu13==4.8.1",
    "apache-tvm-ffi==0.1.15.post2",
    "torch-c-dlpack-ext==0.1.5",
)
CUTE_DSL_PATHS = ("nvidia_cutlass_dsl/dsl_packages",)
