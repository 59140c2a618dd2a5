"""What the catalogue records about a kernel: pure data, no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from packaging.version import InvalidVersion, Version

ParamKind = Literal["int", "float", "str", "bool"]
ParamValue = int | float | str | bool | None
Origin = Literal["built-in", "torch", "package", "checkout"]
Symbol = Literal["NV", "CV", "VH", "NH", "N", "V", "KVH", "K"]

OPTIONS: frozenset[str] = frozenset(
    {
        "bias",
        "class_weight",
        "ignore_index",
        "label_smoothing",
        "softcap",
        "logit_scale",
        "lse_square_scale",
        "reduction_sum",
        "reduction_none",
        "frozen_input",
        "frozen_weight",
    }
)
PASSES: tuple[str, ...] = ("forward", "backward", "forward_backward")

_PYTHON_TYPES: Mapping[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (int, float),
    "str": (str,),
    "bool": (bool,),
}


def is_at_least(version: str | None, since: str | None) -> bool:
    """Whether `version` has what came with `since`.

    An unversioned kernel has everything, and so has what is no release: a commit, a folder.
    """
    if since is None or version is None:
        return True
    try:
        return Version(version) >= Version(since)
    except InvalidVersion:
        return True


@dataclass(frozen=True)
class Param:
    """A setting that changes what runs.

    `since` is the first version that has it; `nullable` allows None; `choices`, `minimum` and
    `maximum` bound the value.
    """

    name: str
    kind: ParamKind
    default: ParamValue
    choices: tuple[ParamValue, ...] | None = None
    minimum: float | None = None
    maximum: float | None = None
    nullable: bool = False
    since: str | None = None
    help: str = ""

    def allowed(self) -> str:
        """What a value may be, in words."""
        if self.choices is not None:
            words = " or ".join(repr(choice) for choice in self.choices)
        else:
            words = {"int": "an integer", "float": "a number", "str": "a string", "bool": "a bool"}[
                self.kind
            ]
            if self.minimum is not None:
                words += f" >= {self.minimum:g}"
            if self.maximum is not None:
                words += f"{' and' if self.minimum is not None else ''} <= {self.maximum:g}"
        return words + (" or null" if self.nullable else "")

    def check(self, value: object) -> ParamValue:
        """Return the value if it is allowed.

        Raises: ValueError naming the param, the value got and what is allowed.
        """
        if value is None and self.nullable:
            return None
        right_type = isinstance(value, _PYTHON_TYPES[self.kind]) and (
            self.kind == "bool" or not isinstance(value, bool)
        )
        if not right_type or not self._in_range(value):
            raise ValueError(f"{self.name}={value!r}: must be {self.allowed()}")
        return float(value) if self.kind == "float" else value  # type: ignore[return-value,arg-type]

    def _in_range(self, value: object) -> bool:
        if self.choices is not None and value not in self.choices:
            return False
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            if self.minimum is not None and not value >= self.minimum:
                return False
            if self.maximum is not None and not value <= self.maximum:
                return False
        return True


@dataclass(frozen=True)
class Term:
    """max(0, elements x dtype bytes + bytes) x symbol, if every condition holds.

    Symbols: N tokens, V vocab, H hidden, C chunk rows, K chunks = ceil(N / C); "KVH" is K x V x H.
    Conditions: `when` (a param has this value), `chunked` (K > 1), `since` <= version < `before`.
    """

    symbol: Symbol
    elements: float = 0.0
    bytes: float = 0.0
    when: Mapping[str, ParamValue] = field(default_factory=dict)
    chunked: bool | None = None
    since: str | None = None
    before: str | None = None


@dataclass(frozen=True)
class Memory:
    """Bytes alive beyond inputs, by moment; the peak is the largest of the three sums.

    `forward` and `backward` come on top of loss, dX and dW; `before_outputs` is a moment at which
    dX and dW are not there yet.
    """

    forward: tuple[Term, ...] = ()
    backward: tuple[Term, ...] = ()
    before_outputs: tuple[Term, ...] = ()


@dataclass(frozen=True)
class Setup:
    """What a contender's process needs beside its package, where its params are as in `when`.

    `requires`: exact requirements, installed into the same folder without their own dependencies.
    `variables`: environment variables, set before anything is imported: such contenders never
    share a process with others. `paths`: folders below site-packages that go on the path too.
    """

    when: Mapping[str, ParamValue] = field(default_factory=dict)
    requires: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    paths: tuple[str, ...] = ()


@dataclass(frozen=True)
class Alignment:
    """A size that must be a multiple, where the params are as in `when`."""

    symbol: Literal["N", "H", "V"]
    multiple: int
    when: Mapping[str, ParamValue] = field(default_factory=dict)


@dataclass(frozen=True)
class KernelSpec:
    """One lineage of implementation.

    `versions` are oldest first and empty for kernels that carry torch's version. `twins` maps a
    version to the earlier one whose executed code is identical. `options` are what the newest
    version can do, `option_since` the first version that could. `products` counts the matrix
    products by pass. `chunk_rule` is as in docs/kernels/catalogue.md.
    `fallback`: a plain torch path runs where Triton cannot. `build` is "module:function", called
    with (version, params). `traffic` is the bytes that the elementwise passes move.
    `kernel_names`: parts of the names of GPU kernels, one of which must have run: a fallback never
    passes for the kernel. `modules` are those whose source is hashed: the code that a call runs.
    Origin "checkout": never on an index; it runs only where the operator points to its files.
    `gradients_in_backward_for`: options with which a kernel that has `gradients_in_forward` makes
    them in the backward after all.
    `usage` is the measured call with default params and no option, in the library's own words: from
    `input, weight, target` it makes `loss`. `aliases` are earlier names of the kernel.
    """

    name: str
    summary: str
    origin: Origin
    build: str
    options: frozenset[str]
    dtypes: frozenset[str]
    gradients_in_forward: bool
    products: Mapping[str, int]
    gradients_in_backward_for: frozenset[str] = frozenset()
    package: str | None = None
    versions: tuple[str, ...] = ()
    twins: Mapping[str, str] = field(default_factory=dict)
    params: tuple[Param, ...] = ()
    option_since: Mapping[str, str] = field(default_factory=dict)
    uses_triton: bool = False
    needs_compiler: bool = False
    fallback: bool = False
    minimum_torch: str | None = None
    minimum_triton: str | None = None
    minimum_compute_capability: tuple[int, int] | None = None
    needs_gpu: bool = False
    setups: tuple[Setup, ...] = ()
    alignments: tuple[Alignment, ...] = ()
    kernel_names: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    chunk_rule: str = "none"
    memory: Memory = Memory()
    traffic: tuple[Term, ...] = ()
    product_slowdown: float = 1.0
    usage: str = ""
    aliases: tuple[str, ...] = ()

    def makes_gradients_in_forward(self, options: frozenset[str]) -> bool:
        """Whether a call with these options, of `OPTIONS`, has its gradients after the forward."""
        return self.gradients_in_forward and not options & self.gradients_in_backward_for

    def complete(self, params: Mapping[str, object]) -> dict[str, ParamValue]:
        """All params, checked, with defaults filled in.

        Raises: ValueError for a name the kernel lacks or a value it does not allow.
        """
        known = {param.name: param for param in self.params}
        for name in params:
            if name not in known:
                allowed = ", ".join(known) or "none"
                raise ValueError(f"{self.name} has no param {name!r}; it has: {allowed}")
        return {
            name: param.check(params[name]) if name in params else param.default
            for name, param in known.items()
        }


def holds(when: Mapping[str, ParamValue], params: Mapping[str, object]) -> bool:
    """Whether complete params are as a condition says."""
    return all(params.get(name) == value for name, value in when.items())


@dataclass(frozen=True)
class Need:
    """What a cell asks of a contender, and the machine it would run on.

    dtype "bfloat16", "float16", "float32" or "float64"; options from `OPTIONS`; device_type "cpu"
    or "cuda"; `interpreted`: Triton's interpreter is on (TRITON_INTERPRET=1); `compiler`: a C++
    compiler is on the PATH; `sizes`: N, H and V of the case, for alignment limits.
    """

    dtype: str
    options: frozenset[str]
    device_type: str
    torch_version: str
    triton_version: str | None = None
    compute_capability: tuple[int, int] | None = None
    interpreted: bool = False
    compiler: bool = True
    sizes: Mapping[str, int] = field(default_factory=dict)
