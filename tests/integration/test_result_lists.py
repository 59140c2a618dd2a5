"""Pages of results against the whole list sorted in Python; tallies against a count of the rows."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from pydantic_core import to_json

from lossbench.service.contract.words import Outcome
from lossbench.service.store import result_ids
from lossbench.service.store.database import Database
from lossbench.service.store.job_results import result_fields
from lossbench.service.store.models import Base, RunRow, RunTallyRow
from lossbench.service.store.overviews import measured_versions
from lossbench.service.store.result_ids import Order, Place, page_ids
from lossbench.service.store.result_pages import runs_by_id
from lossbench.service.store.results import ResultFilter, invalidate_run
from lossbench.service.store.tallies import COUNT_ALL, count_in, results_total
from lossbench.service.store.views import result_view

BEGIN = datetime(2026, 11, 1, tzinfo=UTC)
GPUS = ("NVIDIA H200", "NVIDIA A100")
LABELS = ("main", "release")


def rows_of_runs() -> list[dict[str, Any]]:
    """Sixty runs with equal values, missing values, and every filter's alternatives."""
    draw = random.Random(5)
    nothing = {attribute.key: None for attribute in sa.inspect(RunRow).column_attrs}
    rows = []
    for number in range(60):
        moment = BEGIN + timedelta(hours=number)
        outcome = draw.choice(["ok", "ok", "wrong"])
        version = draw.choice(["1", "2", None])
        rows.append(
            nothing
            | {
                "id": f"run-{number:03d}",
                "cell_key": "key",
                "contender": "flce",
                "kernel": draw.choice(["flce", "liger", "cce"]),
                "version": version,
                "params": "",
                "case_text": draw.choice(["a", "b"]),
                "tokens": draw.choice([8, 16]),
                "hidden": 4,
                "vocab": 16,
                "dtype": "bfloat16",
                "recipe": "normal",
                "pass_": "forward",
                "outcome": outcome,
                "reason": None if outcome == "ok" else "dx",
                "baseline": "torch-naive",
                "environment_id": draw.choice(["e0", "e1", "e2"]),
                "worker_id": "w",
                "processes": 1,
                "seed": 0,
                "protocol_version": 2,
                "latency_ms": draw.choice([None, 1.0, 2.0, 2.0, 3.0]),
                "flags": [],
                "record": {},
                "imported": draw.random() < 0.2,
                "started_at": moment,
                "ended_at": moment,
            }
        )
    return rows


RUNS = rows_of_runs()
JOB_OF = {row["id"]: f"job-{place % 4}" for place, row in enumerate(RUNS)}
LABEL_OF = {f"job-{place}": LABELS[place // 2] for place in range(4)}
GPU_OF = {"e0": GPUS[0], "e1": GPUS[1], "e2": GPUS[0]}


def cells_of_runs() -> list[dict[str, Any]]:
    return [
        {
            "job_id": JOB_OF[row["id"]],
            "position": place,
            "case_index": 0,
            "contender": "flce",
            "case_text": "a",
            "pass": "forward",
            "cell_key": "key",
            "state": "done",
            "outcome": row["outcome"],
            "reason": row["reason"],
            "attempt": 1,
            "deaths": 0,
            "visits_done": 0,
            "visits_total": 0,
            "reused": False,
            "run_id": row["id"],
        }
        for place, row in enumerate(RUNS)
    ]


@pytest.fixture
def stored(database: Database) -> Database:
    with database.transaction() as session:
        for name, gpu in GPU_OF.items():
            values = {
                "id": name,
                "device_type": "cuda",
                "device_name": gpu,
                "hardware_fingerprint": name,
                "software_fingerprint": "s",
                "memory_bytes": 1,
                "facts": {},
                "first_seen_at": BEGIN,
            }
            session.execute(sa.insert(Base.metadata.tables["environments"]).values(values))
        for job, label in LABEL_OF.items():
            values = {
                "id": job,
                "kind": "benchmark",
                "state": "done",
                "request": {},
                "labels": {"branch": label},
                "accelerator": "any",
                "priority": 5,
                "processes": 1,
                "timeout_s": 1.0,
                "cells_total": 15,
                "estimated_s": 1.0,
                "created_at": BEGIN,
            }
            session.execute(sa.insert(Base.metadata.tables["jobs"]).values(values))
        session.execute(sa.insert(RunRow), RUNS)
        session.execute(sa.insert(Base.metadata.tables["job_cells"]), cells_of_runs())
        count_in(session, RUNS)
    return database


FILTERS: list[dict[str, Any]] = [
    {},
    {"kernel": ["flce"]},
    {"kernel": ["flce", "cce"]},
    {"kernel": ["cce"], "version": ["1", "2"]},
    {"case": ["a", "b"], "outcome": ["ok"]},
    {"outcome": ["wrong", "ok"]},
    {"gpu": [GPUS[0]]},
    {"gpu": [GPUS[0], GPUS[1]], "kernel": ["liger"]},
    {"gpu": ["no such GPU"]},
    {"tokens": [8]},
    {"job": ["job-1", "job-2"]},
    {"label": ["branch=main"]},
    {"label": ["branch=none"]},
    {"label": ["branch=main"], "kernel": ["flce", "liger"]},
    {"imported": True},
    {"imported": False},
    {"since": BEGIN + timedelta(hours=20), "until": BEGIN + timedelta(hours=40)},
]


def matches(row: dict[str, Any], wanted: dict[str, Any]) -> bool:
    values = {
        **row,
        "case": row["case_text"],
        "gpu": GPU_OF[row["environment_id"]],
        "job": JOB_OF[row["id"]],
        "label": f"branch={LABEL_OF[JOB_OF[row['id']]]}",
    }
    for name, value in wanted.items():
        if isinstance(value, list) and values[name] not in value:
            return False
        if isinstance(value, bool) and values[name] is not value:
            return False
    since, until = wanted.get("since", BEGIN), wanted.get("until", BEGIN + timedelta(days=9))
    return bool(since <= row["started_at"] < until)


def expected(wanted: dict[str, Any], order: Order) -> list[str]:
    rows = [row for row in RUNS if matches(row, wanted)]
    sign = -1 if order.descending else 1
    rows.sort(key=lambda row: row["id"], reverse=order.descending)
    if order.column is not None:
        name = order.column
        rows.sort(key=lambda row: (row[name] is None, sign * (row[name] or 0.0)))
    return [row["id"] for row in rows]


def paged(database: Database, wanted: dict[str, Any], order: Order) -> list[str]:
    rows, seen, after = {row["id"]: row for row in RUNS}, list[str](), None
    with database.reading() as session:
        while page := page_ids(session, ResultFilter(**wanted), order, after, 7):
            seen += page
            value = rows[page[-1]][order.column] if order.column else None
            after = Place(value, page[-1])
    return seen


@pytest.mark.parametrize("much", [False, True], ids=["few", "many"])
def test_pages_hold_every_result_once_and_in_order(
    stored: Database, much: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if much:
        monkeypatch.setattr(result_ids, "MANY", 1)
        monkeypatch.setattr(result_ids, "FEW_JOBS", 0)
    orders = [Order(column, down) for column in (None, "latency_ms") for down in (True, False)]
    for wanted, order in itertools.product(FILTERS, orders):
        assert paged(stored, wanted, order) == expected(wanted, order), (wanted, order)


def tallied(database: Database) -> dict[tuple[Any, ...], int]:
    with database.reading() as session:
        return {
            (t.kernel, t.version, t.outcome, t.environment_id, t.imported, t.invalid): t.results
            for t in session.scalars(sa.select(RunTallyRow))
        }


def counted(invalid: frozenset[str] = frozenset()) -> dict[tuple[Any, ...], int]:
    return dict(
        Counter(
            (
                row["kernel"],
                row["version"] or "",
                row["outcome"],
                row["environment_id"],
                row["imported"],
                row["id"] in invalid,
            )
            for row in RUNS
        )
    )


def test_tallies_are_the_counts_of_rows_also_after_an_invalidation(stored: Database) -> None:
    assert tallied(stored) == counted()
    with stored.transaction() as session:
        for run_id in ("run-003", "run-017"):
            invalidate_run(session, run_id, "the GPU was shared")
    assert tallied(stored) == counted(frozenset({"run-003", "run-017"}))
    with stored.reading() as session:
        assert results_total(session) == len(RUNS)


def test_tallies_counted_at_once_are_those_that_were_kept(stored: Database) -> None:
    kept = tallied(stored)
    with stored.transaction() as session:
        session.execute(sa.delete(RunTallyRow))
        session.execute(sa.text(COUNT_ALL))
    assert tallied(stored) == kept


def test_versions_of_a_kernel_come_from_its_valid_measured_results(stored: Database) -> None:
    of_flce = [r for r in RUNS if r["kernel"] == "flce" and not r["imported"]]
    with stored.transaction() as session:
        invalidate_run(session, of_flce[0]["id"], "the GPU was shared")
        found = {entry.version: entry for entry in measured_versions(session, "flce")}
    for version, entry in found.items():
        rows = [r for r in of_flce[1:] if r["version"] == version]
        assert entry.outcomes == Counter(row["outcome"] for row in rows)
        assert entry.first_seen_at == min(row["started_at"] for row in rows)
        assert entry.last_seen_at == max(row["started_at"] for row in rows)
    assert sum(sum(e.outcomes.values()) for e in found.values()) == len(of_flce) - 1
    assert set(found[None].outcomes) <= {Outcome.OK, Outcome.WRONG}


def test_fields_of_a_result_are_the_json_of_the_whole_result(stored: Database) -> None:
    with stored.transaction() as session:
        error = {"run_id": "run-003", "output": "dx", "ratio": 1.5, "detail": {"bias": 0.1}}
        session.execute(sa.insert(Base.metadata.tables["output_errors"]).values(error))
    with stored.reading() as session:
        found = result_fields(session, [row["id"] for row in RUNS])
        whole = {run.id: result_view(run) for run in runs_by_id(session, found).values()}
    assert [error["output"] for error in found["run-003"]["errors"]] == ["dx"]
    for run_id, fields in found.items():
        assert to_json(fields).decode() == whole[run_id].model_dump_json(by_alias=True)
