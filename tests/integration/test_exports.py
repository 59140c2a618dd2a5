"""Exports: the same results as the list, safe cells, types, and memory that does not grow."""

from __future__ import annotations

import csv
import gc
import io
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
import sqlalchemy as sa
from typer.testing import CliRunner

from lossbench.service.api.csv_export import csv_chunks
from lossbench.service.api.parquet_export import parquet_writer
from lossbench.service.cli.main import app
from lossbench.service.contract.case import Case
from lossbench.service.contract.contender import Contender
from lossbench.service.contract.run import Cell
from lossbench.service.contract.words import Outcome, Pass
from lossbench.service.store.database import Database
from lossbench.service.store.exports import AT_ONCE, COLUMNS, result_batches
from lossbench.service.store.models import RunRow
from lossbench.service.store.results import ResultFilter, insert_run

from .conftest import make_record

EXPORT = "/api/v1/export/results"
MANY = 50_000
MOST_GROWTH = 48 * 2**20
"""Bytes that the process may grow by while 50,000 results are exported: Arrow keeps one row group
of 10,000 rows and the footer, CSV one batch of 1,000 rows."""


def add_results(database: Database, number: int = 3) -> list[str]:
    """Results of growing size: the first liger's, the others flce's."""
    ids = []
    for index in range(number):
        contender = Contender.parse("flce" if index else "liger@0.8.5")
        case = Case(tokens=512 + index, hidden=64, vocab=128)
        cell = Cell(contender=contender, case=case, pass_=Pass.FORWARD)
        with database.transaction() as session:
            ids.append(insert_run(session, make_record(cell, "worker-1", 10.0 + index)))
    return ids


def rows_of(service: Any, **query: Any) -> list[dict[str, str]]:
    answer = service.http.get(f"{EXPORT}.csv", params=query)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert 'filename="results.csv"' in answer.headers["content-disposition"]
    return list(csv.DictReader(io.StringIO(answer.text)))


def test_csv_has_the_results_of_the_list_with_the_same_numbers(any_service: Any) -> None:
    add_results(any_service.context.database)
    listed = any_service.http.get("/api/v1/results").json()["items"]
    rows = rows_of(any_service)
    assert [row["id"] for row in rows] == [result["id"] for result in listed]
    for row, result in zip(rows, listed, strict=True):
        (error,) = result.pop("errors")
        assert float(row["dw_relative_l2"]) == error["relative_l2"]
        assert float(row["dw_error_ratio"]) == error["ratio"]
        assert row["dx_relative_l2"] == ""
        assert row.pop("flags") == ";".join(result.pop("flags"))
        for name, value in result.items():
            text = row[name]
            if isinstance(value, bool) or value is None:
                assert text == {True: "true", False: "false", None: ""}[value], name
            elif name.endswith("_at"):
                assert datetime.fromisoformat(text) == datetime.fromisoformat(value)
            else:
                assert type(value)(text) == value, name


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"kernel": "liger"}, 1),
        ({"kernel": ["liger", "flce"]}, 3),
        ({"tokens_gte": 513}, 2),
        ({"until": "2000-01-01T00:00:00Z"}, 0),
        ({"imported": True}, 0),
        ({"imported": False}, 3),
    ],
)
def test_csv_with_filters_has_the_matching_results(
    any_service: Any, query: dict[str, Any], expected: int
) -> None:
    add_results(any_service.context.database)
    assert len(rows_of(any_service, **query)) == expected


def test_parquet_has_types_and_the_same_rows(any_service: Any) -> None:
    add_results(any_service.context.database)
    answer = any_service.http.get(f"{EXPORT}.parquet", params={"kernel": "flce"})
    assert answer.status_code == 200, answer.text
    found = pyarrow.parquet.read_table(pyarrow.BufferReader(answer.content))
    assert found.column_names == list(COLUMNS)
    rows = found.to_pylist()
    assert [row["id"] for row in rows] == [r["id"] for r in rows_of(any_service, kernel="flce")]
    assert rows[0]["latency_ms"] == 12.0
    assert rows[0]["imported"] is False
    assert rows[0]["started_at"].tzinfo is not None
    assert rows[0]["peak_forward_bytes"] == 2**30
    assert rows[0]["version"] == "2.11.0"


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_export_without_a_match_is_an_empty_table(any_service: Any, ending: str) -> None:
    content = any_service.http.get(f"{EXPORT}.{ending}").content
    if ending == "csv":
        assert content.decode() == ",".join(COLUMNS) + "\r\n"
    else:
        assert pyarrow.parquet.read_table(pyarrow.BufferReader(content)).num_rows == 0


def test_csv_formula_in_a_reason_is_quoted_and_a_negative_number_is_not(any_service: Any) -> None:
    (run_id,) = add_results(any_service.context.database, 1)
    with any_service.context.database.transaction() as session:
        row = session.get_one(RunRow, run_id)
        row.outcome, row.reason = Outcome.WRONG.value, '=HYPERLINK("http://x")'
        row.invalid_reason, row.ratio_low = "-2", -0.25
    (found,) = rows_of(any_service)
    assert found["reason"] == '\'=HYPERLINK("http://x")'
    assert found["invalid_reason"] == "-2"
    assert found["ratio_low"] == "-0.25"


def test_parquet_without_pyarrow_is_a_problem_that_names_it(
    service: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    answer = service.http.get(f"{EXPORT}.parquet")
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["type"].endswith("#missing-package")
    assert "pip install 'lossbench[parquet]'" in answer.json()["detail"]
    assert service.http.get(f"{EXPORT}.csv").status_code == 200


@pytest.mark.parametrize("query", [{"limit": 5}, {"sort": "tokens"}, {"kernal": "flce"}])
def test_export_with_an_unknown_parameter_is_refused(service: Any, query: dict[str, Any]) -> None:
    answer = service.http.get(f"{EXPORT}.csv", params=query)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["code"] == "unknown_parameter"


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_export_command_writes_the_file(any_service: Any, tmp_path: Path, ending: str) -> None:
    add_results(any_service.context.database)
    path = tmp_path / f"out.{ending}"
    words = ["export", "results", str(path), "--filter", "kernel=flce"]
    done = CliRunner().invoke(app, [*words, "--url", any_service.listen()])
    assert done.exit_code == 0, done.output
    if ending == "csv":
        assert len(list(csv.DictReader(io.StringIO(path.read_text())))) == 2
    else:
        assert pyarrow.parquet.read_table(path).num_rows == 2
    assert [entry.name for entry in tmp_path.glob("out*")] == [path.name]


@pytest.mark.parametrize(
    ("name", "narrow", "words"),
    [
        ("out.xlsx", "kernel=flce", "NAME.csv or NAME.parquet"),
        ("out.csv", "kernel", "is not name=value"),
        ("out.csv", "kernal=flce", "kernel"),
        ("none/out.csv", "kernel=flce", "No such file"),
    ],
)
def test_export_command_that_cannot_write_says_why_and_leaves_nothing(
    service: Any, tmp_path: Path, name: str, narrow: str, words: str
) -> None:
    command = ["export", "results", str(tmp_path / name), "--filter", narrow]
    done = CliRunner().invoke(app, [*command, "--url", service.listen()])
    assert done.exit_code == 1
    assert words in str(done.exception)
    assert not list(tmp_path.glob("out*"))


def resident_bytes() -> int:
    """Memory of this process that is in RAM, in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.fixture
def many_results(sqlite_url: str) -> Iterator[Database]:
    """A database with 50,000 made-up results, each with a record as large as a real one's."""
    database = Database(sqlite_url)
    (first,) = add_results(database, 1)
    table = RunRow.__table__
    with database.transaction() as session:
        model = dict(session.execute(sa.select(table).where(table.c.id == first)).mappings().one())
        model["record"] = {"details": "x" * 4000}
        for start in range(0, MANY - 1, 5000):
            stop = min(start + 5000, MANY - 1)
            rows = [{**model, "id": f"run-{index:016d}"} for index in range(start, stop)]
            session.execute(sa.insert(table), rows)
    yield database
    database.close()


def growth_of_export(database: Database, ending: str, gathered: bool = False) -> int:
    """Bytes that this process grows by while every result is written; checks how much was written.

    `gathered` is the mistake that the bound must find: all rows first, then the file.
    """

    def chunks(wanted: ResultFilter) -> Iterator[bytes]:
        found = result_batches(database, wanted)
        batches = list(found) if gathered else found
        if ending == "csv":
            return csv_chunks(list(COLUMNS), batches)
        return parquet_writer()(COLUMNS, batches)

    # what is loaded once does not count
    list(chunks(ResultFilter(kernel=["none"])))
    gc.collect()
    before = most = resident_bytes()
    size = 0
    for chunk in chunks(ResultFilter()):
        size += len(chunk)
        most = max(most, resident_bytes())
    assert size > (10 * 2**20 if ending == "csv" else 2**18)
    return most - before


ON_LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc/self/statm")


@ON_LINUX
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_export_of_50_000_results_stays_within_48_mib(many_results: Database, ending: str) -> None:
    growth = growth_of_export(many_results, ending)
    assert growth < MOST_GROWTH, f"grew by {growth / 2**20:.0f} MiB"


@ON_LINUX
def test_export_that_gathers_every_result_is_found(many_results: Database) -> None:
    assert growth_of_export(many_results, "csv", gathered=True) > MOST_GROWTH


def test_batches_are_every_result_once_newest_first(any_service: Any) -> None:
    database = any_service.context.database
    ids = add_results(database, 5)
    for at_once in (1, 2, 5, 6, AT_ONCE):
        batches = list(result_batches(database, ResultFilter(), at_once))
        assert [row[0] for rows in batches for row in rows] == sorted(ids, reverse=True)
        assert all(0 < len(rows) <= at_once for rows in batches)


def test_export_times_are_in_utc(any_service: Any) -> None:
    add_results(any_service.context.database, 1)
    (row,) = rows_of(any_service)
    assert datetime.fromisoformat(row["started_at"]).tzinfo == UTC
    assert row["started_at"].endswith("Z")
