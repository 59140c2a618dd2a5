"""Health, readiness, metrics, OpenAPI and its pages, and the context's threads."""

import importlib
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lossbench.service.api.context import ServiceContext
from lossbench.service.api.errors import problem_name
from lossbench.service.api.openapi import query_names
from lossbench.service.api.problems import STATUS
from lossbench.service.api.security import AuthMode
from lossbench.service.contract import errors
from lossbench.service.contract.errors import LossbenchError
from lossbench.service.settings import Settings

DOCS = Path(__file__).parents[2] / "docs" / "reference"
SAFE = {"get", "head"}


def wait_until(holds: Callable[[], bool], timeout_s: float = 5.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.01)


def headings(name: str) -> set[str]:
    text = (DOCS / name).read_text(encoding="utf-8")
    return set(re.findall(r"^## `?(.+?)`?$", text, re.MULTILINE))


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method, path, operation


def test_health_answers_without_any_thread(shared_service: Any) -> None:
    assert shared_service.http.get("/healthz").json() == {"status": "ok"}


def test_readiness_follows_the_reaper(service: Any) -> None:
    assert service.http.get("/readyz").status_code == 503
    service.context.start()
    assert service.http.get("/readyz").json() == {"status": "ready", "workers": 0}
    service.context.stop()
    answer = service.http.get("/readyz")
    assert answer.json()["type"] == "/docs/errors#not-ready"


def test_readiness_without_database_is_a_503(service: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(_database: object) -> bool:
        raise errors.DatabaseError("gone")

    monkeypatch.setattr("lossbench.service.api.root_routes.check_schema", crash)
    assert service.http.get("/readyz").status_code == 503


def test_reaper_after_an_error_goes_on(
    make_service: Callable[..., Any], sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = make_service(sqlite_url, heartbeat_s=0.01)
    rounds: list[int] = []

    def tick() -> None:
        rounds.append(len(rounds))
        if len(rounds) == 1:
            raise RuntimeError("first round")

    monkeypatch.setattr(service.context._reaper, "tick", tick)
    service.context.start()
    wait_until(lambda: len(rounds) > 2)
    service.context.stop()
    text = service.http.get("/metrics").text
    assert "lossbench_reaper_errors_total 1.0" in text


def test_reaper_of_a_started_context_routes_waiting_jobs(
    make_service: Callable[..., Any], database_url: str
) -> None:
    service = make_service(database_url, heartbeat_s=0.05)
    body = {"contenders": ["flce"], "shapes": [{"tokens": 8, "hidden": 8, "vocab": 32}]}
    service.http.post("/api/v1/jobs", json=body)
    service.worker()
    service.context.start()
    wait_until(lambda: service.context.queue.depth() == {"h200": 1})


def test_context_create_migrates_an_empty_database(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path / "new")
    with ServiceContext.create(settings, AuthMode.OPEN) as context:
        assert context.reaper_alive
        assert "torch-naive" in context.catalogue.kernels
    assert not context.reaper_alive


def test_metrics_count_requests_jobs_and_workers(service: Any) -> None:
    service.worker()
    service.http.get("/api/v1/jobs/job-1")
    answer = service.http.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    route = 'method="GET",route="/api/v1/jobs/{job_id}",status="404"'
    for line in (
        f"lossbench_http_requests_total{{{route}}} 1.0",
        'lossbench_jobs{state="queued"} 0.0',
        'lossbench_workers{state="idle"} 1.0',
        "lossbench_event_streams 0.0",
    ):
        assert line in answer.text


def test_metrics_reference_has_every_metric(service: Any) -> None:
    service.context.jobs  # noqa: B018  the families exist before anything is counted
    names = set(re.findall(r"^# HELP (\S+)", service.http.get("/metrics").text, re.MULTILINE))
    own = {name for name in names if not name.endswith("_created")}
    assert own == headings("metrics.md")


def test_error_reference_and_page_have_every_error(shared_service: Any) -> None:
    importlib.import_module("lossbench.service.client")  # it has errors of its own
    found: set[str] = set()
    waiting: list[type[LossbenchError]] = [LossbenchError]
    while waiting:
        error = waiting.pop()
        waiting += error.__subclasses__()
        if error.__module__.startswith("lossbench.service."):
            found.add(problem_name(error))
    assert found == headings("errors.md")
    page = shared_service.http.get("/docs/errors").text
    for error in STATUS:
        assert f'id="{problem_name(error)}"' in page


def test_api_reference_has_every_route(shared_service: Any) -> None:
    document = shared_service.http.get("/openapi.json").json()
    routes = {f"{method.upper()} {path}" for method, path, _ in operations(document)}
    assert routes | {"GET /openapi.json", "GET /docs", "GET /docs/errors"} == headings("api.md")


def test_openapi_names_problems_for_every_route_and_resolves_every_reference(
    shared_service: Any,
) -> None:
    document = shared_service.http.get("/openapi.json").json()
    schemas = document["components"]["schemas"]
    for reference in re.findall(r'"#/components/schemas/([^"]+)"', str(document).replace("'", '"')):
        assert reference in schemas
    assert "HTTPValidationError" not in schemas
    for method, path, operation in operations(document):
        assert operation["description"], (method, path)
        assert {"401", "403", "422", "500", "503"} <= set(operation["responses"]), (method, path)
        for status, answer in operation["responses"].items():
            if int(status) >= 400:
                assert set(answer["content"]) == {"application/problem+json"}, (path, status)
        if method not in SAFE:
            assert "429" in operation["responses"], (method, path)


def test_openapi_says_which_routes_need_a_token(
    shared_token_service: Any, shared_service: Any
) -> None:
    document = shared_token_service.http.get("/openapi.json").json()
    read = [(path, found) for method, path, found in operations(document) if method == "get"]
    guarded = {path for path, found in read if "security" in found}
    assert guarded == {"/api/v1/tokens"}
    for method, path, operation in operations(document):
        assert ("security" in operation) == (method not in SAFE or path in guarded)
    document = shared_service.http.get("/openapi.json").json()
    assert not any("security" in operation for _, _, operation in operations(document))


def test_openapi_body_of_a_job_is_the_contract(shared_service: Any) -> None:
    document = shared_service.http.get("/openapi.json").json()
    body = document["paths"]["/api/v1/jobs"]["post"]["requestBody"]["content"]
    assert set(body) == {"application/json", "application/yaml"}
    assert document["components"]["schemas"]["JobRequest"]["required"] == ["contenders"]
    assert query_names(document)[("POST", "/api/v1/jobs")] == ["dry_run"]


def test_docs_page_is_complete_and_loads_nothing_from_elsewhere(shared_service: Any) -> None:
    page = shared_service.http.get("/docs").text
    document = shared_service.http.get("/openapi.json").json()
    for method, path, _ in operations(document):
        assert f"{method.upper()} {path}" in page
    assert "<script" not in page
    assert "http://" not in page
    assert "https://" not in page
