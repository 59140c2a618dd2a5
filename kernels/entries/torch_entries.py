"""Contenders made of torch alone."""

from __future__ import annotations

from ..kernel_spec import KernelSpec, Memory, Param, Term
from .facts import ALL_DTYPES, AUTOGRAD_PRODUCTS, FORWARD_PRODUCTS, OPTIONS

ENTRIES: tuple[KernelSpec, ...] = (
    KernelSpec(
        name="torch-naive",
        summary="logits in the input dtype, then torch's cross entropy: the default baseline",
        origin="built-in",
        build="lossbench.kernels.adapters.torch_plain:build_naive",
        options=OPTIONS,
        dtypes=ALL_DTYPES,
        gradients_in_forward=False,
        products=AUTOGRAD_PRODUCTS,
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
        dtypes=ALL_DTYPES,
        gradients_in_forward=False,
        products=AUTOGRAD_PRODUCTS,
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
        dtypes=ALL_DTYPES,
        gradients_in_forward=True,
        products=FORWARD_PRODUCTS,
        needs_compiler=True,
        chunk_rule="fixed:chunk_rows",
        memory=Memory(
            forward=(Term("VH", 1), Term("CV", 2)), backward=(Term("VH", 1), Term("NH", 1))
        ),
        traffic=(Term("KVH", 4), Term("NV", 4), Term("VH", 2)),
    ),
)
