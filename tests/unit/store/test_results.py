"""Results: what is stored comes back, filters narrow, reuse is honest."""

import json
import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy.exc import StatementError

from lossbench.service.contract.errors import NotFoundError
from lossbench.service.contract.machine import Machine
from lossbench.service.contract.run import Environment, Measurement, RunRecord
from lossbench.service.store.database import Database
from lossbench.service.store.results import (
    ResultFilter,
    finite,
    finite_json,
    get_run,
    get_samples,
    insert_run,
    invalidate_run,
    known_runs,
    list_runs,
    pack_samples,
    unpack_samples,
)
from lossbench.service.store.views import result_view

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
Make = Callable[..., RunRecord]
MakeEnvironment = Callable[..., Environment]


def store(database: Database, *records: RunRecord, imported: bool = False) -> list[str]:
    with database.transaction() as session:
        return [insert_run(session, record, imported) for record in records]


def found(database: Database, **filters: Any) -> set[str]:
    with database.reading() as session:
        return {run.id for run in list_runs(session, ResultFilter(**filters))}


@given(st.lists(st.floats(width=32, min_value=0, allow_infinity=False), max_size=50))
def test_samples_packed_and_unpacked_are_equal(latency_ms: list[float]) -> None:
    assert unpack_samples(pack_samples(latency_ms)) == latency_ms


def test_samples_are_float32_little_endian() -> None:
    assert unpack_samples(pack_samples([0.1])) == [pytest.approx(0.1, rel=1e-7)]
    assert unpack_samples(pack_samples([0.1])) != [0.1]


def test_insert_run_stores_summaries_errors_and_samples(
    database: Database, make_record: Make
) -> None:
    (run_id,) = store(database, make_record("flce@1[chunk_rows=8]"))
    with database.reading() as session:
        result = result_view(get_run(session, run_id))
        (block,) = get_samples(session, run_id)
    assert (result.latency_ms, result.ratio_low, result.ratio_high) == (2.0, 1.2, 1.3)
    assert (result.label, result.case) == ("flce@1[chunk_rows=8]", "N8-H4-V16-bfloat16")
    assert (result.peak_forward_bytes, result.workspace_bytes) == (2, 6)
    assert (result.device_name, result.grade, result.flags) == ("NVIDIA H200", "fair", ("noisy",))
    assert [error.output for error in result.errors] == ["dx", "loss"]
    dx = result.error_of("dx")
    assert dx is not None
    assert (dx.ratio, dx.detail["ulp_p50"]) == (1.2, 0.5)
    assert (block.latency_ms, block.visit_sizes) == ((1.0, 2.0, 3.0), (2, 1))
    assert result.started_at == NOON


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_insert_run_stores_nan_and_infinity_as_null(
    database: Database, make_record: Make, make_measurement: Callable[..., Measurement], bad: float
) -> None:
    timing = make_measurement(bad).model_copy(update={"tokens_per_s": bad})
    output = {"output": "dx", "relative_l2": bad, "ratio": bad, "max_abs": bad, "bias": bad}
    record = make_record(
        measurement=timing, errors={"outputs": [output]}, details={"deep": [{"x": bad}]}
    )
    (run_id,) = store(database, record)
    with database.reading() as session:
        run = get_run(session, run_id)
        result = result_view(run)
    assert (result.latency_ms, result.tokens_per_s) == (None, None)
    (error,) = result.errors
    assert (error.relative_l2, error.ratio, error.max_abs, error.detail["bias"]) == (None,) * 4
    assert run.record["details"] == {"deep": [{"x": None}]}
    json.dumps([run.record, result.model_dump(mode="json")], allow_nan=False)


def test_finite_json_keeps_everything_else() -> None:
    data = {"a": [1, 2.5, None, "x", True], "b": (math.nan, {"c": math.inf})}
    assert finite_json(data) == {"a": [1, 2.5, None, "x", True], "b": [None, {"c": None}]}
    assert finite(None) is None


def test_insert_run_of_a_zone_less_time_is_refused(database: Database, make_record: Make) -> None:
    record = make_record().model_copy(update={"started_at": datetime(2026, 11, 30)})
    with pytest.raises(StatementError, match="without zone"):
        store(database, record)


def test_insert_run_keeps_the_moment_of_another_zone(database: Database, make_record: Make) -> None:
    local = datetime(2026, 11, 30, 14, tzinfo=timezone(timedelta(hours=2)))
    (run_id,) = store(database, make_record(started_at=local, ended_at=local))
    with database.reading() as session:
        started = get_run(session, run_id).started_at
    assert (started, started.tzinfo) == (NOON, UTC)


def test_insert_run_stores_an_environment_once(database: Database, make_record: Make) -> None:
    first, second = store(database, make_record(), make_record())
    with database.reading() as session:
        environments = {get_run(session, run).environment_id for run in (first, second)}
    assert environments == {"here-here"}


@pytest.fixture
def four(
    database: Database, make_record: Make, make_environment: MakeEnvironment
) -> dict[str, str]:
    """Ids of four results by a short name."""
    wrong = {"outcome": "wrong", "reason": "dx: missing", "measurement": None}
    late = NOON + timedelta(hours=1)
    ids = store(
        database,
        make_record("flce@1"),
        make_record("liger@0.8.5", "N16-H8-V32-float32-recipe=trained", "forward"),
        make_record("liger@0.8.4[chunk_mem_const=2]", started_at=late, ended_at=late, **wrong),
        make_record("flce@1", where=make_environment("there", "NVIDIA A100")),
    )
    return dict(zip(["flce", "liger", "wrong", "a100"], ids, strict=True))


@pytest.mark.parametrize(
    ("filters", "names"),
    [
        ({}, {"flce", "liger", "wrong", "a100"}),
        ({"kernel": ["liger"]}, {"liger", "wrong"}),
        ({"kernel": ["liger", "flce"], "version": ["0.8.5", "1"]}, {"flce", "liger", "a100"}),
        ({"params": ["chunk_mem_const=2"]}, {"wrong"}),
        ({"contender": ["flce@1"]}, {"flce", "a100"}),
        ({"case": ["N16-H8-V32-float32-recipe=trained"]}, {"liger"}),
        ({"tokens": [8]}, {"flce", "wrong", "a100"}),
        ({"tokens_gte": 9}, {"liger"}),
        ({"hidden_lte": 4, "vocab_gte": 16}, {"flce", "wrong", "a100"}),
        ({"dtype": ["float32"], "recipe": ["trained"], "pass_": ["forward"]}, {"liger"}),
        ({"outcome": ["wrong"]}, {"wrong"}),
        ({"gpu": ["NVIDIA A100"]}, {"a100"}),
        ({"since": NOON + timedelta(seconds=1)}, {"wrong"}),
        ({"until": NOON}, set()),
        ({"until": NOON + timedelta(seconds=1)}, {"flce", "liger", "a100"}),
        ({"kernel": ["flce"], "gpu": ["NVIDIA H200"]}, {"flce"}),
        ({"kernel": ["none"]}, set()),
    ],
)
def test_list_runs_filters_narrow(
    database: Database, four: dict[str, str], filters: dict[str, Any], names: set[str]
) -> None:
    assert found(database, **filters) == {four[name] for name in names}


def test_list_runs_pages_newest_first(database: Database, make_record: Make) -> None:
    ids = store(database, *(make_record() for _ in range(5)))
    with database.reading() as session:
        first = [run.id for run in list_runs(session, ResultFilter(), limit=3)]
        rest = [run.id for run in list_runs(session, ResultFilter(), before=first[-1])]
    assert first + rest == sorted(ids, reverse=True)


def test_invalidated_run_is_hidden_but_not_deleted(
    database: Database, four: dict[str, str]
) -> None:
    with database.transaction() as session:
        invalidate_run(session, four["flce"], "the fan was broken")
    assert found(database) == set(four.values()) - {four["flce"]}
    assert found(database, include_invalid=True) == set(four.values())
    with database.reading() as session:
        run = get_run(session, four["flce"])
    assert run.invalid_reason == "the fan was broken"
    assert run.invalidated_at is not None


def test_run_that_does_not_exist_is_named(database: Database) -> None:
    with database.transaction() as session, pytest.raises(NotFoundError, match="'run-none'"):
        invalidate_run(session, "run-none", "x")


def machine(name: str) -> Machine:
    return Machine(
        device_type="cuda",
        device_name="NVIDIA H200",
        memory_bytes=2**37,
        gemm_tflops=700.0,
        hardware_fingerprint=name,
        software_fingerprint=name,
    )


def known(database: Database, record: RunRecord, *machines: str, processes: int = 3) -> str | None:
    key = record.cell.key
    with database.reading() as session:
        runs = known_runs(
            session,
            [key],
            [machine(name) for name in machines],
            processes,
            baseline="torch-naive",
        )
    return runs[key].run_id if key in runs else None


def test_known_runs_finds_the_newest_of_the_same_environment(
    database: Database, make_record: Make
) -> None:
    record = make_record()
    ids = store(database, record, record, record)
    assert known(database, record, "elsewhere", "here") == max(ids)


def test_known_runs_elsewhere_or_without_machine_is_empty(
    database: Database, make_record: Make
) -> None:
    record = make_record()
    store(database, record)
    assert known(database, record, "elsewhere") is None
    assert known(database, record) is None


@pytest.mark.parametrize(("processes", "reused"), [(1, True), (3, True), (4, False)])
def test_known_runs_needs_at_least_as_many_processes(
    database: Database, make_record: Make, processes: int, reused: bool
) -> None:
    record = make_record()
    store(database, record)
    assert (known(database, record, "here", processes=processes) is not None) is reused


def test_known_runs_leaves_out_what_was_invalidated(database: Database, make_record: Make) -> None:
    record = make_record()
    older, newer = store(database, record, record)
    with database.transaction() as session:
        invalidate_run(session, max(older, newer), "noise")
    assert known(database, record, "here") == min(older, newer)


@pytest.mark.parametrize(
    ("changes", "reused"),
    [
        ({"outcome": "out_of_memory", "reason": "x", "measurement": None}, True),
        ({"outcome": "unsupported", "reason": "x", "measurement": None}, True),
        ({"outcome": "wrong", "reason": "x"}, True),
        ({"outcome": "failed", "reason": "x", "measurement": None}, False),
        ({"outcome": "timed_out", "reason": "x", "measurement": None}, False),
        ({"outcome": "cancelled", "reason": "x", "measurement": None}, False),
        ({"protocol_version": 0}, False),
        ({"baseline": "torch-upcast"}, False),
    ],
)
def test_known_runs_reuses_only_what_answers_the_cell(
    database: Database, make_record: Make, changes: dict[str, Any], reused: bool
) -> None:
    record = make_record(**changes)
    store(database, record)
    assert (known(database, record, "here") is not None) is reused


def test_known_runs_leaves_out_imported_results(database: Database, make_record: Make) -> None:
    record = make_record()
    store(database, record, imported=True)
    assert known(database, record, "here") is None


def test_known_runs_of_many_keys_asks_in_parts(database: Database, make_record: Make) -> None:
    record = make_record()
    (run_id,) = store(database, record)
    keys = [f"no such cell {i}" for i in range(1200)] + [record.cell.key]
    with database.reading() as session:
        runs = known_runs(session, keys, [machine("here")], 3)
    assert {key: run.run_id for key, run in runs.items()} == {record.cell.key: run_id}
