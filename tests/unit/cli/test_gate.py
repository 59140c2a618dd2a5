"""Budgets of a suite file: which are broken, by what, and which files are refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from lossbench.service.cli.gate import Gate, breaches, require_a_baseline
from lossbench.service.cli.requests import read_budgets, read_job_file
from lossbench.service.contract.budget import Budget
from lossbench.service.contract.errors import InvalidRequestError, LossbenchError
from lossbench.service.contract.words import FAILURES
from lossbench.service.plots.verdicts import Compared, compared

from .rows import CASE, MIB, cell, result, row


def broken(found: Compared, **budget: Any) -> list[str]:
    return breaches(found, [Budget.model_validate(budget)])


def without_baseline(candidate: str = "ok") -> Compared:
    over = result("b") if candidate == "ok" else None
    (found,) = compared([(cell(0, "a", "failed"), None), (cell(1, "b", candidate), over)], [])
    return found


def test_time_counts_by_the_near_end_of_its_interval() -> None:
    slower = row("slower")  # 1.0042, from 1.0021 to 1.0063
    assert broken(slower, metric="latency", max_ratio=1.003) == []
    assert broken(slower, metric="latency", max_ratio=1.002) == [
        "latency: 1.004× (1.002 – 1.006) the base, the budget is 1.002×"
    ]
    assert broken(row(None), metric="latency", max_ratio=1.002) == []
    late = row(latency_ms=2.0, latency_low_ms=1.9)
    assert broken(late, metric="latency", max_ms=1.95) == []
    assert broken(late, metric="latency", max_ms=1.8) == ["latency: 2.00 ms, the budget is 1.80 ms"]


def test_workspace_counts_to_the_byte_and_over_the_base() -> None:
    full = row(workspace_bytes=400 * MIB)
    assert broken(full, metric="workspace", max_bytes="400MiB") == []
    assert broken(full, metric="workspace", max_bytes=400 * MIB - 1) == [
        "workspace: 400 MiB, 1 bytes over the budget of 400 MiB"
    ]
    more = row(workspace_bytes=402 * MIB)
    assert broken(more, metric="workspace", max_ratio=1.005) == []
    assert broken(more, metric="workspace", max_ratio=1.004) == [
        "workspace: 1.005× the base, the budget is 1.004×"
    ]
    assert broken(row(workspace_bytes=None), metric="workspace", max_ratio=2) == [
        "workspace: not measured"
    ]


def test_error_counts_by_its_grade() -> None:
    assert broken(row(grade="fair"), metric="error", max_error_grade="fair") == []
    assert broken(row(grade="coarse"), metric="error", max_error_grade="fair") == [
        "error: grade coarse, the budget is fair"
    ]
    assert broken(row(grade=None), metric="error", max_error_grade="poor") == [
        "error: grade unknown, the budget is poor"
    ]


def test_budget_limits_the_cases_and_the_pass_it_names() -> None:
    one = {"metric": "workspace", "max_bytes": 1}
    assert broken(row(), **one, cases="N8-*")
    assert not broken(row(), **one, cases="N9-*")
    assert not broken(row(), **one, **{"pass": "backward"})


def test_budget_is_not_kept_by_a_candidate_without_a_measurement() -> None:
    found = row("inconclusive", "failed")
    assert broken(found, metric="error", max_error_grade="poor") == [
        "error: no measurement, the candidate is failed"
    ]
    assert broken(without_baseline("unsupported"), metric="latency", max_ratio=1.1) == []


def test_no_baseline_is_said_and_fails_only_where_it_is_named() -> None:
    found = without_baseline()
    assert found.reason == "a is failed: because"
    assert Gate(frozenset({"slower", "inconclusive"}), []).passes([found])
    assert Gate(frozenset({"no_baseline"}), []).findings(found) == ["no_baseline"]
    require_a_baseline([found, row()])
    with pytest.raises(LossbenchError, match=r"no baseline: a has no result .*failed: because"):
        require_a_baseline([found, found])


def test_gate_prints_what_fails_each_row(capsys: pytest.CaptureFixture[str]) -> None:
    gate = Gate(
        frozenset({"slower"}),
        [Budget.model_validate({"metric": "error", "max_error_grade": "exact"})],
    )
    rows = [row("slower", grade="fair"), row("faster")]
    assert not gate.passes(rows)
    gate.show(rows, "markdown")
    said = capsys.readouterr().out
    assert said.startswith("**`b` against `a`**: 1 slower, 1 faster")
    assert said.endswith(
        f"Failed on:\n\n- {CASE}, forward: slower; error: grade fair, the budget is exact\n"
    )
    gate.show(rows, "json")
    found = json.loads(capsys.readouterr().out)
    assert [each["failed_on"] for each in found] == [
        ["slower", "error: grade fair, the budget is exact"],
        [],
    ]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "{metric: latency, max_bytes: 1}",
            "a budget of latency has no max_bytes; use max_ratio or max_ms",
        ),
        ("{metric: error}", "a budget of error needs max_error_grade"),
        ("{metric: workspace, max_bytes: 2 GB}", "'2 GB' is not a size such as 2GiB"),
        ("{metric: speed, max_ratio: 1}", "latency"),
        ("{metric: latency, max_ratio: 1, case: x}", "case"),
    ],
)
def test_budget_that_cannot_be_is_named(tmp_path: Path, line: str, said: str) -> None:
    file = tmp_path / "suite.yaml"
    file.write_text(f"shapes: []\nbudgets:\n  - {line}\n")
    with pytest.raises(InvalidRequestError) as refused:
        read_budgets(file)
    assert said in str(refused.value)
    assert "budgets/0" in str([fault.pointer for fault in refused.value.faults])


def test_job_of_a_suite_file_is_without_its_budgets(tmp_path: Path) -> None:
    file = tmp_path / "suite.yaml"
    file.write_text("contenders: [flce]\nbudgets: [{metric: error, max_error_grade: fair}]\n")
    assert read_job_file(file) == {"contenders": ["flce"]}
    assert [budget.metric for budget in read_budgets(file)] == ["error"]


@pytest.mark.parametrize("outcome", sorted(FAILURES))
def test_candidate_that_fails_passes_no_gate_whatever_it_is_asked(outcome: str) -> None:
    found = row("inconclusive", outcome)
    assert outcome in Gate(frozenset({"slower"}), []).findings(found)
    assert Gate(frozenset({outcome}), []).findings(found).count(outcome) == 1
    assert Gate(frozenset({"slower"}), []).passes([without_baseline()])
