"""Checks from the command line to the API: real children, a real database."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from lossbench.kernels.catalogue import CATALOGUE
from lossbench.service.contract.check import CaseCheck, CheckRecord
from lossbench.service.contract.contender import Contender
from lossbench.service.store.checks import insert_check, newest_checks, record_of
from lossbench.service.store.database import Database

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
        second |= {"grade": None, "reason": "db is missing"}
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
            "known_fault": None,
        }
    ]


def test_version_that_nobody_knows_is_not_found_with_the_nearest(any_service: Any) -> None:
    answer = any_service.http.get("/api/v1/kernels/liger/versions/0.8.55")

    assert answer.status_code == 404
    assert "did you mean '0.8.5'?" in answer.json()["detail"]


CHECKED_WHOLE = ("torch-naive", "torch-upcast", "torch-native", "flce", "liger")
NOT_ON_A_CPU = ("cce", "quack", "geiping")
ONE_OF_EACH_KIND = ("torch-compile", "torch-compile-chunked", "fla")
"""Contenders whose every case takes seconds here; on a GPU they are asked them all."""


def check_on_this_cpu(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "lossbench.service.cli.main", "kernels", "check", *arguments],
        env={
            "PATH": os.environ["PATH"],
            "LOSSBENCH_DATA_DIR": str(folder),
            "PYTHONSAFEPATH": "1",
            "COLUMNS": "160",
        },
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.mark.timeout(900)
def test_every_contender_that_runs_on_a_cpu_is_checked_and_known_faults_show(
    tmp_path: Path,
) -> None:
    whole = check_on_this_cpu(tmp_path, *CHECKED_WHOLE, *NOT_ON_A_CPU)
    quick = check_on_this_cpu(tmp_path, "--quick", *ONE_OF_EACH_KIND)

    assert (whole.returncode, quick.returncode) == (0, 0), whole.stderr + quick.stderr
    database = Database(f"sqlite:///{tmp_path / 'lossbench.db'}")
    with database.reading() as session:
        records = {row.kernel: record_of(row) for row in newest_checks(session)}
    database.close()
    assert set(records) == {*CHECKED_WHOLE, *NOT_ON_A_CPU, *ONE_OF_EACH_KIND} == set(CATALOGUE)
    results = {name: {case.case: case for case in record.cases} for name, record in records.items()}
    for name in NOT_ON_A_CPU:
        assert set(records[name].counts) == {"unsupported"}
    for name in ("torch-upcast", "flce"):
        assert set(records[name].counts) <= {"exact", "fair", "coarse", "unsupported"}
        assert records[name].counts["exact"] > 150
    # known faults show, and are not tuned away
    assert results["torch-naive"]["reports/K22"].result == "poor"
    assert results["torch-naive"]["reports/K01"].notes == ("nan_on_empty",)
    assert results["torch-native"]["reports/K01"].result == "wrong"
    assert "nan" in (results["torch-native"]["reports/K01"].reason or "")
    assert results["torch-compile"]["calls/two_backwards/float32"].result == "failed"
    # in the interpreter a failed check is not held against the contender
    assert results["liger"]["calls/two_backwards/float32"].result == "unsupported"
    assert "interpreter" in (results["liger"]["calls/two_backwards/float32"].reason or "")
    assert results["liger"]["options/softcap/mean/float32"].result in ("exact", "fair")


def test_check_that_finds_an_unknown_fault_exits_with_one(tmp_path: Path) -> None:
    """The fault is real: a plugin whose weight gets no gradient."""
    package = tmp_path / "site"
    info = package / "lazy_loss-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lazy-loss\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[lossbench.kernels]\nlazy = lazy_spec:SPEC\n")
    (package / "lazy_spec.py").write_text(
        "from lossbench.kernels.kernel_spec import OPTIONS, KernelSpec\n"
        "SPEC = KernelSpec(name='lazy-loss', summary='forgets dW', origin='built-in',\n"
        "    build='lazy_loss:build', options=OPTIONS, dtypes=frozenset({'float32'}),\n"
        "    gradients_in_forward=False,\n"
        "    products={'forward': 1, 'backward': 2, 'forward_backward': 3})\n"
    )
    (package / "lazy_loss.py").write_text(
        "from lossbench.kernels.checks.truth import exact_loss\n"
        "def build(version, params):\n"
        "    def loss(x, w, y, b=None, **options):\n"
        "        return exact_loss(x, w.detach(), y, b, **options)\n"
        "    return loss\n"
    )
    arguments = ("lazy-loss", "--case", "options/none/*", "--no-save")
    found = subprocess.run(
        [sys.executable, "-P", "-m", "lossbench.service.cli.main", "kernels", "check", *arguments],
        env={
            "PATH": os.environ["PATH"],
            "LOSSBENCH_DATA_DIR": str(tmp_path / "data"),
            "PYTHONSAFEPATH": "1",
            "PYTHONPATH": str(package),
            "COLUMNS": "160",
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert found.returncode == 1
    assert "dw is missing" in found.stdout
    assert "3 faults that are not known ones" in found.stderr


def test_check_of_a_case_that_does_not_exist_is_refused_in_one_line(tmp_path: Path) -> None:
    found = check_on_this_cpu(tmp_path, "flce", "--case", "nothing/*")

    assert found.returncode == 2
    assert found.stderr.strip() == "error: no case of the grid is called nothing/*"
