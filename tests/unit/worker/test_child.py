"""What a measuring process replies when memory runs out."""

from typing import Any

import pytest
import torch

from lossbench.service.contract.words import Outcome
from lossbench.worker.child import Child
from lossbench.worker.messages import Release


def answer_to(error: Exception, monkeypatch: pytest.MonkeyPatch) -> Any:
    child = Child.__new__(Child)
    child._torch, child.device = torch, "cpu"

    def fail(command: object) -> dict[str, Any]:
        raise error

    monkeypatch.setattr(child, "obey", fail)
    return child.answer(Release())


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("no page is left"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
    ],
)
def test_child_that_ate_the_machines_memory_says_so_and_ends(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    reply = answer_to(error, monkeypatch)
    assert (reply.ok, reply.outcome, reply.fatal) == (False, Outcome.OUT_OF_MEMORY, True)
    assert reply.reason.startswith("the machine's memory ran out: ")


def test_child_with_another_fault_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    reply = answer_to(RuntimeError("a shape is wrong"), monkeypatch)
    assert (reply.outcome, reply.fatal) == (Outcome.FAILED, False)
