"""The page of all checks: every contender has its row, nothing wrong is hidden."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from lossbench.service.cli.check_report import refused_everywhere, report_of, summary
from lossbench.service.contract.check import CaseCheck, CheckRecord
from lossbench.service.contract.run import Environment

MOMENT = datetime(2026, 11, 30, tzinfo=UTC)


def case(id: str, outcome: str = "ok", grade: str | None = "exact", **more: Any) -> CaseCheck:
    group = id.split("/")[0]
    fields = {"case": id, "group": group, "what": "", "dtype": "bfloat16", "outcome": outcome}
    return CaseCheck.model_validate({**fields, "grade": grade if outcome == "ok" else None, **more})


def record(contender: str, *cases: CaseCheck, device: str = "H200") -> CheckRecord:
    environment = Environment(
        device_type="cuda" if device == "H200" else "cpu",
        device_name=device,
        device_uuid_hash="0",
        memory_bytes=1,
        facts={"torch": "2.11.0"},
        hardware_fingerprint="h",
        software_fingerprint="s",
    )
    return CheckRecord.model_validate(
        {
            "contender": contender,
            "version": "1",
            "environment": environment,
            "cases": cases,
            "started_at": MOMENT,
            "ended_at": MOMENT,
        }
    )


def test_summary_is_the_worst_grade_and_counts_what_fails() -> None:
    coarse = case("options/none/sum/bfloat16", grade="coarse", worst_output="dw")
    right = [case("options/none/mean/bfloat16"), coarse]
    unsupported = case("options/none/none/bfloat16", "unsupported")

    assert summary(right) == "coarse (dw)"
    assert summary([*right, unsupported]) == "coarse (dw) + -"
    assert summary([unsupported]) == "-"
    not_here = case("options/none/none/bfloat16", "unsupported", reason="this case needs a GPU")
    assert summary([*right, not_here]) == "coarse (dw)"
    assert summary([*right, case("options/none/x/y", "wrong")]) == "**wrong 1/3**"
    failed = [case("a/b", "failed"), case("a/c", "timed_out"), case("a/d", "wrong"), *right]
    assert summary(failed) == "**wrong 1/5**, **fails 2/5**"


def test_report_shows_every_contender_and_each_fault_with_its_reason() -> None:
    text = report_of(
        [
            record("flce@1", case("options/bias/mean/bfloat16")),
            record(
                "liger@0.8.5",
                case("options/bias/mean/bfloat16", "wrong", reason="db is missing"),
                case("calls/x", "failed", reason="Boom: no", known_fault="it booms (here#1)"),
            ),
            record(
                "quack@0.6.5", case("options/bias/mean/bfloat16", "unsupported", reason="no bias")
            ),
            record("flce@1", case("options/bias/mean/bfloat16", grade="poor"), device="AMD EPYC"),
        ],
        today=MOMENT,
    )

    assert text.index("## H200: torch 2.11.0") < text.index("## AMD EPYC: torch 2.11.0")
    assert "| flce@1 | - | exact |" in text
    assert "| flce@1 | - | poor |" in text
    assert "- wrong: db is missing. In `options/bias/mean/bfloat16`; liger@0.8.5." in text
    assert "- failed: it booms (here#1). Seen: Boom: no. In `calls/x`; liger@0.8.5." in text
    assert "- **quack@0.6.5**: no bias" in text
    assert "on 2026-11-30" in text


def test_contender_that_answers_one_case_is_not_refused() -> None:
    no = case("a/b", "unsupported", reason="needs a GPU")

    assert refused_everywhere([no, no]) == "needs a GPU"
    assert refused_everywhere([no, case("a/c")]) is None
