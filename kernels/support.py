"""Why a contender cannot do a case here: one line, or None."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from packaging.version import Version

from .kernel_spec import KernelSpec, Need, ParamValue, holds, is_at_least


@dataclass(frozen=True)
class _Question:
    spec: KernelSpec
    version: str | None
    params: Mapping[str, ParamValue]
    need: Need

    @property
    def name(self) -> str:
        carries_versions = self.spec.versions and self.version is not None
        return f"{self.spec.name}@{self.version}" if carries_versions else self.spec.name

    @property
    def own_version(self) -> str | None:
        return self.version if self.spec.versions else None


def why_unsupported(
    spec: KernelSpec, version: str | None, params: Mapping[str, object], need: Need
) -> str | None:
    """Reason in one line why this contender cannot do what is needed, or None if it can.

    Raises: ValueError if a param is not the kernel's or has a value that it does not allow.
    """
    question = _Question(spec, version, spec.complete(params), need)
    checks: tuple[Callable[[_Question], str | None], ...] = (
        _version,
        _options,
        _params,
        _dtype,
        _alignment,
        _software,
        _cpu,
        _gpu,
    )
    for check in checks:
        reason = check(question)
        if reason is not None:
            return reason
    return None


def _version(question: _Question) -> str | None:
    spec, version = question.spec, question.version
    if spec.versions and version is not None and version not in spec.versions:
        return f"{spec.name} has no known version {version}"
    return None


def _options(question: _Question) -> str | None:
    spec = question.spec
    for option in sorted(question.need.options):
        if option not in spec.options:
            return f"{question.name} has no {option}"
        since = spec.option_since.get(option)
        if not is_at_least(question.own_version, since):
            return f"{question.name} has no {option}; it came with {since}"
    return None


def _params(question: _Question) -> str | None:
    for param in question.spec.params:
        asked = question.params[param.name]
        if asked != param.default and not is_at_least(question.own_version, param.since):
            return f"{question.name} has no param {param.name}; it came with {param.since}"
    return None


def _dtype(question: _Question) -> str | None:
    if question.need.dtype not in question.spec.dtypes:
        known = ", ".join(sorted(question.spec.dtypes))
        return f"{question.name} does not take {question.need.dtype}; it takes {known}"
    return None


def _alignment(question: _Question) -> str | None:
    for limit in question.spec.alignments:
        size = question.need.sizes.get(limit.symbol, 0)
        if holds(limit.when, question.params) and size % limit.multiple:
            return f"{question.name} needs {limit.symbol} % {limit.multiple} == 0; here is {size}"
    return None


def _is_older(version: str | None, minimum: str | None) -> bool:
    if version is None or minimum is None:
        return False
    return Version(Version(version).base_version) < Version(minimum)


def _software(question: _Question) -> str | None:
    spec, need = question.spec, question.need
    if _is_older(need.torch_version, spec.minimum_torch):
        return f"{question.name} needs torch >= {spec.minimum_torch}; here is {need.torch_version}"
    if spec.uses_triton and _is_older(need.triton_version, spec.minimum_triton):
        return (
            f"{question.name} needs triton >= {spec.minimum_triton}; here is {need.triton_version}"
        )
    if spec.needs_compiler and need.device_type == "cpu" and not need.compiler:
        return f"{question.name} needs a C++ compiler on the CPU; none is on the PATH"
    return None


def _cpu(question: _Question) -> str | None:
    spec, need = question.spec, question.need
    if need.device_type != "cpu":
        return None
    if spec.needs_gpu:
        return f"{question.name} needs an NVIDIA GPU"
    if not spec.uses_triton:
        return None
    if need.interpreted and need.triton_version is not None:
        if need.dtype != "float32":
            # bf16 products are silently wrong in Triton's interpreter.
            return f"on the CPU, interpreted, {question.name} is only right in float32"
        return None
    if spec.fallback:
        return None
    if need.triton_version is None:
        return f"{question.name} needs triton, which is not installed"
    return f"{question.name} is a Triton kernel: on the CPU it runs only interpreted and in float32"


def _gpu(question: _Question) -> str | None:
    spec, need = question.spec, question.need
    if need.device_type == "cpu":
        if spec.minimum_compute_capability is not None and not spec.uses_triton:
            return f"{question.name} needs a GPU"
        return None
    needs_triton = (spec.uses_triton and not spec.fallback) or spec.needs_compiler
    if needs_triton and need.triton_version is None:
        return f"{question.name} needs triton, which is not installed"
    minimum, here = spec.minimum_compute_capability, need.compute_capability
    if minimum is not None and here is not None and here < minimum:
        return (
            f"{question.name} needs compute capability >= {minimum[0]}.{minimum[1]}; "
            f"this GPU has {here[0]}.{here[1]}"
        )
    return None
