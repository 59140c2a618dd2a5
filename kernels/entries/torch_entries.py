"""Contenders made of torch alone."""

from __future__ import annotations

from ..kernel_spec import KernelSpec, Memory, Param, Term
from .facts import ALL_DTYPES, AUTOGRAD_PRODUCTS, FORWARD_PRODUCTS, OPTIONS, PER_TOKEN

INDUCTOR_KERNELS = ("triton_",)
"""How Inductor names the kernels that it writes for a GPU."""

_DYNAMIC = Param(
    "dynamic",
    "bool",
    None,
    nullable=True,
    help="torch.compile's `dynamic`; null lets it choose after the first recompile",
)
# torch-native on half-precision input: float32 logits, and the half-precision copy of dZ.
_WIDE_CHUNK = (
    Term("CV", -2, 8, when={"acc_policy": "auto", "accum_dtype": None}),
    Term("CV", -2, 8, when={"accum_dtype": "float32"}),
)

ENTRIES: tuple[KernelSpec, ...] = (
    KernelSpec(
        name="torch-upcast",
        summary="logits cast to float32, then torch's cross entropy: what Hugging Face did",
        origin="built-in",
        build="lossbench.kernels.adapters.torch_plain:build_upcast",
        usage=(
            "import torch.nn.functional as F\n"
            "loss = F.cross_entropy(F.linear(input, weight).float(), target)"
        ),
        options=OPTIONS,
        dtypes=ALL_DTYPES,
        gradients_in_forward=False,
        products=AUTOGRAD_PRODUCTS,
        # The same three in float32: 12 bytes x NV for bf16, 24 for fp64.
        memory=Memory(forward=(Term("NV", 1),), before_outputs=(Term("NV", 2, 8),)),
        traffic=(Term("NV", 3, 22),),
    ),
    KernelSpec(
        name="torch-naive",
        summary="logits in the input dtype, then torch's cross entropy: the default baseline",
        origin="built-in",
        build="lossbench.kernels.adapters.torch_plain:build_naive",
        usage=(
            "import torch.nn.functional as F\n"
            "loss = F.cross_entropy(F.linear(input, weight), target)"
        ),
        options=OPTIONS,
        dtypes=ALL_DTYPES,
        gradients_in_forward=False,
        products=AUTOGRAD_PRODUCTS,
        # Alive at once in the backward: log-probabilities, their gradient, the logits' gradient.
        memory=Memory(forward=(Term("NV", 1),), before_outputs=(Term("NV", 3),)),
        traffic=(Term("NV", 5),),
    ),
    KernelSpec(
        name="torch-compile",
        summary="the upcast path compiled whole with torch.compile",
        origin="built-in",
        build="lossbench.kernels.adapters.torch_compile:build",
        params=(_DYNAMIC,),
        options=OPTIONS,
        dtypes=ALL_DTYPES,
        gradients_in_forward=False,
        products=AUTOGRAD_PRODUCTS,
        needs_compiler=True,
        kernel_names=INDUCTOR_KERNELS,
        # The logits stay in their own dtype; the backward makes their gradient over them.
        memory=Memory(forward=(Term("NV", 1),), backward=(Term("NV", 1),)),
        traffic=(Term("NV", 4),),
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
            _DYNAMIC,
            Param("shape_padding", "bool", False, help="Inductor's shape_padding"),
        ),
        options=OPTIONS - {"reduction_none"},
        dtypes=ALL_DTYPES,
        gradients_in_forward=True,
        products=FORWARD_PRODUCTS,
        needs_compiler=True,
        kernel_names=INDUCTOR_KERNELS,
        chunk_rule="fixed:chunk_rows",
        memory=Memory(
            forward=(Term("VH", 2), Term("CV", 1)), backward=(Term("VH", 1), Term("NH", 1))
        ),
        traffic=(Term("KVH", 4), Term("NV", 4), Term("VH", 2)),
    ),
    KernelSpec(
        name="torch-native",
        summary="torch.nn.functional.linear_cross_entropy on its chunked path (torch >= 2.13)",
        origin="torch",
        build="lossbench.kernels.adapters.torch_native:build",
        usage=(
            "import torch\n"
            "options = torch.nn.LinearCrossEntropyOptions()\n"
            "loss = torch.nn.functional.linear_cross_entropy(\n"
            "    input, weight, target, options=options\n"
            ")"
        ),
        params=(
            Param(
                "acc_policy",
                "str",
                "auto",
                choices=("auto", "accurate", "balanced", "compact"),
                help="which intermediates are wide; auto: torch's pick by device and dtype, "
                "compact on a GPU",
            ),
            Param(
                "accum_dtype",
                "str",
                None,
                choices=("float32",),
                nullable=True,
                help="dtype of the wide ones; null: float32 where acc_policy is auto and the input "
                "is half precision, else the input's own",
            ),
            Param(
                "chunk_rows",
                "int",
                None,
                minimum=1,
                maximum=1 << 20,
                nullable=True,
                help="tokens per chunk; null: by the ratio of V to H",
            ),
        ),
        options=frozenset(
            {
                "bias",
                "class_weight",
                "ignore_index",
                "reduction_sum",
                "reduction_none",
                "frozen_input",
                "frozen_weight",
            }
        ),
        dtypes=ALL_DTYPES,
        gradients_in_forward=True,
        products=FORWARD_PRODUCTS,
        gradients_in_backward_for=PER_TOKEN,
        minimum_torch="2.13",
        modules=("torch.nn.modules.linear_cross_entropy",),
        chunk_rule="aspect:chunk_rows",
        memory=Memory(
            forward=(
                Term("CV", 1),
                *_WIDE_CHUNK,
                Term("VH", bytes=4, when={"acc_policy": "balanced", "accum_dtype": "float32"}),
                Term("VH", 1, when={"acc_policy": "balanced", "accum_dtype": None}),
                Term("VH", -2, 12, when={"acc_policy": "accurate", "accum_dtype": "float32"}),
                Term("VH", 1, when={"acc_policy": "accurate", "accum_dtype": None}),
                Term("NH", -2, 8, when={"acc_policy": "accurate", "accum_dtype": "float32"}),
            ),
        ),
        # Eager passes over float32 logits: max, subtract, exp, sum, scale, cast.
        traffic=(Term("NV", 1, 36), Term("KVH", 2)),
    ),
)
