"""The correctness grid on a GPU: what only a GPU can show."""

from __future__ import annotations

import pytest
import torch

from lossbench.kernels.catalogue import build
from lossbench.kernels.cheats import CHEATS
from lossbench.kernels.checks.grid import BY_ID, OWN_KERNEL
from lossbench.kernels.flce import linear_cross_entropy
from lossbench.service.contract.contender import Contender
from lossbench.service.contract.words import Grade, Outcome
from lossbench.worker.checks import GridChecker, check_function

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
SIDE_STREAM = BY_ID["cheats/side-stream"]


def test_work_on_a_side_stream_is_called_wrong() -> None:
    found = check_function(CHEATS["side_stream"], SIDE_STREAM, "cuda")

    assert found.outcome is Outcome.WRONG


def test_work_on_the_callers_stream_is_right() -> None:
    found = check_function(linear_cross_entropy, SIDE_STREAM, "cuda")

    assert (found.outcome, found.grade) == (Outcome.OK, Grade.EXACT)


def test_replaced_event_clock_is_found_and_put_back() -> None:
    checker = GridChecker(Contender.parse("torch-upcast"), "cuda", False)
    elapsed = torch.cuda.Event.elapsed_time
    torch.cuda.Event.elapsed_time = lambda *_: 0.0  # type: ignore[method-assign]

    found = checker.check(BY_ID["options/none/mean/bfloat16"])

    assert found.outcome is Outcome.WRONG
    assert found.reason == "it replaced Event.elapsed_time"
    assert torch.cuda.Event.elapsed_time is elapsed


def test_own_kernel_of_flce_is_seen_and_torch_alone_would_not_pass() -> None:
    case = BY_ID[OWN_KERNEL]

    own = GridChecker(Contender.parse("flce"), "cuda", False).check(case)

    assert own.outcome is Outcome.OK
    assert any("row" in name or "flce" in name or "cross" in name for name in own.notes)


def test_fallback_does_not_pass_for_a_kernel() -> None:
    checker = GridChecker(Contender.parse("flce"), "cuda", False)
    checker._function = build("torch-naive", None, {})

    found = checker.check(BY_ID[OWN_KERNEL])

    assert found.outcome is Outcome.WRONG
    assert "none of its own kernels ran" in (found.reason or "")
