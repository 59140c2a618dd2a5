"""The schema: the database itself refuses bad rows; models and migrations agree."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy.exc import IntegrityError

from lossbench.service.contract.errors import DatabaseError, SchemaTooNewError
from lossbench.service.store.database import (
    Database,
    alembic_config,
    check_schema,
    make_engine,
    schema_revision,
    upgrade_schema,
)
from lossbench.service.store.models import Base
from lossbench.service.store.workers import list_workers, offered_kernels

MOMENT = "2026-11-30 12:00:00.000000"
LATER = "2026-11-30 12:00:01.000000"
EARLIER = "2026-11-30 11:00:00.000000"
RUN_ID = "run-1"
ROWS: dict[str, dict[str, Any]] = {
    "environments": {
        "id": "env",
        "device_type": "cpu",
        "device_name": "CPU",
        "hardware_fingerprint": "h",
        "software_fingerprint": "s",
        "memory_bytes": 1,
        "facts": "{}",
        "first_seen_at": MOMENT,
    },
    "jobs": {
        "id": "job",
        "kind": "benchmark",
        "state": "queued",
        "request": "{}",
        "labels": "{}",
        "accelerator": "any",
        "priority": 5,
        "processes": 3,
        "timeout_s": 600,
        "cells_total": 1,
        "estimated_s": 1,
        "created_at": MOMENT,
    },
    "lots": {
        "id": "lot",
        "job_id": "job",
        "position": 0,
        "queue": "any",
        "state": "queued",
        "attempt": 1,
        "cases": "[]",
        "estimated_s": 1,
    },
    "runs": {
        "id": RUN_ID,
        "cell_key": "k",
        "contender": "flce",
        "kernel": "flce",
        "params": "",
        "case_text": "c",
        "tokens": 8,
        "hidden": 4,
        "vocab": 16,
        "dtype": "bfloat16",
        "recipe": "normal",
        "pass": "forward",
        "outcome": "ok",
        "baseline": "torch-naive",
        "environment_id": "env",
        "worker_id": "w",
        "processes": 1,
        "seed": 0,
        "protocol_version": 1,
        "flags": "[]",
        "record": "{}",
        "imported": 0,
        "started_at": MOMENT,
        "ended_at": LATER,
    },
    "job_cells": {
        "job_id": "job",
        "lot_id": "lot",
        "position": 0,
        "case_index": 0,
        "contender": "flce",
        "case_text": "c",
        "pass": "forward",
        "cell_key": "k",
        "state": "queued",
        "attempt": 1,
        "deaths": 0,
        "visits_done": 0,
        "visits_total": 0,
        "reused": 0,
    },
    "output_errors": {"run_id": RUN_ID, "output": "dx", "detail": "{}"},
    "samples": {
        "run_id": RUN_ID,
        "arm": "contender",
        "process": 0,
        "n": 1,
        "visit_sizes": "[]",
        "latency_ms": b"",
    },
    "workers": {
        "id": "w",
        "name": "w",
        "queues": "[]",
        "state": "idle",
        "beat": 0,
        "beat_at": MOMENT,
        "started_at": MOMENT,
        "vitals": "{}",
    },
    "checks": {
        "id": "chk",
        "kernel": "flce",
        "version": "1",
        "contender": "flce@1",
        "params_text": "",
        "device_type": "cpu",
        "device_name": "CPU",
        "hardware_fingerprint": "h",
        "software_fingerprint": "s",
        "interpreted": 1,
        "started_at": MOMENT,
        "ended_at": LATER,
        "counts": "{}",
        "record": "{}",
    },
}
DONE = {"state": "done", "outcome": "ok", "run_id": RUN_ID}


def insert(connection: sa.Connection, table: str, row: dict[str, Any]) -> None:
    connection.execute(sa.text(statement(table, row)), row)


def statement(table: str, row: dict[str, Any]) -> str:
    return f"INSERT INTO {table} ({', '.join(row)}) VALUES ({', '.join(f':{n}' for n in row)})"


@pytest.fixture(scope="module")
def shared(template: Path) -> Iterator[sa.Connection]:
    """One connection for all rows; nothing is ever committed."""
    database = Database(f"sqlite:///{template}")
    with database.engine.connect() as connection:
        yield connection
    database.close()


@pytest.fixture
def connection(shared: sa.Connection) -> Iterator[sa.Connection]:
    """With one good row in `environments`, `jobs`, `lots` and `runs`."""
    for table in ("environments", "jobs", "lots", "runs"):
        insert(shared, table, ROWS[table])
    yield shared
    shared.rollback()


@pytest.mark.parametrize(
    ("table", "changes"),
    [
        ("job_cells", {}),
        ("job_cells", DONE),
        ("job_cells", {"state": "done", "outcome": "failed", "reason": "it broke"}),
        ("output_errors", {}),
        ("samples", {}),
        ("workers", {}),
        ("workers", {"kernels": "{}"}),
        ("checks", {}),
        ("checks", {"version": None, "ended_at": MOMENT}),
        ("runs", {"id": "run-2", "outcome": "wrong", "reason": "dx: missing"}),
        ("runs", {"id": "run-2", "latency_ms": None, "ended_at": MOMENT}),
    ],
)
def test_database_takes_good_rows(
    connection: sa.Connection, table: str, changes: dict[str, Any]
) -> None:
    insert(connection, table, {**ROWS[table], **changes})


@pytest.mark.parametrize(
    ("table", "changes"),
    [
        ("jobs", {"id": "j2", "state": "paused"}),
        ("jobs", {"id": "j2", "kind": "race"}),
        ("jobs", {"id": "j2", "priority": 0}),
        ("jobs", {"id": "j2", "cells_total": -1}),
        ("lots", {"id": "l2", "position": 1, "state": "failed"}),
        ("lots", {"id": "l2", "position": 1, "attempt": 0}),
        ("lots", {"id": "l2"}),
        ("lots", {"id": "l2", "position": 1, "job_id": "no-such-job"}),
        ("job_cells", {"state": "paused"}),
        ("job_cells", {"pass": "both"}),
        ("job_cells", {"outcome": "ok", "run_id": RUN_ID}),
        ("job_cells", {"state": "done"}),
        ("job_cells", {"state": "done", "outcome": "ok"}),
        ("job_cells", {"state": "done", "outcome": "broken", "reason": "x"}),
        ("job_cells", {"state": "done", "outcome": "failed"}),
        ("job_cells", {**DONE, "run_id": "no-such-run"}),
        ("runs", {"id": "r2", "outcome": "great"}),
        ("runs", {"id": "r2", "outcome": "wrong"}),
        ("runs", {"id": "r2", "pass": "both"}),
        ("runs", {"id": "r2", "grade": "good"}),
        ("runs", {"id": "r2", "latency_ms": -1.0}),
        ("runs", {"id": "r2", "latency_ms": 0.0}),
        ("runs", {"id": "r2", "processes": 0}),
        ("runs", {"id": "r2", "ended_at": EARLIER}),
        ("runs", {"id": "r2", "workspace_bytes": -1}),
        ("runs", {"id": "r2", "environment_id": "no-such-environment"}),
        ("environments", {"id": "e2", "device_type": "tpu"}),
        ("output_errors", {"output": "dz"}),
        ("samples", {"arm": "warmup"}),
        ("workers", {"state": "sleeping"}),
        ("checks", {"device_type": "tpu"}),
        ("checks", {"ended_at": EARLIER}),
        ("checks", {"kernel": None}),
    ],
)
def test_database_refuses_bad_rows(
    connection: sa.Connection, table: str, changes: dict[str, Any]
) -> None:
    with pytest.raises(IntegrityError):
        insert(connection, table, {**ROWS[table], **changes})


def differences(database: Database, ours_only: bool) -> list[Any]:
    names = frozenset(Base.metadata.tables)

    def include_name(name: str | None, kind: str, _parents: Any) -> bool:
        return not ours_only or kind != "table" or name in names

    with database.engine.connect() as connection:
        options = {"include_name": include_name, "compare_type": True}
        context = MigrationContext.configure(connection, opts=options)
        return list(compare_metadata(context, Base.metadata))


def test_migrations_make_exactly_the_models(database: Database) -> None:
    assert differences(database, ours_only=True) == []


def test_migrations_agree_with_models_beside_the_queue_s_tables(database: Database) -> None:
    ours = set(sa.inspect(database.engine).get_table_names())
    # in a process of its own: DBOS keeps state for the whole process
    code = (
        "import sys; from lossbench.service.store.database import Database;"
        "from lossbench.service.store.queue import migrate_queue;"
        "migrate_queue(Database(sys.argv[1]))"
    )
    subprocess.run([sys.executable, "-P", "-c", code, database.url], check=True)
    queue_s = set(sa.inspect(database.engine).get_table_names()) - ours
    assert "workflow_status" in queue_s
    assert not queue_s & set(Base.metadata.tables)
    assert differences(database, ours_only=True) == []
    # without the filter autogenerate would drop them: the filter is needed
    removed = {change[1].name for change in differences(database, False) if "remove" in change[0]}
    assert queue_s <= removed


def test_upgrade_schema_keeps_what_an_older_one_holds(tmp_path: Path) -> None:
    """A worker stored before workers could offer kernels, and back again."""
    database = Database(f"sqlite:///{tmp_path / 'old.db'}")
    alembic = alembic_config(database.engine)
    command.upgrade(alembic, "0001")
    with database.transaction() as session:
        insert(session.connection(), "workers", ROWS["workers"])
    assert check_schema(database) is False
    upgrade_schema(database)
    with database.reading() as session:
        assert [(row.id, row.kernels) for row in list_workers(session)] == [("w", None)]
        assert offered_kernels(session) == []
    command.downgrade(alembic, "0001")
    assert schema_revision(database.engine) == "0001"
    database.close()


def test_upgrade_schema_called_again_changes_nothing(database: Database) -> None:
    first = upgrade_schema(database)
    assert upgrade_schema(database) == first
    assert check_schema(database) is True


def test_check_schema_of_an_empty_database_asks_for_an_upgrade(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'empty.db'}")
    assert check_schema(database) is False
    database.close()


def test_check_schema_newer_than_the_code_is_refused(database: Database) -> None:
    with database.transaction() as session:
        session.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    for refused in (check_schema, upgrade_schema):
        with pytest.raises(SchemaTooNewError, match="9999"):
            refused(database)


def test_check_schema_of_a_database_out_of_reach_says_so(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'no' / 'such' / 'folder.db'}")
    with pytest.raises(DatabaseError, match="cannot be reached"):
        check_schema(database)


@pytest.mark.parametrize("url", ["nonsense", "oracle+nope://x", ""])
def test_make_engine_of_an_unusable_url_says_what_to_write(url: str) -> None:
    with pytest.raises(DatabaseError, match="LOSSBENCH_DATABASE_URL"):
        make_engine(url)


def test_sqlite_keeps_foreign_keys_and_the_write_ahead_log(database: Database) -> None:
    with database.reading() as session:
        found = [session.scalar(sa.text(f"PRAGMA {n}")) for n in ("foreign_keys", "journal_mode")]
    assert json.dumps(found) == '[1, "wal"]'
