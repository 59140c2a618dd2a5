"""Every index has a query that needs it: the plan names it, and without it the plan is worse.

The statements are those that the store itself sends. What a plan must not do: read a whole table
that grows, or sort what an index could have given in order. Empty tables are enough: SQLite plans
without statistics, and PostgreSQL is told to leave out what it prefers for tables of no rows.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from lossbench.service.contract.contender import Contender
from lossbench.service.contract.machine import Machine
from lossbench.service.contract.words import JobState, Outcome
from lossbench.service.store import result_ids
from lossbench.service.store.alerts import drop_result
from lossbench.service.store.budgets import contenders_of_open_lots, spent_by
from lossbench.service.store.checks import checks_page
from lossbench.service.store.claim_failures import failed_cells
from lossbench.service.store.comparisons import comparisons_of_job, head_to_head
from lossbench.service.store.database import Database
from lossbench.service.store.events import events_after
from lossbench.service.store.imports import imported_rows_page
from lossbench.service.store.jobs import count_cells, queue_position, settle_cells
from lossbench.service.store.models import Base, CellRow, JobRow
from lossbench.service.store.result_ids import SORTABLE, Order, Place, page_ids
from lossbench.service.store.result_pages import newest_runs
from lossbench.service.store.results import ResultFilter, known_runs

DAY = datetime(2026, 11, 30, tzinfo=UTC)
GPU = "NVIDIA H200"
MACHINE = Machine(
    device_type="cuda",
    device_name=GPU,
    memory_bytes=1,
    gemm_tflops=1.0,
    hardware_fingerprint="h",
    software_fingerprint="s",
    queues=("q",),
)
Ask = Callable[[Session], Any]
Statement = tuple[str, Any]


class Need(NamedTuple):
    """A query that an index is there for.

    `sorts` where the little that it finds is sorted; `reads` names tables that it walks through.
    """

    ask: Ask
    sorts: bool = False
    reads: frozenset[str] = frozenset()


def listed(order: Order | None = None, after: Place | None = None, **filters: Any) -> Ask:
    wanted = ResultFilter(**filters)
    return lambda session: page_ids(session, wanted, order or Order(), after, 101)


NEEDS: dict[str, Need] = {
    "ix_runs_cell_key_environment_id": Need(lambda s: known_runs(s, ["k"], [MACHINE], 3), True),
    "ix_runs_kernel_id": Need(listed(kernel=["flce"])),
    "ix_runs_kernel_version_id": Need(listed(kernel=["liger"], version=["0.8.5"])),
    "ix_runs_case_text_id": Need(listed(case=["N1-H1-V2-bfloat16"])),
    "ix_runs_environment_id_id": Need(listed(gpu=[GPU])),
    "ix_runs_outcome_id": Need(listed(outcome=["wrong"])),
    "ix_runs_started_at_id": Need(listed(since=DAY, until=DAY), True),
    "ix_runs_imported_id": Need(listed(imported=True)),
    **{f"ix_runs_{name}_id": Need(listed(Order(name))) for name in SORTABLE},
    "ix_runs_newest": Need(
        lambda s: newest_runs(s, Contender(kernel="flce"), ResultFilter(), 10), True
    ),
    "ix_job_cells_run_id": Need(
        # newest results first, until enough of them are in a job that carries the label
        listed(label=["branch=main"]),
        reads=frozenset({"runs", "jobs"}),
    ),
    "ix_job_cells_job_id_state_outcome": Need(lambda s: count_cells(s, ["job"])),
    "ix_job_cells_lot_id_case_index": Need(
        lambda s: settle_cells(s, CellRow.lot_id == "lot", Outcome.FAILED, "why")
    ),
    "ix_job_cells_failed": Need(lambda s: list(failed_cells(s, ["k"])), True),
    "ix_jobs_state_created_at": Need(
        lambda s: queue_position(s, JobRow(id="job", state=JobState.QUEUED.value, priority=5))
    ),
    "ix_jobs_token_id_created_at": Need(lambda s: spent_by(s, "token"), True),
    "ix_lots_state_worker_id": Need(contenders_of_open_lots),
    "ix_comparisons_base_candidate_case_text": Need(
        lambda s: head_to_head(s, "liger@0.8.5", "flce", ResultFilter()), True
    ),
    "ix_comparisons_job_id": Need(lambda s: comparisons_of_job(s, "job"), True),
    "ix_alert_cases_before_result_id": Need(lambda s: drop_result(s, "run"), True),
    "ix_alert_cases_after_result_id": Need(lambda s: drop_result(s, "run"), True),
    "ix_events_job_id_id": Need(lambda s: events_after(s, 0, "job")),
    "ix_imported_rows_imported_at_id": Need(lambda s: imported_rows_page(s, {}, None, 101)),
    "ix_imported_rows_kernel_imported_at_id": Need(
        lambda s: imported_rows_page(s, {"kernel": "rms_norm"}, None, 101)
    ),
    "ix_checks_kernel_version_started_at": Need(lambda s: checks_page(s, "flce", "1"), True),
    "ix_environments_device_name": Need(listed(gpu=[GPU])),
}
SMALL = {"alerts", "environments", "workers", "tokens", "checks", "device_proofs", "run_tallies"}
GROWING = frozenset(Base.metadata.tables) - SMALL
"""Tables that no query may read whole."""
FOR_NO_ROWS = frozenset({"seqscan", "bitmapscan", "sort", "hashjoin", "mergejoin"})
"""What PostgreSQL would do with a few rows instead of following an index."""


def names_of_indices() -> set[str]:
    return {str(index.name) for table in Base.metadata.tables.values() for index in table.indexes}


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def filled(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Database]:
    """One environment and one labelled job, so that no query ends before it has asked."""
    if request.param == "sqlite":
        path = tmp_path_factory.mktemp("plans") / "lossbench.db"
        shutil.copy(Path(request.getfixturevalue("sqlite_template")), path)
        database = Database(f"sqlite:///{path}")
    else:
        database = Database(request.getfixturevalue("postgres_server").fresh_url())
    with database.transaction() as session:
        rows: dict[str, dict[str, Any]] = {
            "environments": {
                "id": "h-s",
                "device_type": "cuda",
                "device_name": GPU,
                "hardware_fingerprint": "h",
                "software_fingerprint": "s",
                "memory_bytes": 1,
                "facts": {},
                "first_seen_at": DAY,
            },
            "jobs": {
                "id": "job",
                "kind": "benchmark",
                "state": "done",
                "request": {},
                "labels": {"branch": "main"},
                "accelerator": "any",
                "priority": 5,
                "processes": 3,
                "timeout_s": 600.0,
                "cells_total": 0,
                "estimated_s": 1.0,
                "created_at": DAY,
            },
        }
        for table, row in rows.items():
            session.execute(sa.insert(Base.metadata.tables[table]).values(row))
    yield database
    database.close()


@pytest.fixture(autouse=True)
def much_is_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ways of large tables are taken on an empty one."""
    monkeypatch.setattr(result_ids, "MANY", 0)
    monkeypatch.setattr(result_ids, "FEW_JOBS", 0)


def sent_by(database: Database, ask: Ask) -> list[Statement]:
    """The statements that a query of the store sends, with their parameters."""
    found: list[Statement] = []

    def note(*args: Any) -> None:
        if args[2].lstrip().startswith(("SELECT", "UPDATE")):
            found.append((args[2], args[3]))

    sa.event.listen(database.engine, "before_cursor_execute", note)
    try:
        with database.reading() as session:
            ask(session)
            session.rollback()
    finally:
        sa.event.remove(database.engine, "before_cursor_execute", note)
    return found


class Plans:
    """Plans of statements inside one transaction, which is never committed."""

    def __init__(self, connection: sa.Connection, sorts: bool) -> None:
        self._connection = connection
        self.is_sqlite = connection.dialect.name == "sqlite"
        self._asked = 0
        if self.is_sqlite:
            connection.exec_driver_sql("BEGIN")
        else:
            for way in FOR_NO_ROWS - {"sort", "bitmapscan"} if sorts else FOR_NO_ROWS:
                connection.exec_driver_sql(f"SET LOCAL enable_{way} = off")

    def of(self, statement: Statement) -> list[str]:
        """Lines of the plan."""
        word = "EXPLAIN QUERY PLAN" if self.is_sqlite else "EXPLAIN"
        # another text each time: sqlite3 keeps prepared statements, plan and all
        self._asked += 1
        text = f"{word} /* {self._asked} */ {statement[0]}"
        rows = self._connection.exec_driver_sql(text, statement[1])
        return [str(row[-1]).strip() for row in rows]

    def drop(self, index: str) -> None:
        self._connection.exec_driver_sql(f"DROP INDEX {index}")


def is_served(plan: list[str], index: str, need: Need) -> bool:
    """Whether a plan follows the index, reads no growing table whole, and sorts only if it may."""
    uses = any(re.search(rf"\b(INDEX|using|on) {index}\b", line) for line in plan)
    return uses and not any(is_bad(line, index, need) for line in plan)


def is_bad(line: str, index: str, need: Need) -> bool:
    scan = re.match(r"(?:->\s+)?(?:SCAN|Seq Scan on) (\w+)", line)
    whole = scan is not None and scan[1] in GROWING - need.reads and f"INDEX {index}" not in line
    sorted_after = line.startswith("USE TEMP B-TREE FOR ORDER BY") or "Sort  (" in line
    return whole or (sorted_after and not need.sorts)


def test_every_index_is_needed_by_some_query() -> None:
    assert names_of_indices() == set(NEEDS)


@pytest.mark.parametrize("index", sorted(NEEDS))
def test_index_serves_its_query_and_without_it_nothing_does(filled: Database, index: str) -> None:
    need = NEEDS[index]
    statements = sent_by(filled, need.ask)
    with filled.engine.connect() as connection:
        plans = Plans(connection, need.sorts)
        before = [plans.of(statement) for statement in statements]
        assert any(is_served(plan, index, need) for plan in before), before
        plans.drop(index)
        after = [plans.of(statement) for statement in statements]
        assert not any(is_served(plan, index, need) for plan in after), after
        connection.rollback()
