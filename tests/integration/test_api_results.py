"""Results, comparison, plots, kernels and machines through the API."""

import json
import math
import sys
import types
from typing import Any

import pytest

from lossbench.service.contract.run import ErrorReport, Interval, OutputError
from lossbench.service.contract.words import Outcome

SHAPE = {"tokens": 1024, "hidden": 512, "vocab": 4096}
BODY: dict[str, Any] = {"contenders": ["flce", "liger@0.8.5"], "shapes": [SHAPE]}
RESULTS = "/api/v1/results"
COMPARE = "/api/v1/compare"
LATENCY = {"flce": 20.0, "liger": 25.0, "torch-naive": 40.0}


def measure(service: Any, answer: Any = None, **changes: Any) -> str:
    """Submit a job and let a worker answer it; returns the job's id."""
    worker = getattr(service, "test_worker", None) or service.worker()
    service.test_worker = worker
    posted = service.http.post("/api/v1/jobs", json={**BODY, "reuse": False, **changes})
    assert posted.status_code == 202, posted.text
    job_id = str(posted.json()["id"])

    def usual(cell: Any) -> Any:
        return worker.record(cell, LATENCY[cell.contender.kernel])

    worker.answer(job_id, answer or usual)
    return job_id


def items(service: Any, **query: Any) -> list[dict[str, Any]]:
    answer = service.http.get(RESULTS, params=query)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["items"]
    return found


def test_results_by_each_filter_are_the_matching_ones(any_service: Any) -> None:
    first = measure(any_service, sweep={"tokens": [512, 1024]}, labels={"branch": "main"})
    measure(any_service, contenders=["flce"], passes=["forward"])
    assert len(items(any_service)) == 5
    queries: list[tuple[dict[str, Any], int]] = [
        ({"kernel": "flce"}, 3),
        ({"kernel": ["flce", "liger"]}, 5),
        ({"version": "0.8.5"}, 2),
        ({"contender": "liger@0.8.5", "tokens": 512}, 1),
        ({"tokens_gte": 600}, 3),
        ({"tokens_lte": 600}, 2),
        ({"hidden_gte": 513}, 0),
        ({"vocab": 4096, "dtype": "bfloat16", "recipe": "normal"}, 5),
        ({"pass": "forward"}, 1),
        ({"outcome": "ok"}, 5),
        ({"outcome": "wrong"}, 0),
        ({"gpu": "NVIDIA H200"}, 5),
        ({"job": first}, 4),
        ({"label": "branch=main"}, 4),
        ({"label": ["branch=main", "branch=other"]}, 4),
        ({"label": "branch=other"}, 0),
        ({"since": "2000-01-01T00:00:00Z"}, 5),
        ({"until": "2000-01-01T00:00:00+02:00"}, 0),
        ({"kernel": "flce' OR 1=1 --"}, 0),
    ]
    for query, expected in queries:
        assert len(items(any_service, **query)) == expected, query


@pytest.mark.parametrize("sort", [None, "-latency_ms", "latency_ms", "-created_at", "created_at"])
def test_results_page_by_page_are_each_one_once_in_order(
    any_service: Any, sort: str | None
) -> None:
    worker = any_service.worker()
    any_service.test_worker = worker

    def some_without_time(cell: Any) -> Any:
        if cell.case.tokens == 3:
            return worker.record(cell, measurement=None)
        return worker.record(cell, float(cell.case.tokens // 2))

    measure(any_service, some_without_time, sweep={"tokens": [3, 8, 8, 9, 4, 20]})
    query: dict[str, Any] = {"limit": 3, **({"sort": sort} if sort else {})}
    seen: list[dict[str, Any]] = []
    while True:
        answer = any_service.http.get(RESULTS, params=query)
        seen += answer.json()["items"]
        cursor = answer.json()["next_cursor"]
        if cursor is None:
            break
        assert 'rel="next"' in answer.headers["link"]
        query["cursor"] = cursor
    ids = [item["id"] for item in seen]
    assert len(ids) == len(set(ids)) == 10
    times = [item["latency_ms"] for item in seen]
    if sort and "latency" in sort:
        assert times[-2:] == [None, None]
        assert times[:-2] == sorted(times[:-2], reverse=sort.startswith("-"))
    else:
        assert ids == sorted(ids, reverse=sort != "created_at")


def test_results_cursor_of_another_order_is_refused(service: Any) -> None:
    measure(service)
    cursor = service.http.get(RESULTS, params={"limit": 1}).json()["next_cursor"]
    answer = service.http.get(RESULTS, params={"cursor": cursor, "sort": "latency_ms"})
    assert answer.status_code == 422
    assert "another order" in answer.json()["detail"]


def test_result_with_nan_is_stored_and_served_as_null_with_a_reason(any_service: Any) -> None:
    worker = any_service.worker()
    any_service.test_worker = worker
    broken = ErrorReport(
        outputs=(OutputError(output="dx", relative_l2=math.nan, max_abs=math.inf, not_finite=7),)
    )

    def not_finite(cell: Any) -> Any:
        record = worker.record(cell)
        timing = record.measurement.model_copy(
            update={"tokens_per_s": math.inf, "clock_mhz": Interval(value=math.nan)}
        )
        return record.model_copy(
            update={
                "outcome": Outcome.WRONG,
                "reason": "7 values of dx are not finite",
                "errors": broken,
                "measurement": timing,
                "details": {"nan": math.nan, "deep": [math.inf]},
            }
        )

    measure(any_service, not_finite, contenders=["flce"])
    answer = any_service.http.get(RESULTS)
    assert "NaN" not in answer.text
    assert "Infinity" not in answer.text
    result = json.loads(answer.text, parse_constant=pytest.fail)["items"][0]
    assert (result["outcome"], result["reason"]) == ("wrong", "7 values of dx are not finite")
    assert result["errors"][0]["relative_l2"] is None
    assert result["errors"][0]["detail"]["not_finite"] == 7
    assert result["tokens_per_s"] is None


def test_result_read_again_unchanged_is_not_modified(service: Any) -> None:
    measure(service)
    for path in (RESULTS, f"{RESULTS}/{items(service)[0]['id']}"):
        first = service.http.get(path)
        tag = first.headers["etag"]
        assert tag.startswith('"')
        assert first.headers["cache-control"] == "private, no-cache"
        again = service.http.get(path, headers={"If-None-Match": f'"other", {tag}'})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == tag
        plain = service.http.get(path, headers={"Accept-Encoding": "identity"})
        assert plain.headers["etag"] != tag


def test_samples_are_immutable_and_equal_what_was_measured(any_service: Any) -> None:
    measure(any_service, contenders=["flce"])
    answer = any_service.http.get(f"{RESULTS}/{items(any_service)[0]['id']}/samples")
    assert "immutable" in answer.headers["cache-control"]
    assert answer.json()["blocks"] == [
        {"arm": "contender", "process": 0, "latency_ms": [19.5, 20.5], "visit_sizes": [1, 1]}
    ]


def test_invalidated_result_leaves_lists_and_reuse_but_stays(any_service: Any) -> None:
    measure(any_service, contenders=["flce"])
    result = items(any_service)[0]
    path = f"{RESULTS}/{result['id']}"
    tag = any_service.http.get(path).headers["etag"]
    answer = any_service.http.patch(path, json={"invalid_reason": "the clock was throttled"})
    assert answer.status_code == 200
    assert answer.json()["invalid_reason"] == "the clock was throttled"
    assert items(any_service) == []
    assert len(items(any_service, include_invalid="true")) == 1
    assert any_service.http.get(path, headers={"If-None-Match": tag}).status_code == 200
    again = any_service.http.patch(path, json={"invalid_reason": "twice"})
    assert again.status_code == 409
    body = {**BODY, "contenders": ["flce"]}
    plan = any_service.http.post("/api/v1/jobs", params={"dry_run": "true"}, json=body).json()
    assert plan["cells_known"] == 0


@pytest.mark.parametrize(
    "body", [{}, {"invalid_reason": ""}, {"reason": "x"}, {"invalid_reason": 3}]
)
def test_invalidating_without_a_reason_is_refused(service: Any, body: dict[str, Any]) -> None:
    assert service.http.patch(f"{RESULTS}/run-1", json=body).status_code == 422


def test_compare_of_measured_sides_gives_ratio_interval_and_mean(any_service: Any) -> None:
    job = measure(any_service, sweep={"tokens": [512, 1024]})
    query = {"base": "liger@0.8.5", "cand": "flce", "job": job}
    answer = any_service.http.get(COMPARE, params=query)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert len(found["items"]) == 2
    row = found["items"][0]
    cell = row["candidates"][0]
    half = math.hypot(*2 * [math.log(1.02 / 0.98) / 2])
    assert cell["ratio"] == pytest.approx(0.8)
    assert cell["ratio_low"] == pytest.approx(0.8 * math.exp(-half))
    assert cell["ratio_high"] == pytest.approx(0.8 * math.exp(half))
    assert cell["ratio_source"] == "ratio of ratios to torch-naive"
    assert (cell["verdict"], cell["verdict_note"]) == (None, "not measured head to head")
    assert cell["environments_differ"] is False
    assert cell["workspace_ratio"] == 1.0
    assert row["base"]["floor_ratio"] == 2.0
    assert row["base"]["worst_error_ratio"] == 1.1
    head = found["candidates"][0]
    assert (head["common_cases"], head["outcomes"]) == (2, {"ok": 2})
    assert head["geometric_mean_ratio"] == pytest.approx(0.8)
    assert head["geometric_mean_high"] == pytest.approx(0.8 * math.exp(half / math.sqrt(2)))
    assert found["base"]["used"] == "liger@0.8.5"


def test_compare_against_the_timed_baseline_uses_its_own_ratio(service: Any) -> None:
    measure(service, contenders=["torch-naive", "flce"])
    for base, cand, ratio in (("torch-naive", "flce", 0.5), ("flce", "torch-naive", 2.0)):
        found = service.http.get(COMPARE, params={"base": base, "cand": cand}).json()
        cell = found["items"][0]["candidates"][0]
        assert cell["ratio"] == pytest.approx(ratio)
        assert cell["ratio_source"] == "timed in the same process"
        assert cell["ratio_high"] / cell["ratio_low"] == pytest.approx(1.02 / 0.98)


def test_compare_with_a_base_never_run_says_no_baseline(service: Any) -> None:
    measure(service)
    found = service.http.get(COMPARE, params={"base": "liger@0.6.5", "cand": "flce"}).json()
    assert found["base"]["note"].startswith("no baseline: liger@0.6.5 has no result here")
    assert found["base"]["used"] == "liger@0.6.5"
    assert found["candidates"][0]["geometric_mean_ratio"] is None
    assert [row["base"] for row in found["items"]] == [None]
    assert found["items"][0]["candidates"][0]["ratio"] is None


def test_compare_without_version_shows_the_version_it_used(service: Any) -> None:
    measure(service)
    found = service.http.get(COMPARE, params={"base": "liger", "cand": "flce"}).json()
    assert (found["base"]["asked"], found["base"]["used"]) == ("liger", "liger@0.8.5")


def test_compare_with_a_failed_side_counts_it_and_gives_no_ratio(service: Any) -> None:
    worker = service.worker()
    service.test_worker = worker

    def liger_fails(cell: Any) -> Any:
        if cell.contender.kernel == "liger":
            return worker.record(
                cell, outcome=Outcome.OUT_OF_MEMORY, reason="too large", measurement=None
            )
        return worker.record(cell)

    measure(service, liger_fails)
    found = service.http.get(COMPARE, params={"base": "flce", "cand": "liger"}).json()
    assert found["candidates"][0]["outcomes"] == {"out_of_memory": 1}
    cell = found["items"][0]["candidates"][0]
    assert (cell["ratio"], cell["side"]["reason"]) == (None, "too large")
    assert found["candidates"][0]["common_cases"] == 0


def test_compare_page_by_page_gives_every_case_once_with_one_header(any_service: Any) -> None:
    measure(any_service, sweep={"tokens": list(range(1, 8))})
    query: dict[str, Any] = {"base": "liger", "cand": ["flce", "torch-naive"], "limit": 3}
    cases: list[str] = []
    while True:
        found = any_service.http.get(COMPARE, params=query).json()
        cases += [row["case"] for row in found["items"]]
        assert found["candidates"][0]["common_cases"] == 7
        assert found["candidates"][1]["note"] == "torch-naive has no result here"
        if found["next_cursor"] is None:
            break
        query["cursor"] = found["next_cursor"]
    assert cases == [f"N{n}-H512-V4096-bfloat16" for n in range(1, 8)]


def test_compare_uses_the_newest_valid_result_of_each_case(service: Any) -> None:
    measure(service)
    worker = service.test_worker
    measure(service, lambda cell: worker.record(cell, 10.0), contenders=["flce"])
    query = {"base": "liger", "cand": "flce"}
    cell = service.http.get(COMPARE, params=query).json()["items"][0]["candidates"][0]
    assert cell["ratio"] == pytest.approx(0.4)
    service.http.patch(f"{RESULTS}/{cell['side']['result_id']}", json={"invalid_reason": "noise"})
    cell = service.http.get(COMPARE, params=query).json()["items"][0]["candidates"][0]
    assert cell["ratio"] == pytest.approx(0.8)


@pytest.fixture
def fake_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    plots = types.ModuleType("lossbench.service.plots")

    def latency(results: Any) -> dict[str, Any]:
        points = [result.latency_ms for result in results]
        return {"data": [{"y": [*points, math.nan]}], "layout": {}}

    plots.FIGURES = {"latency": latency}  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "lossbench.service.plots", plots)


@pytest.mark.usefixtures("fake_plots")
def test_plot_of_a_job_is_a_figure_without_nan(service: Any) -> None:
    job = measure(service)
    measure(service, contenders=["torch-naive"])
    answer = service.http.get("/api/v1/plots/latency", params={"job": job})
    assert sorted(answer.json()["data"][0]["y"][:2]) == [20.0, 25.0]
    assert answer.json()["data"][0]["y"][2] is None
    assert answer.headers["etag"]


@pytest.mark.parametrize("name", ["latency", "memory", "error", "floor"])
def test_plot_of_real_results_is_a_plotly_figure(service: Any, name: str) -> None:
    job = measure(service)
    answer = service.http.get(f"/api/v1/plots/{name}", params={"job": job})
    assert answer.status_code == 200
    assert set(answer.json()) >= {"data", "layout"}


def test_kernel_shows_params_and_what_was_measured(any_service: Any) -> None:
    measure(any_service)
    listed = any_service.http.get("/api/v1/kernels", params={"limit": 2}).json()
    assert [kernel["name"] for kernel in listed["items"]] == ["flce", "liger"]
    rest = any_service.http.get("/api/v1/kernels", params={"cursor": listed["next_cursor"]}).json()
    assert [kernel["name"] for kernel in rest["items"]] == ["torch-naive"]
    kernel = any_service.http.get("/api/v1/kernels/liger").json()
    assert (kernel["latest"], kernel["versions"]) == ("0.8.5", ["0.6.0", "0.6.5", "0.8.5"])
    assert kernel["measured"][0]["version"] == "0.8.5"
    assert kernel["measured"][0]["outcomes"] == {"ok": 1}
    assert kernel["measured"][0]["first_seen_at"].endswith("Z")


def test_machines_show_device_state_and_waiting_lots(any_service: Any) -> None:
    for number in range(3):
        any_service.worker(f"worker-{number}")
    any_service.http.post("/api/v1/jobs", json=BODY)
    page = any_service.http.get("/api/v1/machines", params={"limit": 2}).json()
    assert [machine["id"] for machine in page["items"]] == ["worker-2", "worker-1"]
    assert page["next_cursor"]
    machine = any_service.http.get("/api/v1/machines/worker-0").json()
    assert (machine["device_name"], machine["state"]) == ("NVIDIA H200", "idle")
    assert (machine["queues"], machine["lots_waiting"]) == (["h200"], 1)
