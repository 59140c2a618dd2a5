"""Two gaps of Triton's interpreter that others' kernels fall into; nothing here runs on a GPU.

The interpreter has no libdevice (its `tanh` returns None: softcap of Liger and FLA) and hands float
arguments over as Python floats, which have no `.to` (class weights and softcap since Liger 0.8.2).
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

_PATCHED = "_lossbench_interpreted"


class _Scalar(float):
    """A float argument with the one method of a Triton scalar that Liger calls."""

    def to(self, dtype: object) -> _Scalar:
        return self


class _Launcher:
    """A kernel whose float arguments are handed over as `_Scalar`."""

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel

    def __getitem__(self, grid: object) -> Callable[..., object]:
        launch = self._kernel[grid]

        def launch_with_scalars(*args: object, **keywords: object) -> object:
            return launch(
                *(_as_scalar(value) for value in args),
                **{name: _as_scalar(value) for name, value in keywords.items()},
            )

        return launch_with_scalars


def _as_scalar(value: object) -> object:
    return _Scalar(value) if type(value) is float else value


def _tanh(x: Any) -> Any:
    import triton.language as tl

    small = tl.exp(-2.0 * tl.abs(x))
    size = (1.0 - small) / (1.0 + small)
    return tl.where(x < 0, -size, size)


def is_interpreted() -> bool:
    """Whether Triton's interpreter is on."""
    import triton

    return bool(triton.knobs.runtime.interpret)


def fill_tanh(module: ModuleType) -> None:
    """Give a module that imported libdevice's `tanh` one that works, if the interpreter is on."""
    if is_interpreted() and hasattr(module, "tanh"):
        module.tanh = _tanh  # type: ignore[attr-defined]


def fill_gaps(linear_module: ModuleType, row_module: ModuleType) -> None:
    """Patch a release of Liger's two modules, once, if Triton's interpreter is on."""
    if not is_interpreted() or hasattr(row_module, _PATCHED):
        return
    setattr(row_module, _PATCHED, True)
    fill_tanh(row_module)
    name = "liger_cross_entropy_kernel"
    setattr(linear_module, name, _Launcher(getattr(linear_module, name)))
