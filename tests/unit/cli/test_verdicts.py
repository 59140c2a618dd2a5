"""Which words of `--fail-on` hold of a comparison, and how its rows read."""

from typing import Any

import pytest

from lossbench.service.cli.verdicts import plain_row, print_rows, regressions
from lossbench.service.contract.comparison import ComparisonView
from lossbench.service.contract.result import CellView, Result
from lossbench.service.contract.words import Outcome, Verdict
from lossbench.service.plots.verdicts import Compared, compared, verdict_rows

MOMENT = "2026-11-30T12:00:00Z"
CASE = "N8-H4-V16-float32"
MIB = 2**20


def result(contender: str, **changes: Any) -> Result:
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
    made = [comparison(verdict)] if verdict else []
    over = result("b", **candidate) if outcome == "ok" else None
    (found,) = compared([(cell(0, "a"), result("a")), (cell(1, "b", outcome), over)], made)
    return found


@pytest.mark.parametrize(
    ("found", "words", "expected"),
    [
        (row("slower"), {"slower"}, ["slower"]),
        (row("slower"), {"wrong", "failed"}, []),
        (row("faster"), {"slower"}, []),
        (row("inconclusive"), {"inconclusive"}, ["inconclusive"]),
        (row("inconclusive", "wrong"), {"slower", "wrong"}, ["wrong"]),
        (row("inconclusive", "wrong"), {"slower"}, []),
        (row("inconclusive", "failed"), {"failed"}, ["failed"]),
        (row(None, "unsupported"), {"unsupported"}, ["unsupported"]),
        (row(None, "unsupported"), {"inconclusive"}, ["inconclusive"]),
        (row(workspace_bytes=402 * MIB), {"memory"}, []),
        (row(workspace_bytes=402 * MIB + 1), {"memory"}, ["memory"]),
        (row(workspace_bytes=1 * MIB), {"memory"}, []),
        (row(grade="fair"), {"error"}, ["error"]),
        (row(grade="exact"), {"error"}, []),
        (row(grade=None), {"error"}, []),
    ],
)
def test_regression_is_what_the_words_name(
    found: Compared, words: set[str], expected: list[str]
) -> None:
    assert regressions(found, frozenset(words)) == expected


@pytest.mark.parametrize(
    ("outcome", "fails"),
    [("ok", False), ("unsupported", False), ("out_of_memory", False), ("wrong", True),
     ("failed", True), ("timed_out", True), ("cancelled", True)],
)  # fmt: skip
def test_without_words_only_outcomes_fail(outcome: str, fails: bool) -> None:
    assert bool(regressions(row("slower", outcome), None)) is fails


def test_row_has_the_digits_that_half_a_per_cent_needs(capsys: pytest.CaptureFixture[str]) -> None:
    (text,) = verdict_rows([row("slower")])
    assert (text.words, text.ratio, text.interval) == ("slower", "1.004×", "1.002 – 1.006")
    assert (text.detectable, text.processes) == ("0.53 %", "8")
    assert text.workspaces == ("400 MiB", "400 MiB")
    print_rows([row("slower")], "markdown")
    line = capsys.readouterr().out.splitlines()[-1]
    assert line.startswith(f"| `{CASE}`, forward | slower | 1.004× (1.002 – 1.006) | 0.53 % | 8 |")


def test_refused_row_says_why_and_has_no_verdict() -> None:
    found = row(None, "unsupported")
    (text,) = verdict_rows([found])
    assert (text.verdict, text.words, text.reason) == ("not_measured", "not measured", "because")
    plain = plain_row(found)
    assert (plain["verdict"], plain["comparison"], plain["reason"]) == (None, None, "because")
    assert plain["candidate"]["outcome"] is Outcome.UNSUPPORTED
    assert plain_row(row("faster"))["verdict"] is Verdict.FASTER
