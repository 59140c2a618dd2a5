"""The grid itself: every option, reduction, dtype, size, layout and way of calling."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..problem import Problem
from .cases import CheckCase, Layout
from .reports import REPORTS

# Multiples of 128: the kernels that need alignment can take part in the option grid; what they
# cannot take is asked by the sizes. Tokens differ from hidden: one kernel fails where they agree.
_TOKENS, _HIDDEN, _VOCAB = 256, 128, 512
_DTYPES = ("float32", "bfloat16", "float16")

OWN_KERNEL = "calls/own-kernel"
"""The case that looks at the GPU kernels of one call instead of its outputs."""

_OPTIONS: Mapping[str, dict[str, Any]] = {
    "none": {},
    "bias": {"bias": True},
    "class_weight": {"class_weight": True},
    "ignore_index": {"ignored_share": 0.25, "ignore_index": -1},
    "label_smoothing": {"label_smoothing": 0.1},
    "softcap": {"softcap": 2.0},
    "logit_scale": {"logit_scale": 0.25},
    "lse_square_scale": {"lse_square_scale": 1e-2},
    "frozen_input": {"frozen": "input"},
    "frozen_weight": {"frozen": "weight"},
}
_ALL_TOGETHER = {
    **{key: value for options in _OPTIONS.values() for key, value in options.items()},
    "frozen": None,
}
_RECIPES = ("unit_normal", "trained", "zipf_labels", "large_logits")


def _problem(dtype: str = "float32", **rest: Any) -> Problem:
    sizes = {"tokens": _TOKENS, "hidden": _HIDDEN, "vocab": _VOCAB}
    return Problem(**{**sizes, "dtype": dtype, **rest})


def _options() -> Iterator[CheckCase]:
    for name, options in {**_OPTIONS, "all": _ALL_TOGETHER}.items():
        for reduction in ("mean", "sum", "none"):
            for dtype in _DTYPES:
                if name == "all" and dtype == "float16":
                    continue
                yield CheckCase(
                    f"options/{name}/{reduction}/{dtype}",
                    "options",
                    "every option at once" if name == "all" else f"option {name}",
                    _problem(dtype, reduction=reduction, **options),
                    quick=(reduction, dtype) == ("mean", "float32"),
                )


_ALIGNED = {"tokens": 1024, "hidden": 256, "vocab": 4096}
"""Sizes that the most demanding kernel takes."""


def _aligned() -> Iterator[CheckCase]:
    """Options and calls again at sizes that every kernel takes."""
    for call in ("two_backwards", "nonleaf", "nothing_to_train", "renewed"):
        ignored = 1.0 if call == "nothing_to_train" else 0.0
        yield CheckCase(
            f"calls/{call}/bfloat16/aligned",
            "calls",
            f"{call.replace('_', ' ')}, every size a multiple of 256",
            _problem("bfloat16", **_ALIGNED, ignored_share=ignored),
            call=call,
            needs_gpu=True,
        )
    for name, options in {**_OPTIONS, "all": _ALL_TOGETHER}.items():
        for dtype in ("float32", "bfloat16"):
            yield CheckCase(
                f"options/{name}/mean/{dtype}/aligned",
                "options",
                f"option {name}, every size a multiple of 256",
                _problem(dtype, **_ALIGNED, **options),
                needs_gpu=True,
            )


def _dtypes() -> Iterator[CheckCase]:
    for recipe in _RECIPES:
        yield CheckCase(
            f"dtypes/{recipe}/bfloat16",
            "dtypes",
            f"inputs {recipe}",
            _problem("bfloat16", tokens=512, recipe=recipe),
            quick=recipe == "trained",
        )
    for scale, name in ((3.7, "upstream-3.7"), (4096.0, "upstream-4096")):
        yield CheckCase(
            f"dtypes/{name}/float16", "dtypes", "non-unit upstream gradient",
            _problem("float16"), upstream=scale,
        )  # fmt: skip
    yield CheckCase(
        "dtypes/upstream-ramp/bfloat16", "dtypes", "an upstream gradient per token",
        _problem("bfloat16", reduction="none"), upstream="ramp",
    )  # fmt: skip
    yield CheckCase(
        "dtypes/many-tokens/float16", "dtypes", "fp16 gradients of a mean over many tokens",
        _problem("float16", tokens=8192, hidden=64, vocab=256),
    )  # fmt: skip


_SIZES: Mapping[str, tuple[int, int, int, str]] = {
    "one-token": (1, 64, 256, "a single token"),
    "two-classes": (16, 16, 2, "the smallest vocabulary"),
    "one-hidden": (16, 1, 64, "hidden size 1"),
    "odd": (37, 33, 131, "nothing is a multiple of anything"),
    "odd-hidden": (64, 100, 512, "hidden size 100"),
    "gpt-2": (8, 64, 50257, "the odd vocabulary of GPT-2"),
    "phi-3": (8, 64, 32064, "the vocabulary of Phi-3"),
    "qwen-2.5": (8, 64, 151936, "the vocabulary of Qwen2.5"),
    "ragged": (1031, 32, 128, "a prime number of tokens"),
    "wide-hidden": (16, 2048, 256, "hidden far above vocabulary"),
}


def _sizes() -> Iterator[CheckCase]:
    for name, (tokens, hidden, vocab, what) in _SIZES.items():
        for dtype in ("float32", "bfloat16"):
            yield CheckCase(
                f"sizes/{name}/{dtype}", "sizes", what, Problem(tokens, hidden, vocab, dtype),
                quick=(name, dtype) in {("odd", "float32"), ("gpt-2", "bfloat16")},
            )  # fmt: skip
    for reduction in ("mean", "sum"):
        for dtype in ("float32", "bfloat16"):
            yield CheckCase(
                f"sizes/no-token/{reduction}/{dtype}", "sizes",
                "no token at all: loss 0, gradients 0",
                _problem(dtype, tokens=0, reduction=reduction), call="nothing_to_train",
                quick=(reduction, dtype) == ("mean", "float32"), source="huggingface/trl PR 6859",
            )  # fmt: skip
    yield CheckCase(
        "sizes/tokens-equal-hidden/bfloat16", "sizes", "as many tokens as hidden",
        _problem("bfloat16", tokens=128, hidden=128),
    )  # fmt: skip
    yield CheckCase(
        "sizes/past-2^31/odd", "sizes", "N V > 2^31, odd sizes: the last rows are right",
        Problem(65537, 64, 32769, "bfloat16", reduction="sum"), call="last_rows",
        needs_gpu=True, large=True, source="pytorch/pytorch#85786",
    )  # fmt: skip
    yield CheckCase(
        "sizes/past-2^31/qwen-2.5", "sizes", "N V = 5 x 10^9: the last rows, and the memory",
        Problem(32768, 1024, 151936, "bfloat16", reduction="sum"), call="last_rows",
        needs_gpu=True, large=True, source="unslothai/unsloth-zoo PR 947",
    )  # fmt: skip


_LAYOUTS: Mapping[Layout, str] = {
    "x_columns": "x is a column slice",
    "x_transposed": "x is a transposed view",
    "weight_columns": "the weight is a column slice",
    "weight_transposed": "the weight is a transposed view",
    "target_slice": "the labels are a strided slice",
}


def _layouts() -> Iterator[CheckCase]:
    for layout, what in _LAYOUTS.items():
        for dtype in ("float32", "bfloat16"):
            yield CheckCase(
                f"layouts/{layout}/{dtype}", "layouts", what, _problem(dtype),
                layout=layout, quick=(layout, dtype) == ("x_columns", "float32"),
            )  # fmt: skip


_CALLS: Mapping[str, str] = {
    "no_grad": "evaluation under no_grad",
    "two_backwards": "retain_graph: two backwards, each right, the first unchanged",
    "nonleaf": "the input is saved by the operation before",
    "micro_batches": "sums over micro-batches, divided by the count of all",
    "tied": "the weight is the embedding, too",
    "resized": "another number of tokens before",
}


def _calls() -> Iterator[CheckCase]:
    for call, what in _CALLS.items():
        for dtype in ("float32", "bfloat16"):
            yield CheckCase(
                f"calls/{call}/{dtype}", "calls", what, _problem(dtype), call=call,
                quick=dtype == "float32" and call in ("no_grad", "two_backwards", "nonleaf"),
            )  # fmt: skip
    yield CheckCase(
        "calls/autocast", "calls", "bf16 input and float32 weight under autocast",
        _problem("bfloat16"), call="autocast", source="linkedin/Liger-Kernel#305", quick=True,
    )  # fmt: skip
    for dtype in ("float32", "bfloat16"):
        for reduction in ("mean", "sum", "none"):
            yield CheckCase(
                f"calls/all-ignored/{reduction}/{dtype}", "calls",
                "no valid label: loss 0, gradients 0",
                _problem(dtype, ignored_share=1.0, reduction=reduction),
                call="nothing_to_train", quick=(reduction, dtype) == ("mean", "float32"),
                source="linkedin/Liger-Kernel#177",
            )  # fmt: skip
        yield CheckCase(
            f"calls/label-out-of-range/{dtype}", "calls", "a label of V: an error or NaN",
            _problem(dtype), call="label_out_of_range", source="pytorch/pytorch PR 195829",
        )  # fmt: skip
    yield CheckCase(
        OWN_KERNEL, "calls", "a kernel of its own runs, no fallback",
        _problem("bfloat16", **_ALIGNED), needs_gpu=True,
    )  # fmt: skip


def _cheats() -> Iterator[CheckCase]:
    for dtype in ("float32", "bfloat16"):
        yield CheckCase(
            f"cheats/renewed/{dtype}", "cheats", "other values in the same tensors",
            _problem(dtype, ignored_share=0.25), call="renewed", quick=dtype == "float32",
            source="gpu-mode/kernelbot PR 501",
        )  # fmt: skip
    yield CheckCase(
        "cheats/side-stream", "cheats", "outputs are ready on the caller's stream",
        Problem(4096, 1024, 32768, "bfloat16"), call="side_stream", needs_gpu=True, large=True,
        source="gpu-mode/kernelbot PR 501",
    )  # fmt: skip


GRID: tuple[CheckCase, ...] = (
    *_options(),
    *_aligned(),
    *_dtypes(),
    *_sizes(),
    *_layouts(),
    *_calls(),
    *REPORTS,
    *_cheats(),
)
BY_ID: Mapping[str, CheckCase] = {case.id: case for case in GRID}
