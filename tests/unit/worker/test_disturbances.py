"""What is compiled is counted by every watch of a process, and by whoever listened before."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from lossbench.worker.disturbances import CompileWatch


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Triton's knobs without Triton: the hook that its compiler calls with keywords."""
    module = ModuleType("triton")
    knobs = SimpleNamespace(runtime=SimpleNamespace(jit_post_compile_hook=None))
    module.knobs = knobs  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "triton", module)
    monkeypatch.delitem(sys.modules, "torch._dynamo.utils", raising=False)
    return knobs.runtime


def test_two_watches_of_one_process_both_count(runtime: Any) -> None:
    first, second = CompileWatch(), CompileWatch()
    assert (first.since_last(), second.since_last()) == (0, 0)
    for key in ("a", "b"):
        runtime.jit_post_compile_hook(key=key)
    assert (first.since_last(), second.since_last()) == (2, 2)
    assert (first.since_last(), second.since_last()) == (0, 0)


def test_a_listener_that_was_there_goes_on_hearing(runtime: Any) -> None:
    heard = []
    runtime.jit_post_compile_hook = lambda **told: heard.append(told["key"]) or "its answer"
    watch = CompileWatch()
    watch.since_last()
    assert runtime.jit_post_compile_hook(key="a") == "its answer"
    assert heard == ["a"]
    assert watch.since_last() == 1
