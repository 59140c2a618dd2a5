"""The live peers beside Liger: packages of others, and one that exists only in git."""

from __future__ import annotations

from ..kernel_spec import Alignment, KernelSpec, Memory, Param, Setup, Term
from .facts import CUTE_DSL, CUTE_DSL_PATHS, FORWARD_PRODUCTS, RECOMPUTED_PRODUCTS, THREE_DTYPES

_HALF = frozenset({"bfloat16", "float16"})
_FROZEN = frozenset({"frozen_input", "frozen_weight"})

ENTRIES: tuple[KernelSpec, ...] = (
    KernelSpec(
        name="cce",
        summary="Apple's cut cross entropy: logits are never stored (Triton)",
        origin="package",
        package="cut-cross-entropy",
        versions=("24.11.3", "24.11.4", "24.12.1", "24.12.2", "24.12.3", "25.1.1"),
        twins={"24.11.4": "24.11.3"},
        build="lossbench.kernels.adapters.cce:build",
        usage=(
            "from cut_cross_entropy import linear_cross_entropy\n"
            'loss = linear_cross_entropy(input, weight, target, impl="cce", filter_eps="high")'
        ),
        params=(
            Param(
                "filter_eps",
                "str",
                "high",
                choices=("high", "auto"),
                nullable=True,
                help="tiles of the gradient below this are skipped; null: none is. "
                "Since 24.12.3 high and auto are the same: the dtype's epsilon / 32",
            ),
        ),
        options=_FROZEN | {"ignore_index", "softcap", "reduction_sum", "reduction_none"},
        dtypes=_HALF,
        gradients_in_forward=False,
        products=RECOMPUTED_PRODUCTS,
        uses_triton=True,
        needs_compiler=True,
        needs_gpu=True,
        minimum_compute_capability=(8, 0),
        kernel_names=("_cce_lse_forward_kernel", "_cce_backward_kernel"),
        modules=(
            "cut_cross_entropy.linear_cross_entropy",
            "cut_cross_entropy.cce",
            "cut_cross_entropy.cce_lse_forward",
            "cut_cross_entropy.cce_backward",
            "cut_cross_entropy.indexed_dot",
            "cut_cross_entropy.tl_autotune",
            "cut_cross_entropy.tl_utils",
            "cut_cross_entropy.utils",
        ),
        # Row sums and the mean logit of each class; then the order of the classes. Locks are small.
        memory=Memory(
            forward=(Term("N", bytes=12), Term("V", bytes=4)),
            backward=(Term("N", bytes=12), Term("V", bytes=16)),
        ),
        # Products in Triton, of which three add into dX and dW behind locks.
        product_slowdown=1.8,
    ),
    KernelSpec(
        name="quack",
        summary="QuACK's chunked loss: base, and scaled-exp without a row pass (CuTe DSL, Hopper)",
        origin="package",
        package="quack-kernels",
        # 0.6.2 to 0.6.4 have the same call, but each pins another CuTe DSL.
        versions=("0.6.5",),
        build="lossbench.kernels.adapters.quack:build",
        usage=(
            "from quack.linear_cross_entropy import chunked_linear_cross_entropy\n"
            "loss = chunked_linear_cross_entropy(input, weight, target, chunk_size=4096)"
        ),
        params=(
            Param("chunk_size", "int", 4096, minimum=8, maximum=1 << 20, help="tokens per chunk"),
            Param(
                "scaled_exp",
                "bool",
                None,
                nullable=True,
                help="its scaled-exp pipeline; null: where QuACK takes it, which is bfloat16 on "
                "sm_90 with V % 128 == 0",
            ),
        ),
        options=_FROZEN | {"ignore_index", "reduction_sum"},
        dtypes=_HALF,
        gradients_in_forward=True,
        products=FORWARD_PRODUCTS,
        uses_triton=True,
        needs_gpu=True,
        minimum_compute_capability=(9, 0),
        setups=(Setup(requires=(*CUTE_DSL, "einops==0.8.2"), paths=CUTE_DSL_PATHS),),
        alignments=(
            # scaled-exp pads the tokens; where it is left to QuACK the adapter asks QuACK
            Alignment("N", 8, {"scaled_exp": False}),
            Alignment("H", 8),
            Alignment("V", 8),
            Alignment("V", 128, {"scaled_exp": True}),
        ),
        kernel_names=("quack", "_lce_glue_row"),
        modules=(
            "quack.linear_cross_entropy",
            "quack.cross_entropy",
            "quack.gemm_interface",
            "quack.gemm_sm90",
            "quack.epilogue.scaled_exp",
            "quack.epilogue.frontend",
        ),
        chunk_rule="fixed:chunk_size",
        memory=Memory(
            forward=(Term("CV", 1), Term("VH", -1, 4)),
            backward=(
                Term("CV", 1, when={"scaled_exp": False}),
                Term("VH", bytes=4, when={"scaled_exp": False}, chunked=True),
                Term("VH", bytes=4, when={"scaled_exp": True}),
                Term("VH", bytes=4, when={"scaled_exp": None}),
            ),
        ),
        traffic=(
            Term("NV", 2, when={"scaled_exp": False}),
            Term("KVH", bytes=8),
            Term("VH", 1, 4),
        ),
    ),
    KernelSpec(
        name="fla",
        summary="flash-linear-attention's chunked loss, gradients in the forward (Triton)",
        origin="package",
        package="fla-core",
        versions=("0.6.0",),
        build="lossbench.kernels.adapters.fla:build",
        usage=(
            "from fla.modules.fused_linear_cross_entropy import fused_linear_cross_entropy_loss\n"
            "loss = fused_linear_cross_entropy_loss(\n"
            "    input, target, weight, num_chunks=8, accumulate_grad_in_fp32=True\n"
            ")"
        ),
        params=(
            Param(
                "num_chunks",
                "int",
                8,
                minimum=1,
                maximum=4096,
                help="at most this many chunks, and at most V / H",
            ),
            Param(
                "accumulate_grad_in_fp32",
                "bool",
                True,
                help="dW and db are summed in float32, by a product of float32 operands",
            ),
        ),
        options=_FROZEN
        | {"bias", "ignore_index", "label_smoothing", "softcap", "logit_scale", "reduction_sum"},
        dtypes=THREE_DTYPES,
        gradients_in_forward=True,
        products=FORWARD_PRODUCTS,
        uses_triton=True,
        minimum_torch="2.7",
        minimum_triton="3.3",
        setups=(Setup(requires=("einops==0.8.2",)),),
        kernel_names=("cross_entropy_fwd_kernel", "cross_entropy_bwd_kernel"),
        modules=(
            "fla.modules.fused_linear_cross_entropy.ops",
            "fla.modules.fused_cross_entropy.ops",
        ),
        chunk_rule="split:num_chunks",
        memory=Memory(
            forward=(
                # the logits, and dZ in float32 or the next chunk's logits
                Term("CV", 1, 4),
                Term("VH", -1, 4, when={"accumulate_grad_in_fp32": True}),
            ),
            # dW in float32 beside the one that it is cast to
            backward=(Term("VH", -2, 8, when={"accumulate_grad_in_fp32": True}),),
        ),
        traffic=(
            Term("NV", 5, 4),
            Term("KVH", bytes=8, when={"accumulate_grad_in_fp32": True}),
            Term("KVH", 2, when={"accumulate_grad_in_fp32": False}),
        ),
        # By default dW is a product of float32 operands, without tensor cores: 14 times slower.
        product_slowdown=5.0,
    ),
    KernelSpec(
        name="geiping",
        summary="Jonas Geiping's linear_cross_entropy: the loss fused into the product (Triton)",
        origin="checkout",
        build="lossbench.kernels.adapters.geiping:build",
        params=(
            Param("chunk_rows", "int", 4096, minimum=512, maximum=1 << 20, help="tokens per chunk"),
        ),
        options=_FROZEN | {"ignore_index", "logit_scale", "lse_square_scale"},
        dtypes=_HALF,
        gradients_in_forward=True,
        products=FORWARD_PRODUCTS,
        uses_triton=True,
        needs_gpu=True,
        minimum_torch="2.4",
        minimum_triton="3.0",
        alignments=(Alignment("N", 512), Alignment("H", 256), Alignment("V", 4096)),
        kernel_names=("linear_xent_fwd_prep_bwd_kernel_matmul_t", "linear_xent_bwd_dispatcher"),
        modules=("linear_cross_entropy.ops",),
        chunk_rule="fixed:chunk_rows",
        # Logits in float32; in bfloat16 both gradients too.
        memory=Memory(
            forward=(Term("CV", bytes=4), Term("VH", -1, 4), Term("NH", -1, 4)),
            backward=(Term("VH", bytes=4), Term("NH", bytes=4)),
        ),
        traffic=(Term("NV", bytes=12), Term("KVH", bytes=8), Term("VH", 1, 4)),
        product_slowdown=1.8,
    ),
)
