"""`lossbench db copy` and `backup` between the engines: the same rows, and open jobs go on."""

import itertools
import json
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from lossbench.service.contract.errors import ConflictError, DatabaseError
from lossbench.service.store.database import Database
from lossbench.service.store.database_copy import content_of, copy_database
from lossbench.service.store.events import add_event, now
from lossbench.service.store.models import LotRow, WorkerRow
from lossbench.service.store.queue import LotQueue

from . import engines
from .filled_service import BODY, LIGER_TABLE, fill
from .service_process import Processes

GONE_S = 60

database_url = engines.database_url


@pytest.fixture
def other_url(request: pytest.FixtureRequest, database_url: str, tmp_path: Path) -> str:
    """URL of a fresh database on the engine that `database_url` is not of."""
    if database_url.startswith("sqlite"):
        return str(request.getfixturevalue("postgres_server").fresh_url())
    shutil.copy(request.getfixturevalue("sqlite_template"), tmp_path / "other.db")
    return f"sqlite:///{tmp_path / 'other.db'}"


@pytest.fixture
def target(other_url: str) -> Iterator[tuple[Database, LotQueue]]:
    database = Database(other_url)
    queue = LotQueue(database)
    yield database, queue
    queue.close()
    database.close()


def silence(database: Database) -> None:
    """The workers' last beats are a while ago."""
    with database.transaction() as session:
        session.execute(sa.update(WorkerRow).values(beat_at=now() - timedelta(seconds=GONE_S)))


def contents(database: Database) -> Any:
    with database.reading() as session:
        return content_of(session)


def test_copy_to_the_other_engine_has_the_same_rows_and_takes_up_open_jobs(
    any_service: Any, make_service: Callable[..., Any], target: tuple[Database, LotQueue]
) -> None:
    fill(any_service)
    csv = {"Content-Type": "text/csv"}
    sent = any_service.http.post("/api/v1/imports", content=LIGER_TABLE, headers=csv)
    assert sent.json()["added"] == 1, sent.text
    named = any_service.http.post("/api/v1/jobs", json={**BODY, "accelerator": "h200"})
    job = any_service.http.post("/api/v1/jobs", json=BODY).json()["id"]
    begun = any_service.worker("worker-2")
    with any_service.context.database.reading() as session:
        lot = session.scalars(sa.select(LotRow).where(LotRow.job_id == job)).one()
    begun.work.begin_lot(lot.id, lot.attempt)
    assert begun.work.begin_case(lot.id, lot.attempt, 0) is not None
    assert any_service.http.get(f"/api/v1/jobs/{job}").json()["state"] == "running"
    silence(any_service.context.database)
    before = contents(any_service.context.database)

    done = copy_database(any_service.context.database, *target, quiet_s=10)

    assert done.tables == before == contents(any_service.context.database)
    empty = {name for name, found in before.items() if found.rows == 0}
    assert empty <= {"idempotency_keys", "alert_scans"}
    after = contents(target[0])
    changed = {name for name in before if after[name] != before[name]}
    assert changed == {"lots", "job_cells", "workers", "events"}
    other = make_service(target[0].url)
    assert other.context.queue.depth() == {"h200": 1}, "the others wait for the first worker"
    for path in ("/results", "/comparisons", "/checks", "/imports", "/tokens", "/series"):
        assert (
            other.http.get(f"/api/v1{path}").json() == any_service.http.get(f"/api/v1{path}").json()
        )
    other.context.start()
    worker = other.worker("worker-3")
    deadline = time.monotonic() + 10
    while sum(other.context.queue.depth().values()) < done.lots_open:
        assert time.monotonic() < deadline, "the open lots are not routed"
        time.sleep(0.05)
    for open_job in (job, named.json()["id"]):
        worker.answer(open_job)
    view = other.http.get(f"/api/v1/jobs/{job}").json()
    assert (view["state"], view["outcomes"]) == ("done", {"ok": 2})
    assert any_service.http.get(f"/api/v1/jobs/{job}").json()["state"] == "running"


@pytest.mark.slow
def test_copy_counts_on_behind_the_numbers_it_brought(
    any_service: Any, target: tuple[Database, LotQueue]
) -> None:
    job = any_service.http.post("/api/v1/jobs", json=BODY).json()["id"]
    copy_database(any_service.context.database, *target, quiet_s=10)
    with target[0].transaction() as session:
        add_event(session, job, "log", {"line": "new"})


@pytest.mark.slow
def test_copy_into_a_database_with_rows_is_refused_and_changes_nothing(
    any_service: Any, target: tuple[Database, LotQueue]
) -> None:
    any_service.http.post("/api/v1/jobs", json=BODY)
    copy_database(any_service.context.database, *target, quiet_s=10)
    first = contents(target[0])
    with pytest.raises(ConflictError, match="holds rows already"):
        copy_database(any_service.context.database, *target, quiet_s=10)
    assert contents(target[0]) == first


@pytest.mark.slow
def test_copy_beside_a_live_worker_is_refused(
    any_service: Any, target: tuple[Database, LotQueue]
) -> None:
    any_service.worker()
    with pytest.raises(ConflictError, match="worker worker-1 is at work"):
        copy_database(any_service.context.database, *target, quiet_s=10)


@pytest.mark.slow
def test_copy_that_differs_keeps_nothing(
    any_service: Any, target: tuple[Database, LotQueue], monkeypatch: pytest.MonkeyPatch
) -> None:
    any_service.http.post("/api/v1/jobs", json=BODY)
    monkeypatch.setattr(
        "lossbench.service.store.database_copy.content_of", lambda session: {"jobs": None}
    )
    with pytest.raises(DatabaseError, match="differs"):
        copy_database(any_service.context.database, *target, quiet_s=10)
    assert all(found.rows == 0 for found in contents(target[0]).values())


def test_hash_of_the_rows_sees_every_change(any_service: Any) -> None:
    any_service.http.post("/api/v1/jobs", json=BODY)
    seen = [contents(any_service.context.database)]
    for change in (
        "UPDATE jobs SET priority = 7",
        "UPDATE jobs SET request = '{}'",
        "DELETE FROM events WHERE id = (SELECT max(id) FROM events)",
    ):
        with any_service.context.database.transaction() as session:
            session.execute(sa.text(change))
        seen.append(contents(any_service.context.database))
    assert all(one != next_one for one, next_one in itertools.pairwise(seen))


@pytest.mark.slow
def test_backup_holds_the_same_rows(service: Any, tmp_path: Path) -> None:
    fill(service)
    copy = tmp_path / "backup.db"
    done = Processes(tmp_path, service.context.database.url).run("db", "backup", str(copy))
    assert done.returncode == 0, done.stderr
    with sqlite3.connect(copy) as checked:
        assert checked.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    kept = Database(f"sqlite:///{copy}")
    assert contents(kept) == contents(service.context.database)
    kept.close()


@pytest.mark.slow
def test_job_interrupted_by_a_copy_resumes_on_the_target(
    database_url: str, other_url: str, tmp_path: Path
) -> None:
    """Real processes: service and worker are killed, `db copy`, and both start on the target."""
    import httpx

    from .service_process import free_port, submit

    port = free_port()
    processes = Processes(tmp_path, database_url)
    try:
        killed = [processes.service(port), processes.worker(0.4)]
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as http:
            job = submit(http, 12)
            while http.get(f"/api/v1/jobs/{job}").json()["outcomes"].get("ok", 0) < 3:
                pass
        for process in killed:
            process.kill()
            process.wait()
        early = processes.run("db", "copy", other_url, LOSSBENCH_STALE_AFTER_S="600")
        assert early.returncode == 2
        assert "is at work" in early.stderr
        copied = processes.run("db", "copy", other_url, "--json", LOSSBENCH_STALE_AFTER_S="0.01")
        assert copied.returncode == 0, copied.stderr
        said = json.loads(copied.stdout)
        assert said["lots_open"] >= 1
        assert said["tables"]["job_cells"]["rows"] == 12
        processes.variables["LOSSBENCH_DATABASE_URL"] = other_url
        processes.service(port)
        processes.worker(0.1)
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=40) as http:
            while not (view := http.get(f"/api/v1/jobs/{job}?wait=20").json())["ended_at"]:
                pass
            assert (view["state"], view["outcomes"]) == ("done", {"ok": 12})
            results = http.get("/api/v1/results", params={"job": job}).json()["items"]
            assert len({result["id"] for result in results}) == 12
    finally:
        processes.close()
