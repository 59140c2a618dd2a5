"""What to write in a training script to get the call that was measured."""

from collections.abc import Mapping
from typing import Any

from ..contract.case import CaseOptions
from ..contract.catalogue import KernelRow, SetupRow
from ..contract.contender import Contender, ParamValue
from ..contract.words import Dtype

_IN_CALL = (
    "ignore_index", "label_smoothing", "softcap", "logit_scale", "lse_square_scale", "reduction",
)  # fmt: skip


def snippet(row: KernelRow, contender: Contender, options: CaseOptions, dtype: Dtype) -> str:
    """Python that makes `loss` from `input`, `weight` and `target` as it was measured.

    The library's own call where the contender has default params and the loss no options; else
    lossbench's adapter, which is the very call that was timed.
    """
    lines = _needs(row, contender)
    arguments = _arguments(options)
    # an import gives the newest code of what is built in, and what is installed of a package
    is_here = row.package is not None or contender.version in (None, row.latest) or not row.versions
    plain = not contender.params and not arguments and dtype is not Dtype.FLOAT64
    if row.usage and plain and is_here:
        return "\n".join([*lines, row.usage])
    version = contender.version if row.versions else None
    return "\n".join(
        [
            *lines,
            "from lossbench.kernels.catalogue import build",
            f"loss_function = build({row.name!r}, {version!r}, {dict(contender.params)!r})",
            f"loss = loss_function({', '.join(['input', 'weight', 'target', *arguments])})",
        ]
    )


def _needs(row: KernelRow, contender: Contender) -> list[str]:
    """Comments: what must be installed and set before anything is imported."""
    params = {param.name: param.default for param in row.params} | contender.params
    setups = [setup for setup in row.setups if _holds(setup, params)]
    pins = [pin for setup in setups for pin in setup.requires]
    if row.package is not None:
        pins.insert(0, f"{row.package}=={contender.version}")
    lines = [f"# pip install {' '.join(dict.fromkeys(pins))}"] if pins else []
    if row.origin == "checkout":
        lines.append("# its files are not on an index: they are what the operator points to")
    for setup in setups:
        lines += [f"# set {name}={value}" for name, value in setup.variables.items()]
    return lines


def _holds(setup: SetupRow, params: Mapping[str, ParamValue]) -> bool:
    return all(params.get(name) == value for name, value in setup.when.items())


def _arguments(options: CaseOptions) -> list[str]:
    changed: dict[str, Any] = options.changed()
    arguments = [f"{name}={name}" for name in ("bias", "class_weight") if changed.get(name)]
    return arguments + [f"{name}={changed[name]!r}" for name in _IN_CALL if name in changed]
