"""What a device can tell apart: doctor, pool, a worker's self-test; real processes, tiny cases."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from lossbench.service.cli.device_proof import print_proof, prove_here
from lossbench.service.settings import Settings
from lossbench.service.store.database import Database, upgrade_schema
from lossbench.service.store.proofs import ProofKind, insert_proof, proofs_page
from lossbench.service.store.workers import get_worker, register_worker
from lossbench.worker import main as worker_main
from lossbench.worker import proof_runner
from lossbench.worker.device import Probe, probe_device, probe_worker
from lossbench.worker.locks import take_device_lock
from lossbench.worker.main import Worker, WorkerOptions

from .conftest import make_environment

TINY = ("N128-H64-V1024-float32",)
GPU_TESTS = Path(__file__).parents[1] / "gpu"
FAILED = {"passed": False, "log_ratios": [0.03, 0.02], "limit": 0.01, "flags": [], "seconds": 9.0}


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spinning threads of several children slow each other down on two cores."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def script(name: str) -> ModuleType:
    """A script of tests/gpu as a module."""
    spec = importlib.util.spec_from_file_location(name, GPU_TESTS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_doctor_measures_prints_and_stores_what_this_machine_can_see(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(proof_runner, "CPU_CASES", TINY)
    settings = Settings(data_dir=tmp_path)
    code = prove_here(settings, quick=True, as_json=True)
    printed = json.loads(capsys.readouterr().out)
    assert code == (0 if printed["passed"] else 1)
    (made,) = printed["classes"]
    assert (made["case"], made["processes"]) == (TINY[0], 3)
    assert set(made["slowdowns"]) == {"A+1%", "A+2%", "A+5%"}
    assert made["detectable"]["3"] > made["detectable"]["24"] > 0.0
    assert all(step["planted"] > 0.0 for step in made["slowdowns"].values())
    database = Database.from_settings(settings)
    with database.reading() as session:
        (row,) = proofs_page(session, ProofKind.DOCTOR)
        assert (row.id, row.passed) == (printed["id"], printed["passed"])
        assert row.record["classes"][0]["call_ms"] == made["call_ms"]
    database.close()
    print_proof("CPU", printed)
    table = capsys.readouterr().out
    assert "Smallest slowdown" in table
    assert "P=24" in table


def test_pool_goes_on_where_it_was_cut_off_and_is_reported(tmp_path: Path) -> None:
    pool, report = script("proof_pool"), script("proof_report")
    file = tmp_path / "pool.jsonl"
    more = ["--contender", "torch-upcast", "--quick", "--no-ahead", "--visits", "2"]
    shapes = [*TINY, "N64-H32-V512-float32"]
    call = [str(file), "--processes", "3", "--shapes", *shapes, *more]
    assert pool.main([*call, "--until-s", "0"]) == pool.NOT_YET
    assert len(pool.read_lines(file)) == 2
    # the machine went away in the middle of a line
    with file.open("a") as out:
        out.write('{"process": 1, "case": "N128')
    assert pool.main([*call, "--until-s", "60"]) == pool.ENOUGH
    lines = pool.read_lines(file)
    assert sorted({line["process"] for line in lines}) == [0, 1, 2]
    assert len(lines) == 6
    assert all(len(made) == 2 for line in lines for made in line["visits"].values())
    text = report.report(report.read_pool(file))
    for title in ("The same code twice", "Deviation of r", "Slowdowns", "Place in the round"):
        assert f"## {title}" in text
    assert text.count("`N128-H64-V1024-float32`") == 1 + 1 + 3 + 1


def test_pool_measures_nothing_that_it_has(tmp_path: Path) -> None:
    pool = script("proof_pool")
    file = tmp_path / "pool.jsonl"
    rows = [{"process": p, "case": case, "failed": "no"} for p in (0, 1) for case in TINY]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert pool.main([str(file), "--processes", "2", "--shapes", *TINY]) == pool.ENOUGH
    assert len(pool.read_lines(file)) == 2


def test_worker_stores_its_self_test_and_the_service_shows_it(
    any_service: Any, tmp_path: Path
) -> None:
    environment, fault, tested = probe_worker(tmp_path, quick=True)
    assert fault is None
    assert tested is not None
    assert environment.facts["self_test_passed"] is tested["passed"]
    assert {"timer_overhead_us", "launch_overhead_us", "control_gemm_ms", "variables"} <= set(
        environment.facts
    )
    database = any_service.context.database
    other = make_environment(hardware="another")
    register_worker(database, "wrk-1", "one", ["cpu"], environment)
    with database.transaction() as session:
        first = insert_proof(session, ProofKind.SELF_TEST, environment, tested["passed"], tested)
        second = insert_proof(session, ProofKind.DOCTOR, other, True, {"classes": []})
    with any_service.client() as client:
        both = client.get("/api/v1/proofs").json()["items"]
        mine = client.get("/api/v1/proofs", params={"machine": "wrk-1"}).json()["items"]
        doctor = client.get("/api/v1/proofs", params={"kind": "doctor"}).json()["items"]
        page = client.get("/api/v1/proofs", params={"limit": 1}).json()
        rest = client.get("/api/v1/proofs", params={"cursor": page["next_cursor"]}).json()
        nobody = client.get("/api/v1/proofs", params={"machine": "wrk-9"})
    assert [proof["id"] for proof in both] == [second, first]
    assert [proof["id"] for proof in mine] == [first]
    assert mine[0]["record"]["log_ratios"] == tested["log_ratios"]
    assert [proof["id"] for proof in doctor] == [second]
    assert [proof["id"] for proof in page["items"] + rest["items"]] == [second, first]
    assert nobody.status_code == 404


def test_self_test_leaves_a_device_alone_on_which_another_measures(tmp_path: Path) -> None:
    environment, _ = probe_device(quick=True)
    held = take_device_lock(tmp_path, environment.device_uuid_hash)
    assert probe_worker(tmp_path, quick=True).self_test is None
    os.close(held)


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_worker_whose_self_test_fails_twice_takes_no_lots_on_a_gpu_only(
    device: str, tmp_path: Path, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = make_environment()
    if device == "cpu":
        environment = environment.model_copy(update={"device_type": "cpu", "device_name": "CPU"})
    monkeypatch.setattr(worker_main, "probe_worker", lambda *_: Probe(environment, None, FAILED))
    started: list[str] = []
    monkeypatch.setattr(
        worker_main.LotConsumer, "start", lambda self, queues: started.extend(queues)
    )
    settings = Settings(data_dir=tmp_path, database_url=sqlite_url)
    worker = Worker(settings, WorkerOptions())
    worker.start()
    database = Database(sqlite_url)
    with database.reading() as session:
        row = get_worker(session, worker.id)
        (proof,) = proofs_page(session, ProofKind.SELF_TEST)
        state, note, passed = row.state, row.note, proof.passed
    database.close()
    worker.stop()
    assert not passed
    if device == "cuda":
        assert (state, started) == ("unhealthy", [])
        assert note == (
            "the self-test failed: two arms of the same code differed by 3.0% and 2.0%, "
            "at most 1% is accepted"
        )
    else:
        assert (state, started) == ("idle", ["cpu"])


def test_real_worker_tests_itself_at_its_start(tmp_path: Path, sqlite_url: str) -> None:
    command = [sys.executable, "-P", "-m", "lossbench.service.cli.main", "worker", "--drain"]
    variables = {
        "PATH": os.environ["PATH"],
        "LOSSBENCH_DATA_DIR": str(tmp_path),
        "LOSSBENCH_DATABASE_URL": sqlite_url,
        "PYTHONSAFEPATH": "1",
    }
    subprocess.run(command, env=variables, check=True, timeout=120, stdout=subprocess.DEVNULL)
    database = Database(sqlite_url)
    upgrade_schema(database)
    with database.reading() as session:
        (proof,) = proofs_page(session, ProofKind.SELF_TEST)
        assert proof.record["seconds"] < 30.0
        assert len(proof.record["log_ratios"]) in (1, 2)
    database.close()
