"""Known faults of the contenders, each with where it was reported or how it was found.

They are public and stay visible: a check that meets one says so, and still calls it wrong. A fault
that is not listed here makes `lossbench kernels check` exit with 1. They are part of the catalogue
as JSON, so that a stored check is explained by what is known when it is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..kernel_spec import ParamValue

FOUND_HERE = "found by this check, 2026-11-30"
_TWO_BACKWARDS = ("calls/two_backwards/*", "reports/K18")
_NO_TOKEN = ("sizes/no-token/*",)
_ALL_IGNORED = ("calls/all-ignored/*", "calls/nothing_to_train/*", "reports/K01")
_BEYOND = ("calls/label-out-of-range/*",)


@dataclass(frozen=True)
class KnownFault:
    """`cases` are patterns of ids of the correctness grid; `since` <= version < `before`.

    `when`: params with these values. `device` "cpu" or "cuda" where it shows only there. Of several
    that fit, the first one counts.
    """

    kernel: str
    what: str
    source: str
    cases: tuple[str, ...]
    since: str | None = None
    before: str | None = None
    when: Mapping[str, ParamValue] = field(default_factory=dict)
    device: str | None = None


KNOWN_FAULTS: tuple[KnownFault, ...] = (
    KnownFault(
        "torch-naive",
        "label smoothing of fp16 logits sums log-probabilities past 65504",
        FOUND_HERE,
        ("options/label_smoothing/*/float16",),
    ),
    KnownFault(
        "torch-compile",
        "a compiled graph gives its buffers away: a second backward is refused",
        "torch._functorch.config.donated_buffer",
        _TWO_BACKWARDS,
    ),
    KnownFault(
        "torch-native",
        "a second backward is refused",
        "torch.nn.functional.linear_cross_entropy",
        _TWO_BACKWARDS,
    ),
    KnownFault(
        "torch-native",
        "a mean without a valid label divides by zero: NaN gradients",
        FOUND_HERE,
        _ALL_IGNORED,
    ),
    KnownFault(
        "torch-native",
        "bf16 gradients of the weight come out 0.4 to 0.5 % small on tiny cases",
        FOUND_HERE,
        ("sizes/one-hidden/bfloat16", "reports/K39h"),
    ),
    KnownFault(
        "liger",
        "gradients are scaled in place: a second backward changes the first",
        FOUND_HERE,
        _TWO_BACKWARDS,
    ),
    KnownFault(
        "liger",
        "a frozen input: the name grad_weight is not set",
        FOUND_HERE,
        ("options/frozen_input/*",),
        since="0.6.3",
        before="0.6.4",
    ),
    KnownFault(
        "liger",
        "a frozen input: the weight gets no gradient",
        FOUND_HERE,
        ("options/frozen_input/*",),
        since="0.6.4",
    ),
    KnownFault(
        "liger",
        "padded lanes of a partial tile enter the sum after the cap",
        "unslothai/unsloth PR 10616; mended in 0.8.4",
        ("reports/K09",),
        since="0.4.1",
        before="0.8.4",
    ),
    KnownFault(
        "liger", "no token at all divides by zero", "huggingface/trl PR 6859 (review)", _NO_TOKEN
    ),
    KnownFault(
        "liger",
        "no valid label divides by zero",
        "linkedin/Liger-Kernel#177; mended in 0.3.0",
        _ALL_IGNORED,
        before="0.3.0",
    ),
    KnownFault(
        "liger",
        "bf16 input and float32 weight under autocast do not meet",
        "linkedin/Liger-Kernel#305",
        ("calls/autocast",),
        before="0.6.2",
    ),
    KnownFault(
        "liger",
        "a float32 weight under autocast is refused",
        FOUND_HERE,
        ("calls/autocast",),
        when={"impl": "cutedsl"},
    ),
    KnownFault(
        "liger",
        "a float32 weight under autocast and tensors with other strides are refused",
        FOUND_HERE,
        ("calls/autocast", "layouts/*"),
        when={"impl": "cutile"},
    ),
    KnownFault(
        "liger",
        "a label of V is read out of bounds and gives a plausible loss",
        f"pytorch/pytorch PR 195829 (review); {FOUND_HERE}",
        _BEYOND,
    ),
    KnownFault(
        "cce",
        "the filter drops gradients below its threshold: rows that are no label are lost",
        "apple/ml-cross-entropy#14",
        ("reports/K39h",),
        when={"filter_eps": "high"},
    ),
    KnownFault(
        "cce",
        "a label of V is read out of bounds and gives a plausible loss",
        f"pytorch/pytorch PR 195829 (review); {FOUND_HERE}",
        _BEYOND,
    ),
    KnownFault(
        "cce",
        "a weight with another row stride is refused by an assertion",
        FOUND_HERE,
        ("layouts/weight_columns/*",),
    ),
    KnownFault("cce", "no valid label divides by zero", FOUND_HERE, _ALL_IGNORED),
    KnownFault("cce", "no token at all divides by zero", FOUND_HERE, _NO_TOKEN),
    KnownFault(
        "cce",
        "dX and dW are summed tile by tile in the dtype of input and weight; its newer git form "
        "has Kahan sums against it",
        f"axolotl-ai-cloud/axolotl PR 1601; {FOUND_HERE}",
        ("sizes/gpt-2/*", "sizes/phi-3/*", "sizes/qwen-2.5/*", "sizes/past-2^31/*", "reports/K21n"),
    ),
    KnownFault(
        "quack",
        "the gradients are scaled in place: a second backward is refused",
        "Dao-AILab/quack PR 209",
        _TWO_BACKWARDS,
    ),
    KnownFault(
        "quack",
        "scaled-exp cannot tell rows from columns where a chunk has H rows, padding included",
        FOUND_HERE,
        ("sizes/tokens-equal-hidden/*", "calls/micro_batches/*", "calls/resized/*"),
    ),
    KnownFault(
        "quack", "labels with a stride are refused", FOUND_HERE, ("layouts/target_slice/*",)
    ),
    KnownFault(
        "quack",
        "a label of V is read out of bounds and gives a plausible loss",
        f"pytorch/pytorch PR 195829 (review); {FOUND_HERE}",
        _BEYOND,
    ),
    KnownFault("quack", "no valid label divides by zero", FOUND_HERE, _ALL_IGNORED),
    KnownFault("quack", "no token at all is refused", FOUND_HERE, _NO_TOKEN),
    KnownFault(
        "fla",
        "gradients are scaled in place: a second backward changes the first",
        FOUND_HERE,
        _TWO_BACKWARDS,
    ),
    KnownFault("fla", "no token at all divides by zero", FOUND_HERE, _NO_TOKEN),
    KnownFault(
        "fla",
        "a label of V is read out of bounds and gives a plausible loss",
        f"pytorch/pytorch PR 195829 (review); {FOUND_HERE}",
        _BEYOND,
    ),
    KnownFault(
        "geiping",
        "gradients are scaled in place: a second backward is refused",
        FOUND_HERE,
        _TWO_BACKWARDS,
    ),
    KnownFault("geiping", "no valid label divides by zero", FOUND_HERE, _ALL_IGNORED),
)
