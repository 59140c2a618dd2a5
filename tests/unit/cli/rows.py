"""Rows of comparisons as `lossbench compare` gets them, for the tests of this folder."""

from typing import Any

from lossbench.service.contract.comparison import ComparisonView
from lossbench.service.contract.result import CellView, Result
from lossbench.service.plots.verdicts import Compared, compared

MOMENT = "2026-11-30T12:00:00Z"
CASE = "N8-H4-V16-float32"
MIB = 2**20


def result(contender: str, **changes: Any) -> Result:
    """A result on the GPU."""
    values = dict.fromkeys(Result.model_fields)
    values |= {
        "id": "run-1",
        "contender": contender,
        "kernel": contender,
        "params": "",
        "case": CASE,
        "tokens": 8,
        "hidden": 4,
        "vocab": 16,
        "dtype": "float32",
        "recipe": "normal",
        "pass": "forward",
        "outcome": "ok",
        "baseline": "torch-naive",
        "device_name": "GPU",
        "device_type": "cuda",
        "environment_id": "a-b",
        "worker_id": "w",
        "processes": 3,
        "protocol_version": 1,
        "latency_ms": 2.0,
        "workspace_bytes": 400 * MIB,
        "grade": "exact",
        "errors": [],
        "flags": [],
        "imported": False,
        "started_at": MOMENT,
        "ended_at": MOMENT,
        **changes,
    }
    values.pop("pass_")
    return Result.model_validate(values)


def cell(position: int, contender: str, outcome: str = "ok") -> CellView:
    """A cell that is done."""
    values = dict.fromkeys(CellView.model_fields)
    values |= {
        "position": position,
        "contender": contender,
        "case": CASE,
        "pass": "forward",
        "state": "done",
        "outcome": outcome,
        "reason": None if outcome == "ok" else "because",
        "reused": False,
        "attempt": 1,
        "visits_done": 0,
        "visits_total": 0,
    }
    values.pop("pass_")
    return CellView.model_validate(values)


def comparison(verdict: str) -> ComparisonView:
    """A comparison: 1.0042 times the base, from 1.0021 to 1.0063."""
    values = dict.fromkeys(ComparisonView.model_fields)
    values |= {
        "id": "cmp-1",
        "base": "a",
        "candidate": "b",
        "case": CASE,
        "pass": "forward",
        "verdict": verdict,
        "ratio": 1.0042,
        "ratio_low": 1.0021,
        "ratio_high": 1.0063,
        "minimum_detectable_effect": 0.0053,
        "processes": 8,
        "looks": 2,
        "log_ratios": [0.004],
        "device_name": "GPU",
        "device_type": "cuda",
        "environment_id": "a-b",
        "protocol_version": 1,
        "measured_at": MOMENT,
    }
    values.pop("pass_")
    return ComparisonView.model_validate(values)


def row(verdict: str | None = "no_difference", outcome: str = "ok", **candidate: Any) -> Compared:
    """A case with a base that is ok, and a candidate with these fields."""
    made = [comparison(verdict)] if verdict else []
    over = result("b", **candidate) if outcome == "ok" else None
    (found,) = compared([(cell(0, "a"), result("a")), (cell(1, "b", outcome), over)], made)
    return found
