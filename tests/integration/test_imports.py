"""Imports through the API and the command: once however often sent, apart from what we measure."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from lossbench.service.api.security import AuthMode
from lossbench.service.contract.peer_formats.rows import Given
from lossbench.service.contract.peer_formats.tables import read_table
from lossbench.service.contract.words import Scope
from lossbench.service.store.imports import import_table
from lossbench.service.store.results import insert_environment, known_runs
from lossbench.service.store.set_export import Wanted, collect_set
from lossbench.service.store.set_files import read_set, write_set
from lossbench.service.store.set_loading import load_set

from .conftest import make_environment

TABLES = Path(__file__).parents[1] / "unit" / "contract" / "peer_tables"
HISTORY = (TABLES / "liger_history.csv").read_bytes()
IMPORTS = "/api/v1/imports"
CSV = {"Content-Type": "text/csv"}
COUNTS = ("added", "known", "refused", "results_added", "without_result")
CASE = {"tokens": 4096, "hidden": 4096, "vocab": 128256}


def send(service: Any, table: bytes = HISTORY, status: int = 200, **query: Any) -> Any:
    answer = service.http.post(IMPORTS, params=query, content=table, headers=CSV)
    assert answer.status_code == status, answer.text
    return answer.json()


def counts(answer: Any) -> tuple[int, ...]:
    return tuple(answer[name] for name in COUNTS)


def got(service: Any, path: str, **query: Any) -> Any:
    answer = service.http.get(f"/api/v1{path}", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def table(name: str) -> bytes:
    return (TABLES / f"{name}.csv").read_bytes()


def test_liger_history_imported_twice_is_there_once(any_service: Any) -> None:
    first = send(any_service, filename="history.csv")
    assert first["format"] == "liger"
    assert first["filename"] == "history.csv"
    assert counts(first) == (14, 0, 0, 8, 2)
    assert counts(send(any_service, filename="again.csv")) == (0, 14, 0, 0, 0)
    assert len(got(any_service, "/results")["items"]) == 8
    rows = got(any_service, "/imports")["items"]
    assert len(rows) == 14
    assert {row["filename"] for row in rows} == {"history.csv"}


def test_same_row_of_another_commit_is_another_row(any_service: Any) -> None:
    assert counts(send(any_service)) == (14, 0, 0, 8, 2)
    later = HISTORY.replace(b"b5672a153b", b"0123456789")
    assert counts(send(any_service, later))[:2] == (
        HISTORY.count(b"b5672a153b"),
        14 - HISTORY.count(b"b5672a153b"),
    )


@pytest.mark.parametrize(
    ("name", "query", "expected"),
    [
        ("liger_today", {}, (4, 0, 0, 3, 1)),
        ("tritonbench", {"gpu": "NVIDIA H100"}, (5, 0, 0, 5, 0)),
        ("cce", {"gpu": "NVIDIA A100"}, (3, 0, 0, 2, 1)),
        ("pytorch_lce", {}, (3, 0, 0, 0, 3)),
        ("pytorch_lce", {"tokens": 8192, "hidden": 4096, "vocab": 128256}, (3, 0, 0, 3, 0)),
    ],
)
def test_each_format_is_imported_once_and_marked(
    any_service: Any, name: str, query: dict[str, Any], expected: tuple[int, ...]
) -> None:
    assert counts(send(any_service, table(name), **query)) == expected
    assert counts(send(any_service, table(name), **query))[:4] == (0, expected[0], 0, 0)
    results = got(any_service, "/results")["items"]
    assert len(results) == expected[3]
    for result in results:
        assert result["imported"]
        assert result["protocol_version"] == 0
        assert result["ratio_to_baseline"] is None
        assert result["latency_low_ms"] is None
        assert result["compile_s"] is None
        assert (result["latency_ms"] is None) == (result["outcome"] != "ok")
        assert got(any_service, f"/results/{result['id']}") == result
        assert got(any_service, f"/results/{result['id']}/nvbench")


def test_good_lines_are_stored_and_bad_ones_named(any_service: Any) -> None:
    lines = table("cce").splitlines()
    text = b"\n".join([*lines[:2], b"cce,loss-fw,soon,1,llama3", b"cce,loss-up,1,1,llama3"])
    answer = send(any_service, text)
    assert counts(answer) == (1, 0, 2, 1, 0)
    assert [(f["line"], f["column"], f["value"]) for f in answer["faults"]] == [
        (3, "runtime_ms", "soon"),
        (4, "kind", "loss-up"),
    ]


def test_same_measurement_twice_in_a_file_with_other_numbers_is_refused(any_service: Any) -> None:
    lines = HISTORY.splitlines()
    again = lines[1].replace(b"2024-09", b"2024-10")
    assert again != lines[1]
    answer = send(any_service, b"\n".join([*lines[:2], again, lines[1]]))
    assert counts(answer)[:3] == (1, 1, 1)
    assert answer["faults"][0]["message"].startswith("the same measurement as line 2")


def test_form_with_a_file_is_imported_under_its_name(any_service: Any) -> None:
    files = {"file": ("../../odd/cce.csv", table("cce"), "text/csv")}
    answer = any_service.http.post(IMPORTS, files=files)
    assert answer.status_code == 200, answer.text
    assert answer.json()["filename"] == "cce.csv"
    assert counts(answer.json())[0] == 3


@pytest.mark.parametrize(
    ("content", "headers", "query", "status", "words"),
    [
        (b"a,b\n1,2\n", CSV, {}, 422, "liger = "),
        (b"", CSV, {}, 422, "empty"),
        (b"method,kind\n\xff", CSV, {}, 422, "line 2 is not UTF-8"),
        (b"a,b\n", CSV, {"format": "cce"}, 422, "lacks method"),
        (b"a,b\n", CSV, {"format": "excel"}, 422, "'pytorch-lce'"),
        (b"a,b\n", CSV, {"fromat": "cce"}, 422, "format"),
        (b"{}", {"Content-Type": "application/json"}, {}, 415, "text/csv"),
        (b"x" * (2**20 + 1), CSV, {}, 413, "larger"),
    ],
)
def test_body_that_is_no_table_is_one_clear_problem(
    service: Any, content: bytes, headers: Any, query: Any, status: int, words: str
) -> None:
    answer = service.http.post(IMPORTS, content=content, headers=headers, params=query)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert words in answer.json()["detail"]


def test_form_without_file_is_refused(service: Any) -> None:
    answer = service.http.post(IMPORTS, files={"table": ("a.csv", b"a", "text/csv")})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "/file"


def test_import_needs_the_scope_submit(make_service: Callable[..., Any], sqlite_url: str) -> None:
    service = make_service(sqlite_url, AuthMode.TOKENS)
    assert service.http.post(IMPORTS, content=HISTORY, headers=CSV).status_code == 401
    for scope, status in ((Scope.READ, 403), (Scope.SUBMIT, 200)):
        client = service.client(service.token(scope))
        assert client.post(IMPORTS, content=HISTORY, headers=CSV).status_code == status


def test_imports_of_one_table_at_the_same_moment_are_one(any_service: Any) -> None:
    database = any_service.context.database
    found = read_table(HISTORY.decode(), None, Given())
    with ThreadPoolExecutor(4) as pool:
        work = [pool.submit(import_table, database, found, Given(), None) for _ in range(4)]
        done = [future.result() for future in work]
    assert sum(each.added for each in done) == 14
    assert sum(each.results_added for each in done) == 8
    assert len(got(any_service, "/results")["items"]) == 8


def test_imported_rows_are_listed_by_filter_and_page(any_service: Any) -> None:
    send(any_service)
    send(any_service, table("cce"))
    assert {r["format"] for r in got(any_service, "/imports", format="cce")["items"]} == {"cce"}
    other = got(any_service, "/imports", kernel="rms_norm")["items"]
    assert [row["result_id"] for row in other] == [None, None]
    seen: list[str] = []
    cursor: str | None = None
    while True:
        page = got(any_service, "/imports", limit=5, **({"cursor": cursor} if cursor else {}))
        seen += [row["id"] for row in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert len(seen) == len(set(seen)) == 17


def measured(service: Any) -> tuple[str, Any]:
    """A job measured here on a case that Liger's table has too."""
    worker = service.worker()
    body = {"contenders": ["torch-naive", "liger@0.6.5"], "shapes": [CASE], "reuse": False}
    posted = service.http.post("/api/v1/jobs", json={**body, "passes": ["forward_backward"]})
    assert posted.status_code == 202, posted.text
    worker.answer(posted.json()["id"])
    return str(posted.json()["id"]), worker


def test_imported_results_change_no_comparison_plot_or_kernel_page(any_service: Any) -> None:
    """Also where table and measurement agree on contender, case, pass and the device's name."""
    measured(any_service)
    query = {"base": "torch-naive", "cand": ["liger@0.6.5", "liger"]}
    paths: list[tuple[str, dict[str, Any]]] = [("/compare", query), ("/kernels/liger", {})]
    paths += [(f"/plots/{name}", {}) for name in ("latency", "memory", "error", "floor")]
    before = [got(any_service, path, **asked) for path, asked in paths]
    same = HISTORY.replace(b"NVIDIA A100-SXM4-80GB", b"NVIDIA H200").replace(b"0.2.1", b"0.6.5")
    assert send(any_service, same)["results_added"] == 8
    assert [got(any_service, path, **asked) for path, asked in paths] == before


def test_imported_results_alone_are_no_side_of_a_comparison(any_service: Any) -> None:
    send(any_service)
    found = got(any_service, "/compare", base="torch-naive", cand="liger@0.6.0")
    assert found["items"] == []
    assert found["candidates"][0]["verdict"] is None
    assert found["candidates"][0]["geometric_mean_ratio"] is None


def test_imported_results_answer_no_cell_of_a_job(any_service: Any) -> None:
    send(any_service)
    found = got(any_service, "/results", imported=True)["items"]
    with any_service.context.database.reading() as session:
        keys = [f"{r['contender']} | {r['case']} | {r['pass']}" for r in found]
        assert known_runs(session, keys, [], 1) == {}


def test_results_filtered_by_imported_are_one_kind(any_service: Any) -> None:
    measured(any_service)
    send(any_service)
    assert len(got(any_service, "/results", imported=True)["items"]) == 8
    here = got(any_service, "/results", imported=False)["items"]
    assert len(here) == 2
    everything = got(any_service, "/results")["items"]
    assert [r["id"] for r in everything][:2] == [r["id"] for r in here], "measured ones first"
    refused = any_service.http.get("/api/v1/plots/latency", params={"imported": True})
    assert refused.status_code == 422


def test_imported_results_travel_in_a_set(
    any_service: Any, make_service: Callable[..., Any], postgres_server: Any, tmp_path: Path
) -> None:
    send(any_service)
    path = tmp_path / "peers.jsonl.gz"
    with any_service.context.database.reading() as session:
        write_set(path, *collect_set(session, Wanted()))
    other = make_service(postgres_server.fresh_url())
    assert load_set(other.context.database, read_set(path)).new == {"runs": 8}
    assert got(other, "/results") == got(any_service, "/results")
    assert counts(send(other)) == (14, 0, 0, 0, 2)


def command(address: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    variables = {"PATH": os.environ["PATH"], "PYTHONSAFEPATH": "1", "LOSSBENCH_URL": address}
    return subprocess.run(
        [sys.executable, "-P", "-m", "lossbench.service.cli.main", *arguments],
        env=variables | {"COLUMNS": "160"}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_import_command_stores_a_file_once_and_counts(any_service: Any) -> None:
    address = any_service.listen()
    path = str(TABLES / "liger_history.csv")
    first, again = command(address, "import", path), command(address, "import", path)
    assert first.stdout.startswith("liger: 14 rows added, 0 known, 0 refused; 8 results added")
    assert again.stdout.startswith("liger: 0 rows added, 14 known, 0 refused; 0 results added")
    assert first.returncode == again.returncode == 0


def test_import_command_names_bad_lines_and_exits_with_1(service: Any, tmp_path: Path) -> None:
    path = tmp_path / "cce.csv"
    path.write_bytes(table("cce").replace(b"99.5", b"soon"))
    done = command(service.listen(), "import", str(path))
    assert done.returncode == 1
    assert done.stderr.startswith("cce.csv: line 4, runtime_ms: 'soon': a number of ms")


@pytest.mark.parametrize("arguments", [[], ["--shape", "8x4"], ["--format", "cce"]])
def test_import_command_of_an_unknown_file_is_one_line(
    tmp_path: Path, arguments: list[str]
) -> None:
    path = tmp_path / "notes.csv"
    path.write_text("a,b\n1,2\n", encoding="utf-8")
    done = command("http://127.0.0.1:9", "import", str(path), *arguments)
    assert done.returncode == 2
    (line,) = done.stderr.strip().splitlines()
    if not arguments:
        assert all(name in line for name in ("liger", "tritonbench", "cce", "pytorch-lce"))


def test_results_of_a_device_with_a_thousand_imported_commits_are_listed(any_service: Any) -> None:
    """Each commit is an environment of its own, and SQLite joins 500 selects at most."""
    send(any_service)
    device = got(any_service, "/results")["items"][0]["device_name"]
    place = make_environment(device, "imported0")
    with any_service.context.database.transaction() as session:
        for number in range(1001):
            software = {"software_fingerprint": f"imported{number}"}
            insert_environment(session, place.model_copy(update=software))
    for imported, count in ((None, 8), ("true", 8), ("false", 0)):
        query = {} if imported is None else {"imported": imported}
        assert len(got(any_service, "/results", gpu=device, **query)["items"]) == count
