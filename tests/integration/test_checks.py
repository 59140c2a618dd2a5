"""Checks from the command line to the API: real children, a real database."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from lossbench.service.contract.check import CaseCheck, CheckRecord
from lossbench.service.contract.contender import Contender
from lossbench.service.store.checks import insert_check

from .conftest import make_environment

START = datetime(2026, 11, 30, 12, tzinfo=UTC)


def made_up_check(contender: str, outcome: str = "ok", minutes: int = 0) -> CheckRecord:
    """A check of two cases, the second with the given outcome; every number is invented."""
    first: dict[str, Any] = {
        "case": "options/none/mean/bfloat16",
        "group": "options",
        "what": "option none",
        "dtype": "bfloat16",
        "outcome": "ok",
        "grade": "exact",
        "worst_output": "dw",
        "relative_l2": 2e-3,
        "ratio": 1.01,
    }
    second = {**first, "case": "options/bias/mean/bfloat16", "outcome": outcome}
    if outcome != "ok":
        second |= {"grade": None, "reason": "db is missing", "known_fault": "known (here)"}
    moment = START + timedelta(minutes=minutes)
    return CheckRecord(
        contender=Contender.parse(contender),
        version=Contender.parse(contender).version or "2.11.0",
        environment=make_environment(),
        details={"source_hash": "abc"},
        cases=tuple(CaseCheck.model_validate(case) for case in (first, second)),
        started_at=moment,
        ended_at=moment,
    )


def store(service: Any, *records: CheckRecord) -> list[str]:
    with service.context.database.transaction() as session:
        return [insert_check(session, record) for record in records]


def test_checks_are_listed_newest_first_and_paged(any_service: Any) -> None:
    ids = store(any_service, *(made_up_check("liger@0.8.5", minutes=i) for i in range(3)))

    first = any_service.http.get("/api/v1/checks?kernel=liger&limit=2").json()
    rest = any_service.http.get(
        f"/api/v1/checks?kernel=liger&limit=2&cursor={first['next_cursor']}"
    ).json()

    assert [item["id"] for item in first["items"] + rest["items"]] == sorted(ids, reverse=True)
    assert rest["next_cursor"] is None
    assert first["items"][0]["counts"] == {"exact": 2}
    assert any_service.http.get("/api/v1/checks?kernel=flce").json()["items"] == []


def test_check_is_served_whole(any_service: Any) -> None:
    (check_id,) = store(any_service, made_up_check("flce", "wrong"))

    answer = any_service.http.get(f"/api/v1/checks/{check_id}")

    assert answer.headers["ETag"]
    assert CheckRecord.model_validate(answer.json()) == made_up_check("flce", "wrong")
    missing = any_service.http.get("/api/v1/checks/chk-none")
    assert (missing.status_code, missing.json()["status"]) == (404, 404)


def test_version_shows_failures_of_its_newest_check_only(any_service: Any) -> None:
    store(any_service, made_up_check("liger@0.8.5", "failed"))
    (newest,) = store(any_service, made_up_check("liger@0.8.5", "wrong", minutes=1))

    detail = any_service.http.get("/api/v1/kernels/liger/versions/0.8.5").json()

    assert detail["source_hash"] == "abc"
    assert [check["id"] for check in detail["checks"]] == [newest]
    assert detail["known_failures"] == [
        {
            "check_id": newest,
            "contender": "liger@0.8.5",
            "device_name": "NVIDIA H200",
            "case": "options/bias/mean/bfloat16",
            "what": "option none",
            "outcome": "wrong",
            "reason": "db is missing",
            "known_fault": "known (here)",
        }
    ]


def test_version_that_nobody_knows_is_not_found_with_the_nearest(any_service: Any) -> None:
    answer = any_service.http.get("/api/v1/kernels/liger/versions/0.8.55")

    assert answer.status_code == 404
    assert "did you mean '0.8.5'?" in answer.json()["detail"]
