"""Known faults of the contenders, each with where it was reported or how it was found.

They are public and stay visible: a check that meets one says so, and still calls it wrong. A fault
that is not listed here makes `lossbench kernels check` exit with 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from ..kernel_spec import ParamValue, holds, is_at_least

FOUND_HERE = "found by this check"


@dataclass(frozen=True)
class KnownFault:
    """`cases` are patterns of ids of the correctness grid; `since` <= version < `before`.

    `when`: params with these values. `device` "cpu" or "cuda" where it shows only there.
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
        f"{FOUND_HERE}, 2026-11-30",
        ("options/label_smoothing/*/float16",),
    ),
)


def known_fault(
    kernel: str, version: str | None, params: Mapping[str, object], case: str, device: str
) -> KnownFault | None:
    """The fault that explains a failed case of the grid, or None."""
    for fault in KNOWN_FAULTS:
        if (
            fault.kernel == kernel
            and any(fnmatchcase(case, pattern) for pattern in fault.cases)
            and fault.device in (None, device)
            and holds(fault.when, params)
            and is_at_least(version, fault.since)
            and (fault.before is None or not is_at_least(version, fault.before))
        ):
            return fault
    return None
