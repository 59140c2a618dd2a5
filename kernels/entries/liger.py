"""Liger-Kernel, every release."""

from __future__ import annotations

from collections.abc import Mapping

from ..kernel_spec import Alignment, KernelSpec, Memory, Param, ParamValue, Setup, Term
from .facts import CUTE_DSL, CUTE_DSL_PATHS, FORWARD_PRODUCTS, OPTIONS, PER_TOKEN, THREE_DTYPES

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

# Its compiler, tileiras, knows Hopper only in later builds: that of 13.2 does not.
_CUTILE = (
    "cuda-tile==1.7.0",
    "nvidia-cuda-tileiras==13.4.92",
    "nvidia-cuda-nvcc==13.4.92",
    "nvidia-nvvm==13.4.92",
)
_TRITON: Mapping[str, ParamValue] = {"impl": "triton"}
_OWN_DTYPE: Mapping[str, ParamValue] = {"impl": "triton", "accum_dtype": None}
_FLOAT32: Mapping[str, ParamValue] = {"accum_dtype": "float32"}

ENTRIES: tuple[KernelSpec, ...] = (
    KernelSpec(
        name="liger",
        summary="Liger-Kernel's fused linear cross entropy (Triton), every release",
        origin="package",
        package="liger-kernel",
        versions=_LIGER_VERSIONS,
        twins=_LIGER_TWINS,
        build="lossbench.kernels.adapters.liger:build",
        usage=(
            "from liger_kernel.transformers.fused_linear_cross_entropy import (\n"
            "    LigerFusedLinearCrossEntropyLoss,\n"
            ")\n"
            "loss = LigerFusedLinearCrossEntropyLoss()(weight, input, target)"
        ),
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
            Param(
                "impl",
                "str",
                "triton",
                choices=("triton", "cutedsl", "cutile"),
                since="0.8.2",
                help="cutedsl and cutile: one pass on Hopper, bfloat16, mean or sum, no options",
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
        dtypes=THREE_DTYPES,
        gradients_in_forward=True,
        products=FORWARD_PRODUCTS,
        gradients_in_backward_for=PER_TOKEN,
        uses_triton=True,
        minimum_torch="2.1.2",
        minimum_triton="2.3.0",
        setups=(
            Setup({"impl": "cutedsl"}, CUTE_DSL, {"LIGER_KERNEL_IMPL": "cutedsl"}, CUTE_DSL_PATHS),
            Setup({"impl": "cutile"}, _CUTILE, {"LIGER_KERNEL_IMPL": "cutile"}),
        ),
        alignments=(
            Alignment("N", 128, {"impl": "cutedsl"}),
            Alignment("V", 256, {"impl": "cutedsl"}),
        ),
        # Triton's; CuTe DSL's names begin with the kernel's module; cuTile's.
        kernel_names=(
            "liger_cross_entropy_kernel",
            "liger_kernelops",
            "_fused_cross_entropy_dz_kernel",
        ),
        modules=("liger_kernel.ops.fused_linear_cross_entropy", "liger_kernel.ops.cross_entropy"),
        chunk_rule="liger",
        memory=Memory(
            forward=(
                Term("CV", 2, 4, before="0.5.0"),
                Term("CV", 2, since="0.5.0", before="0.8.3", when=_TRITON),
                Term("CV", 1, since="0.8.3", when=_TRITON),
                Term("VH", 1, 4, since="0.6.2", before="0.8.3", when=_OWN_DTYPE),
                Term("VH", 1, 8, since="0.6.2", before="0.8.1", when=_FLOAT32),
                Term("VH", bytes=4, since="0.8.1", when=_FLOAT32),
                Term("NV", 1, when={"impl": "cutedsl"}),
                Term("NV", 1, when={"impl": "cutile"}),
            ),
            # dZ waits for the product of dW, and dX is scaled into a copy.
            backward=(
                Term("NV", 1, when={"impl": "cutedsl"}),
                Term("NH", 1, when={"impl": "cutedsl"}),
                Term("NV", 1, when={"impl": "cutile"}),
                Term("NH", 1, when={"impl": "cutile"}),
            ),
        ),
        traffic=(
            Term("NV", 4, 16, before="0.5.0"),
            Term("NV", 3, since="0.5.0", when=_TRITON),
            Term("KVH", 2, before="0.6.2"),
            Term("KVH", 4, 16, since="0.6.2", before="0.8.3", when=_OWN_DTYPE),
            Term("KVH", 2, since="0.8.3", when=_OWN_DTYPE),
            Term("KVH", 2, 16, since="0.6.2", before="0.8.1", when=_FLOAT32),
            Term("KVH", bytes=8, since="0.8.1", when=_FLOAT32),
            Term("NV", 2, when={"impl": "cutedsl"}),
            Term("NV", 3, when={"impl": "cutile"}),
        ),
    ),
)
