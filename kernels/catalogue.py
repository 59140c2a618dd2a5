"""Every kernel that can be a contender: pure data; adapters are imported when built.

Plugins and an operator's contenders are registered beside the shipped ones, process by process.

`python -P -m lossbench.kernels.catalogue` prints it as JSON.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, cast

from .entries import flce, liger, peers, torch_entries
from .entries.known_faults import KNOWN_FAULTS
from .errors import UnknownKernel
from .estimates import INPUTS_AND_OUTPUTS, ROOFS, Roof, estimate_peak_bytes, estimate_seconds
from .kernel_spec import (
    OPTIONS,
    PASSES,
    KernelSpec,
    Memory,
    Need,
    Param,
    ParamValue,
    Term,
)
from .presets import PRESETS
from .support import why_unsupported

if TYPE_CHECKING:
    from .protocol import LossFunction

__all__ = [
    "CATALOGUE",
    "OPTIONS",
    "PASSES",
    "ROOFS",
    "KernelSpec",
    "Memory",
    "Need",
    "Param",
    "ParamValue",
    "Roof",
    "Term",
    "as_json",
    "build",
    "estimate_peak_bytes",
    "estimate_seconds",
    "register",
    "rows",
    "spec_of",
    "why_unsupported",
]

_ENTRIES: tuple[KernelSpec, ...] = (
    *torch_entries.ENTRIES,
    *liger.ENTRIES,
    *peers.ENTRIES,
    *flce.ENTRIES,
)

CATALOGUE: dict[str, KernelSpec] = {spec.name: spec for spec in _ENTRIES}


_registered: dict[str, KernelSpec] = {}


def register(specs: Iterable[KernelSpec]) -> None:
    """Offer these beside the shipped ones in this process, in place of what was registered before.

    One that has a shipped kernel's name goes before it.
    """
    made = {spec.name: spec for spec in specs}
    _registered.clear()
    _registered.update(made)


def spec_of(name: str) -> KernelSpec:
    """The kernel of that name, shipped or registered. Raises: UnknownKernel."""
    found = _registered.get(name) or CATALOGUE.get(name)
    if found is None:
        raise UnknownKernel(name, tuple({**CATALOGUE, **_registered}))
    return found


def build(name: str, version: str | None, params: Mapping[str, object]) -> LossFunction:
    """The contender as one call (`LossFunction`); imports its adapter.

    Raises: UnknownKernel; ValueError for a param it lacks; UnsupportedHere if its package is not
    importable or has a signature that the adapter does not know.
    """
    spec = spec_of(name)
    complete = spec.complete(params)
    module_name, _, function_name = spec.build.partition(":")
    factory = getattr(importlib.import_module(module_name), function_name)
    return cast("LossFunction", factory(version, complete))


def _plain(value: Any) -> Any:
    """JSON form: sets become sorted lists, tuples become lists."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    return value


def rows(specs: Iterable[KernelSpec]) -> dict[str, Any]:
    """Kernels as JSON data by name, as the service reads them."""
    return {spec.name: _plain(asdict(spec)) for spec in specs}


def as_json() -> dict[str, Any]:
    """The whole catalogue and the presets as JSON data, in a fixed order."""
    return {
        "inputs_and_outputs": [_plain(asdict(term)) for term in INPUTS_AND_OUTPUTS],
        "known_faults": [_plain(asdict(fault)) for fault in KNOWN_FAULTS],
        "kernels": rows(CATALOGUE.values()),
        "options": sorted(OPTIONS),
        "passes": list(PASSES),
        "presets": {name: _plain(asdict(preset)) for name, preset in PRESETS.items()},
        "roofs": {name: asdict(roof) for name, roof in ROOFS.items()},
    }


def main() -> int:
    """Print the catalogue as JSON."""
    sys.stdout.write(json.dumps(as_json(), indent=1, sort_keys=True) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
