"""A case whose float64 truth does not fit has no grade; that is no fault of the contender."""

from typing import Any

import pytest
import torch

from lossbench.service.contract.case import Case
from lossbench.service.contract.contender import Contender
from lossbench.service.contract.words import Pass
from lossbench.worker import bench as bench_module
from lossbench.worker.bench import CaseBench
from lossbench.worker.memory import HOST_MEMORY_WORDS

CASE = Case.parse("N16-H8-V32-float32")


def checked() -> dict[str, Any]:
    bench = CaseBench(CASE, 0, "cpu", False)
    bench.add_contender("a", Contender(kernel="torch-upcast"), Pass.FORWARD_BACKWARD)
    return dict(bench.check("a", only_bits=False))


@pytest.mark.parametrize(
    "error", [RuntimeError(HOST_MEMORY_WORDS), torch.OutOfMemoryError("CUDA out of memory")]
)
def test_truth_that_does_not_fit_is_noted(
    monkeypatch: pytest.MonkeyPatch, error: RuntimeError
) -> None:
    def too_large(*_: object) -> None:
        raise error

    monkeypatch.setattr(CaseBench, "_memory", lambda self, timed: None)
    assert checked()["notes"] == []
    monkeypatch.setattr(bench_module, "reference", too_large)
    found = checked()
    assert (found["outputs"], found["faults"], found["notes"]) == ({}, [], ["no_reference"])
    assert found["checksum"]


def test_truth_that_fails_otherwise_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(CaseBench, "_memory", lambda self, timed: None)
    monkeypatch.setattr(bench_module, "reference", broken)
    with pytest.raises(RuntimeError, match="a bug"):
        checked()
