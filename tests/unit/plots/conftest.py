"""Results by the dozen. Every number is made up."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from lossbench.service.contract.result import CellView, Result

MakeResult = Callable[..., Result]
CASE = "N8192-H4096-V128256-bfloat16"
MOMENT = datetime(2026, 11, 30, 12, tzinfo=UTC)

DEFAULTS: dict[str, Any] = {
    "id": "run-1", "contender": "flce", "kernel": "flce", "version": "1", "params": "",
    "case": CASE, "tokens": 8192, "hidden": 4096, "vocab": 128256, "dtype": "bfloat16",
    "recipe": "normal", "pass": "forward_backward", "outcome": "ok", "reason": None,
    "baseline": "torch-naive", "device_name": "NVIDIA H200", "device_type": "cuda",
    "environment_id": "env-1", "worker_id": "wrk-1", "processes": 3, "protocol_version": 1,
    "latency_ms": 40.0, "latency_low_ms": 39.5, "latency_high_ms": 41.0, "samples": 120,
    "baseline_ms": 42.0, "floor_ms": 37.0, "ratio_to_baseline": 0.952, "ratio_low": 0.948,
    "ratio_high": 0.956, "floor_ratio": 1.08, "tokens_per_s": 2e5, "compile_s": 1.0,
    "peak_forward_bytes": 4 * 2**30, "held_bytes": 2**30, "peak_backward_bytes": 2 * 2**30,
    "outputs_bytes": 2**30, "workspace_bytes": 3 * 2**30, "grade": "exact",
    "errors": [
        {"output": name, "relative_l2": value, "ratio": 1.0, "max_abs": value / 100,
         "detail": {"yardstick_relative_l2": value}}
        for name, value in (("dw", 1.12e-3), ("dx", 1.67e-3), ("loss", 9.9e-6))
    ],
    "flags": [], "imported": False, "invalidated_at": None, "invalid_reason": None,
    "started_at": MOMENT, "ended_at": MOMENT,
}  # fmt: skip

WITHOUT_NUMBERS: dict[str, Any] = dict.fromkeys(
    ("latency_ms", "latency_low_ms", "latency_high_ms", "samples", "ratio_to_baseline",
     "ratio_low", "ratio_high", "floor_ratio", "floor_ms", "workspace_bytes", "grade")
) | {"errors": []}  # fmt: skip


@pytest.fixture
def make_result() -> MakeResult:
    """A made-up result; keywords replace its fields, `contender` fills kernel and params."""

    def make(contender: str = "flce", **changed: Any) -> Result:
        kernel, _, params = contender.partition("[")
        named = {"contender": contender, "kernel": kernel, "params": params.rstrip("]")}
        if changed.get("outcome", "ok") != "ok":
            changed = WITHOUT_NUMBERS | {"reason": "made up"} | changed
        return Result.model_validate({**DEFAULTS, **named, **changed})

    return make


@pytest.fixture
def make_cell() -> Callable[..., CellView]:
    """A made-up cell of a job; keywords replace its fields."""

    def make(contender: str, position: int = 0, **changed: Any) -> CellView:
        base: dict[str, Any] = {
            "position": position, "contender": contender, "case": CASE,
            "pass": "forward_backward", "state": "done", "outcome": "ok", "reason": None,
            "reused": False, "attempt": 1, "visits_done": 6, "visits_total": 6,
            "result_id": f"run-{position}", "started_at": MOMENT, "ended_at": MOMENT,
        }  # fmt: skip
        return CellView.model_validate({**base, **changed})

    return make
