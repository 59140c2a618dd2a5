"""Kernels that installed packages offer: entry points of the group `lossbench.kernels`.

Each names a `KernelSpec`, or a tuple of them: data alone, so its module imports no torch. What is
wrong with one is collected and never raised: a bad plugin costs its own kernels only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import get_args

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import InvalidVersion, Version

from .catalogue import CATALOGUE
from .kernel_spec import OPTIONS, PASSES, KernelSpec, Origin, Setup, Symbol, Term

GROUP = "lossbench.kernels"
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_BUILD = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_DTYPES = frozenset({"bfloat16", "float16", "float32", "float64"})
_RULE = re.compile(r"none|liger|flce|(fixed|split|aspect):[a-z][a-z0-9_]*")


@dataclass(frozen=True)
class Plugins:
    """What the installed plugins offer; `faults` name those that are not used, and why."""

    specs: tuple[KernelSpec, ...] = ()
    faults: tuple[str, ...] = ()


def discover() -> Plugins:
    """The kernels of all installed plugins, in the order of their names."""
    specs: dict[str, KernelSpec] = {}
    faults: list[str] = []
    for point in sorted(entry_points(group=GROUP), key=lambda point: (point.name, point.value)):
        for found in _offered(point):
            if isinstance(found, KernelSpec) and (found.name in CATALOGUE or found.name in specs):
                found = f"there is a kernel {found.name!r} already; give it another name"
            if isinstance(found, KernelSpec):
                specs[found.name] = found
            else:
                faults.append(f"plugin {point.name} ({point.value}): {found}")
    return Plugins(tuple(specs.values()), tuple(faults))


def _offered(point: EntryPoint) -> Iterator[KernelSpec | str]:
    """The specs of one entry point; in place of one that cannot be used, what is wrong with it."""
    try:
        loaded = point.load()
    except (Exception, SystemExit) as error:  # whatever a plugin raises is its own fault
        text = next(iter(str(error).splitlines()), "")
        yield f"{type(error).__name__} when imported: {text}"[:300]
        return
    for spec in loaded if isinstance(loaded, tuple | list) else (loaded,):
        if not isinstance(spec, KernelSpec):
            yield f"a {type(spec).__name__} is no KernelSpec"
            continue
        try:
            wrong = next(spec_faults(spec), None)
        except (AttributeError, TypeError, ValueError) as error:  # fields of other types
            wrong = f"not well formed: {error}"
        yield spec if wrong is None else f"kernel {spec.name!r}: {wrong}"


def spec_faults(spec: KernelSpec) -> Iterator[str]:
    """What is wrong with a spec, one line each."""
    if not isinstance(spec.name, str) or not _NAME.fullmatch(spec.name):
        yield "a name is a lower-case word such as my-loss"
    if spec.origin not in get_args(Origin):
        yield f"origin {spec.origin!r} is none of {', '.join(get_args(Origin))}"
    if not _BUILD.fullmatch(spec.build):
        yield f"build {spec.build!r} is not module:function"
    for what, given, known in (
        ("options", spec.options, OPTIONS),
        ("dtypes", spec.dtypes, _DTYPES),
        ("products", frozenset(spec.products), frozenset(PASSES)),
    ):
        if unknown := sorted(given - known):
            yield f"{what} has {unknown[0]!r}; known: {', '.join(sorted(known))}"
    if missing := sorted(set(PASSES) - set(spec.products)):
        yield f"products lacks {missing[0]}"
    if spec.chunk_rule and not _RULE.fullmatch(spec.chunk_rule):
        yield f"chunk_rule {spec.chunk_rule!r} is no rule, such as none or fixed:<param>"
    yield from _version_faults(spec)
    yield from _param_faults(spec)
    yield from _term_faults(
        (
            *spec.memory.forward,
            *spec.memory.backward,
            *spec.memory.before_outputs,
            *spec.traffic,
        )
    )
    for setup in spec.setups:
        yield from _setup_faults(spec, setup)


def _version_faults(spec: KernelSpec) -> Iterator[str]:
    if (spec.origin == "package") != (spec.package is not None):
        yield "origin package goes with the name of a package, and only it"
    if spec.package is not None and not spec.versions:
        yield "a package needs its versions, oldest first"
    try:
        order = [Version(version) for version in spec.versions]
    except InvalidVersion as error:
        yield f"{str(error)[:80]}; versions are as PEP 440 has them"
        return
    if order != sorted(set(order)):
        yield "versions are listed once each, oldest first"
    strangers = sorted({*spec.twins, *spec.twins.values()} - set(spec.versions))
    if strangers:
        yield f"twins names {strangers[0]}, which is no version"


def _param_faults(spec: KernelSpec) -> Iterator[str]:
    names = [param.name for param in spec.params]
    if len(set(names)) != len(names):
        yield "two params have one name"
    for param in spec.params:
        if not re.fullmatch(r"[a-z][a-z0-9_]*", param.name):
            yield f"param {param.name!r} is not a lower-case word"
        try:
            if param.default is not None or param.nullable:
                param.check(param.default)
        except (ValueError, KeyError) as error:
            yield f"its default is not allowed: {error}"
    name = spec.chunk_rule.partition(":")[2]
    if name and name not in names:
        yield f"chunk_rule names {name!r}, which is no param"


def _term_faults(terms: tuple[Term, ...]) -> Iterator[str]:
    for term in terms:
        if term.symbol not in get_args(Symbol):
            yield f"a term has symbol {term.symbol!r}; known: {', '.join(get_args(Symbol))}"


def _setup_faults(spec: KernelSpec, setup: Setup) -> Iterator[str]:
    if setup.requires and spec.origin not in ("package", "checkout"):
        yield "a setup with requires needs a folder of its own: origin package or checkout"
    for text in setup.requires:
        if not is_exact(text):
            yield f"a setup requires {text!r}; write name==version"
    for path in setup.paths:
        if path.startswith("/") or ".." in path.split("/"):
            yield f"a setup's path {path!r} leaves site-packages"


def is_exact(requirement: str) -> bool:
    """Whether a requirement is `name==version` and nothing else."""
    try:
        parsed = Requirement(requirement)
    except InvalidRequirement:
        return False
    pins = [(pin.operator, pin.version.endswith(".*")) for pin in parsed.specifier]
    return pins == [("==", False)] and not (parsed.url or parsed.marker or parsed.extras)
