"""Our own family."""

from __future__ import annotations

from ..kernel_spec import KernelSpec, Memory, Param, Term
from .facts import ALL_DTYPES, FORWARD_PRODUCTS, OPTIONS, PER_TOKEN

ENTRIES: tuple[KernelSpec, ...] = (
    KernelSpec(
        name="flce",
        summary="ours: Triton cross entropy in place over token chunks, dW rounded once",
        origin="built-in",
        versions=("1",),
        build="lossbench.kernels.flce.contender:build",
        usage=(
            "from lossbench.kernels.flce import linear_cross_entropy\n"
            "loss = linear_cross_entropy(input, weight, target)"
        ),
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
        dtypes=ALL_DTYPES,
        gradients_in_forward=True,
        products=FORWARD_PRODUCTS,
        gradients_in_backward_for=PER_TOKEN,
        uses_triton=True,
        fallback=True,
        minimum_torch="2.9",
        minimum_triton="3.5",
        kernel_names=("_row_kernel",),
        modules=(
            "lossbench.kernels.flce.v1.op",
            "lossbench.kernels.flce.v1.chunks",
            "lossbench.kernels.flce.v1.plan",
            "lossbench.kernels.flce.rows",
            "lossbench.kernels.flce.arguments",
            "lossbench.kernels.flce.v1.triton_cross_entropy",
            "lossbench.kernels.flce.v1.torch_cross_entropy",
            "lossbench.kernels.chunk_rules",
        ),
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
