"""Faults that users of other benchmark services reported, each guarded by one test.

| row | reported at | guarded by |
|---|---|---|
| D15 | conbench PR 1273, memtier_benchmark#271 | `test_api_results.py::test_result_with_nan_is_stored_and_served_as_null_with_a_reason`, and here: the other points |
| D16 | conbench#745, #1009, #1564 | here (slow) |
| D17 | github-action-benchmark#365 | here |
| D21 | CodSpeedHQ/codspeed#520 | here |
| D27 | bencherdev/bencher#71 | here |
| D29 | bencherdev/bencher#458 | `test_api_results.py::test_invalidated_result_leaves_lists_and_reuse_but_stays`, and here: DELETE |
| D31 | wpt.fyi#818, tlaps-bench PR 60, hermes-agent PR 84468 | `test_api_jobs.py::test_idempotency_same_key_and_body_gives_one_job`, `test_api_jobs.py::test_idempotency_same_key_other_body_is_refused`, `test_api_jobs.py::test_idempotency_while_the_first_runs_is_a_conflict` |
| D35 | conbench#534, #609, rv32emu#225 | here |
| D36 | pytorch/test-infra#4239, #6969, #4196 | here |
| D38 | pytorch/test-infra#7532, #6970, lunora PR 621 | `test_api_results.py::test_compare_with_a_base_never_run_says_no_baseline`, `test_api_results.py::test_compare_without_version_shows_the_version_it_used` |
| D39 | catapult#3033, #2402, sparq PR 198 | `test_api_problems.py::test_job_larger_than_the_limit_is_refused`, and here: imports and pages |
| D45 | pytorch/benchmark#2415 | here |
"""  # noqa: E501

import json
import math
import re
import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from lossbench.service.api.context import ServiceContext
from lossbench.service.api.security import AuthMode
from lossbench.service.contract.errors import InvalidRequestError
from lossbench.service.contract.run import ErrorReport, OutputError
from lossbench.service.contract.words import Outcome, Verdict
from lossbench.service.statistics.verdict import decide
from lossbench.service.store.database import Database
from lossbench.service.store.models import RunRow
from lossbench.service.store.queue import LotQueue
from lossbench.service.store.results import insert_run
from lossbench.service.store.set_export import Wanted, collect_set
from lossbench.service.store.set_files import read_set, write_set
from lossbench.web.app import create_app

from . import engines
from .conftest import CATALOGUE, make_environment

API = "/api/v1"
SHAPE = {"tokens": 1024, "hidden": 512, "vocab": 4096}
PAIR = ["liger@0.8.5", "flce"]

database_url = engines.database_url


class Bench:
    """A service with a worker that answers as it is told."""

    def __init__(self, service: Any, worker_id: str = "worker-1") -> None:
        self.service, self.worker = service, service.worker(worker_id)

    def measure(self, answer: Any = None, **changes: Any) -> str:
        """A job and its results; `answer(cell)` gives a record, an outcome or milliseconds."""
        body = {"contenders": PAIR, "shapes": [SHAPE], "reuse": False, **changes}
        posted = self.service.http.post(f"{API}/jobs", json=body)
        assert posted.status_code == 202, posted.text

        def usual(cell: Any) -> Any:
            given = answer(cell) if answer else 20.0
            return self.worker.record(cell, given) if isinstance(given, float) else given

        self.worker.answer(posted.json()["id"], usual)
        return str(posted.json()["id"])

    def got(self, path: str, **query: Any) -> Any:
        """What a GET answers with 200."""
        answer = self.service.http.get(f"{API}{path}", params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def page(self, path: str, **query: Any) -> str:
        """A page as a browser gets it."""
        other = type(self.service)(self.service.context, self.service._portal)
        other.app = create_app(self.service.context)
        answer = other.client().get(path, params=query, headers={"Accept": "text/html"})
        assert answer.status_code == 200, answer.text
        return str(answer.text)


@pytest.fixture
def bench(any_service: Any) -> Bench:
    return Bench(any_service)


@pytest.fixture
def small_bench(service: Any) -> Bench:
    """On SQLite alone, where no statement of the database is in question."""
    return Bench(service)


def test_every_known_report_has_its_test() -> None:
    rows = re.findall(r"^\| (D\d+) \| [^|]+ \| (.+) \|$", str(__doc__), re.MULTILINE)
    wanted = [f"D{n}" for n in (15, 16, 17, 21, 27, 29, 31, 35, 36, 38, 39, 45)]
    assert [row for row, _ in rows] == wanted
    here = Path(__file__).read_text(encoding="utf-8")
    for row, guards in rows:
        for file, name in re.findall(r"`(test_\w+\.py)::(test_\w+)`", guards):
            text = Path(__file__).with_name(file).read_text(encoding="utf-8")
            assert f"def {name}(" in text, (row, name)
        if "here" in guards:
            assert f'"""{row}:' in here, row


def test_page_with_a_result_that_is_not_finite_draws_the_other_points(small_bench: Bench) -> None:
    """D15: conbench/conbench PR 1273, redis/memtier_benchmark#271. A NaN emptied the whole plot."""
    nan = float("nan")
    broken = ErrorReport(outputs=(OutputError(output="dx", relative_l2=nan, max_abs=nan),))

    def one_broken(cell: Any) -> Any:
        record = small_bench.worker.record(cell)
        if cell.case.tokens != 512:
            return record
        timing = record.measurement.model_copy(
            update={"latency": record.measurement.latency.model_copy(update={"median_ms": nan})}
        )
        return record.model_copy(update={"measurement": timing, "errors": broken})

    job = small_bench.measure(one_broken, sweep={"tokens": [256, 512, 1024]})
    figure = small_bench.got("/plots/latency", job=job)
    drawn = [at for trace in figure["data"] for at in trace["x"]]
    assert drawn.count(20.0) == 4
    assert all(at is None or isinstance(at, float | int | str) for at in drawn)
    page = small_bench.page(f"/jobs/{job}")
    blocks = re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', page, re.DOTALL)
    assert blocks
    for block in blocks:
        json.loads(block, parse_constant=pytest.fail)


@pytest.mark.slow
def test_compare_of_two_runs_with_20_000_results_answers_its_first_page_in_a_second(
    bench: Bench,
) -> None:
    """D16: conbench/conbench#745, #1009, #1564. Comparing large runs took a minute, then a 504."""
    bench.measure(sweep={"tokens": [1]})
    with bench.service.context.database.transaction() as session:
        for row in session.execute(sa.select(RunRow.__table__)).mappings().all():
            copies = [
                {
                    **row,
                    "id": f"{row['id']}{number:05d}",
                    "tokens": number,
                    "case_text": f"N{number}-H512-V4096-bfloat16",
                }
                for number in range(2, 20_001)
            ]
            session.execute(sa.insert(RunRow.__table__), copies)
    took_s = []
    for _ in range(3):
        began = time.monotonic()
        found = bench.got("/compare", base=PAIR[0], cand=PAIR[1])
        took_s.append(time.monotonic() - began)
    assert len(found["items"]) == 100
    assert found["candidates"][0]["common_cases"] == 20_000
    assert found["next_cursor"]
    assert min(took_s) < 1.0, took_s


def test_less_time_is_better_and_more_tokens_a_second_are_too(small_bench: Bench) -> None:
    """D17: benchmark-action/github-action-benchmark#365. A gain in throughput raised the alarm."""

    def turned(cell: Any) -> Any:
        latency = {"liger": 10.0, "flce": 14.0}.get(cell.contender.kernel, 40.0)
        if cell.case.tokens == 512:
            latency = {"liger": 14.0, "flce": 10.0}.get(cell.contender.kernel, 40.0)
        record = small_bench.worker.record(cell, latency)
        rate = record.measurement.model_copy(update={"tokens_per_s": 1400.0 / latency})
        return record.model_copy(update={"measurement": rate})

    job = small_bench.measure(turned, sweep={"tokens": [512, 1024]})
    found = small_bench.got("/compare", base=PAIR[0], cand=PAIR[1], job=job)
    gain, loss = (row["candidates"][0]["ratio"] for row in found["items"])
    assert (gain, loss) == (pytest.approx(10 / 14), pytest.approx(14 / 10))
    by_rate = small_bench.got("/results", job=job, sort="-tokens_per_s")["items"]
    assert [result["latency_ms"] for result in by_rate] == [10.0, 10.0, 14.0, 14.0]
    logs = [math.log(loss)] * 3
    assert decide(logs).verdict is Verdict.SLOWER
    assert decide([-each for each in logs]).verdict is Verdict.FASTER


def test_same_code_on_two_gpu_models_is_never_set_side_by_side(bench: Bench) -> None:
    """D21: CodSpeedHQ/codspeed#520. One binary on two CPU models was shown as a regression."""

    def on(device: str) -> Callable[[Any], Any]:
        place = make_environment(device, hardware=device.replace(" ", "-"))
        return lambda cell: bench.worker.record(
            cell, 20.0 if device.endswith("H100") else 17.0, environment=place
        )

    bench.measure(on("NVIDIA H100"), contenders=["flce"])
    bench.measure(on("NVIDIA H200"), contenders=["liger@0.8.5"])
    found = bench.got("/compare", base="flce", cand="liger@0.8.5")
    assert [row["device_name"] for row in found["items"]] == ["NVIDIA H100", "NVIDIA H200"]
    for row in found["items"]:
        assert row["candidates"][0]["ratio"] is None
        assert row["candidates"][0]["verdict"] is None
    head = found["candidates"][0]
    assert (head["common_cases"], head["geometric_mean_ratio"]) == (0, None)


def test_renamed_kernel_keeps_one_series(make_service: Callable[..., Any], sqlite_url: str) -> None:
    """D27: bencherdev/bencher#71. A new name began a new and empty history."""
    service = make_service(sqlite_url)
    bench = Bench(service)
    bench.measure(lambda _cell: 20.0, contenders=["flce"])
    renamed = {
        **{name: row for name, row in CATALOGUE.kernels.items() if name != "flce"},
        "fused": CATALOGUE.kernels["flce"].model_copy(
            update={"name": "fused", "aliases": ("flce",)}
        ),
    }
    database = Database(sqlite_url)
    catalogue = CATALOGUE.model_copy(update={"kernels": renamed})
    settings = service.context.settings
    context = ServiceContext(settings, AuthMode.OPEN, database, LotQueue(database), catalogue)
    with closing(type(service)(context, service._portal)) as later:
        after = Bench(later, "worker-2")
        after.measure(lambda _cell: 24.0, contenders=["fused"])
        (series,) = after.got("/series", kernel="fused")["items"]
        assert (series["kernel"], series["points"]) == ("fused", 2)
        points = after.got(f"/series/{series['id']}/points")["points"]
        assert points["latency_ms"] == [20.0, 24.0]
        assert after.got("/series", kernel="flce")["items"] == [series]


def test_bad_result_among_three_is_taken_out_with_a_reason_and_the_rest_counts(
    bench: Bench,
) -> None:
    """D29: bencherdev/bencher#458. A bad item could never be deleted: reports pointed at it."""
    for latency in (20.0, 21.0, 90.0):
        bench.measure(lambda _cell, given=latency: given)
    query = {"base": PAIR[0], "cand": PAIR[1]}
    side = bench.got("/compare", **query)["items"][0]["candidates"][0]["side"]
    assert side["latency_ms"] == 90.0
    path = f"{API}/results/{side['result_id']}"
    refused = bench.service.http.delete(path)
    assert (refused.status_code, refused.headers["allow"]) == (405, "GET, PATCH")
    patch = {"invalid_reason": "another process was on the device"}
    assert bench.service.http.patch(path, json=patch).status_code == 200
    side = bench.got("/compare", **query)["items"][0]["candidates"][0]["side"]
    assert side["latency_ms"] == 21.0
    kept = bench.got(f"/results/{path.rpartition('/')[2]}")
    assert kept["invalid_reason"] == patch["invalid_reason"]


def test_times_of_any_zone_are_one_order_and_zone_less_ones_are_refused(bench: Bench) -> None:
    """D35: conbench/conbench#534, #609, sysprog21/rv32emu#225. Zones mixed, order and end wrong."""
    summer = timezone(timedelta(hours=2))
    moments = [
        datetime(2026, 3, 29, 4, 30, tzinfo=summer),  # 02:30 UTC
        datetime(2026, 3, 29, 2, 45, tzinfo=UTC),
        datetime(2026, 3, 29, 4, 50, tzinfo=summer),  # 02:50 UTC
    ]
    for minutes, moment in enumerate(moments):
        times = {"started_at": moment, "ended_at": moment + timedelta(minutes=1)}
        bench.measure(
            lambda cell, at=times, latency=20.0 + minutes: bench.worker.record(cell, latency, **at),
            contenders=["flce"],
        )
    found = bench.got("/results", sort="created_at")["items"]
    started = [result["started_at"] for result in found]
    assert started == [f"2026-03-29T02:{minute}:00Z" for minute in (30, 45, 50)]
    between = {"since": "2026-03-29T04:40:00+02:00", "until": "2026-03-29T02:46:00Z"}
    assert [r["latency_ms"] for r in bench.got("/results", **between)["items"]] == [21.0]
    for bad in ("2026-03-29T02:30", "2026-03-29", "1774751400", "0.5"):
        answer = bench.service.http.get(f"{API}/results", params={"since": bad})
        assert answer.status_code == 422, bad
        assert answer.json()["errors"][0]["pointer"] == "/query/since"
    backwards = bench.worker.record(
        flce_cell(bench), started_at=moments[1], ended_at=moments[0] - timedelta(hours=1)
    )
    with pytest.raises(sa.exc.IntegrityError), bench.service.context.database.transaction() as at:
        insert_run(at, backwards)


def flce_cell(bench: Bench) -> Any:
    """A cell as workers are given it."""
    seen: list[Any] = []
    bench.measure(lambda cell: seen.append(cell) or 20.0, contenders=["flce"])
    return seen[0]


def test_mean_is_over_the_common_cases_with_both_counts_beside_it(bench: Bench) -> None:
    """D36: pytorch/test-infra#4239, #6969, #4196. Who failed the hard cases had the better mean."""
    tokens = list(range(1, 11))

    def answer(cell: Any) -> Any:
        if cell.contender.kernel == "torch-naive":
            return 40.0
        if cell.contender.kernel == "flce":
            return 40.0 / 1.2
        if cell.case.tokens > 3:
            return bench.worker.record(
                cell, outcome=Outcome.OUT_OF_MEMORY, reason="too large", measurement=None
            )
        return 40.0 / 1.5

    job = bench.measure(answer, contenders=["flce", "liger@0.8.5"], sweep={"tokens": tokens})
    found = bench.got("/compare", base="flce", cand="liger@0.8.5", job=job)
    head = found["candidates"][0]
    assert found["base"]["outcomes"] == {"ok": 10}
    assert head["outcomes"] == {"ok": 3, "out_of_memory": 7}
    assert head["common_cases"] == 3
    assert head["geometric_mean_ratio"] == pytest.approx(1.2 / 1.5)


def test_faster_contender_that_is_wrong_never_wins_and_enters_no_mean(bench: Bench) -> None:
    """Rows D36 and K38 in one: a fast wrong answer is no answer (issue 5)."""

    def answer(cell: Any) -> Any:
        if cell.contender.kernel != "liger":
            return {"flce": 20.0}.get(cell.contender.kernel, 40.0)
        if cell.case.tokens == 512:
            return 30.0
        return bench.worker.record(cell, 0.001, outcome=Outcome.WRONG, reason="dw is zero")

    job = bench.measure(answer, sweep={"tokens": [512, 1024, 2048]})
    found = bench.got("/compare", base="flce", cand="liger@0.8.5", job=job)
    head = found["candidates"][0]
    assert head["outcomes"] == {"ok": 1, "wrong": 2}
    assert (head["common_cases"], head["geometric_mean_ratio"]) == (1, pytest.approx(1.5))
    ratios = [row["candidates"][0]["ratio"] for row in found["items"]]
    assert ratios == [pytest.approx(1.5), None, None]
    cells = bench.got("/shape-map", job=job)["cells"]
    assert [cell["winner"] for cell in cells] == ["flce@2.11.0"] * 3
    points = [p for front in bench.got("/pareto", job=job)["items"] for p in front["points"]]
    wrong = [point for point in points if point["outcome"] == "wrong"]
    assert [(point["on_front"], point["may_win"]) for point in wrong] == [(False, False)] * 2
    advice = bench.got("/recommend", tokens=1024, hidden=512, vocab=4096)
    assert advice["use"]["kernel"] == "flce"
    assert [left["outcome"] for left in advice["left_out"]] == ["wrong"]


def test_large_inputs_are_refused_with_the_limit_and_pages_hold_no_samples(
    small_bench: Bench,
) -> None:
    """D39: catapult#3033, #2402, sparq PR 198. Uploads too large; pages of 4 MB of history."""
    table = b"x" * (40 * 2**20)
    answer = small_bench.service.http.post(
        f"{API}/imports", content=table, headers={"Content-Type": "text/csv"}
    )
    assert answer.status_code == 413
    assert "1048576 bytes" in answer.json()["detail"]

    def many_samples(cell: Any) -> Any:
        record = small_bench.worker.record(cell)
        block = record.measurement.samples[0].model_copy(
            update={"latency_ms": (20.0,) * 100_000, "visit_sizes": (100_000,)}
        )
        timing = record.measurement.model_copy(update={"samples": (block,)})
        return record.model_copy(update={"measurement": timing})

    job = small_bench.measure(many_samples, contenders=["flce"])
    (cell,) = small_bench.got(f"/jobs/{job}/cells")["items"]
    samples = small_bench.got(f"/results/{cell['result_id']}/samples")["blocks"][0]
    assert len(samples["latency_ms"]) == 100_000
    for path in ("/results", f"/results/{cell['result_id']}", "/plots/latency", "/series"):
        assert len(json.dumps(small_bench.got(path))) < 20_000, path
    assert len(small_bench.page(f"/jobs/{job}")) < 60_000


def test_result_without_an_id_is_refused(bench: Bench, tmp_path: Path) -> None:
    """D45: pytorch/benchmark#2415. The run's id was blank: all was green, the dashboard empty."""
    bench.measure(contenders=["flce"])
    path = tmp_path / "blank.jsonl.gz"
    with bench.service.context.database.reading() as session:
        jobs, environments, lines = collect_set(session, Wanted())
    blank = [line.model_copy(update={"id": ""}) if line.kind == "run" else line for line in lines]
    write_set(path, jobs, environments, blank)
    with pytest.raises(InvalidRequestError, match="id"):
        read_set(path)


def test_job_without_a_stored_result_names_every_failure(small_bench: Bench) -> None:
    """D45 too: no result stands for what was not stored; each cell says why."""
    job = small_bench.measure(lambda _cell: Outcome.FAILED)
    assert small_bench.got(f"/jobs/{job}")["outcomes"] == {"failed": 2}
    cells = small_bench.got(f"/jobs/{job}/cells")["items"]
    assert [(cell["outcome"], cell["result_id"]) for cell in cells] == [("failed", None)] * 2
    assert all(cell["reason"] for cell in cells)
    assert small_bench.got("/results", job=job)["items"] == []
