"""Every bad input leaves as application/problem+json with one clear line and a JSON pointer."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError
from structlog.testing import capture_logs

from lossbench.service.contract.errors import DatabaseError

SHAPE = {"tokens": 1024, "hidden": 512, "vocab": 4096}
BODY: dict[str, Any] = {"contenders": ["flce"], "shapes": [SHAPE]}
JOBS = "/api/v1/jobs"


def assert_problem(answer: Any, status: int, name: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = answer.json()
    assert problem["type"] == f"/docs/errors#{name}"
    assert problem["status"] == status
    assert problem["title"]
    assert problem["detail"]
    assert "\n" not in problem["detail"]
    assert problem["instance"] == answer.headers["x-request-id"]
    return problem


def fault_of(answer: Any) -> tuple[str, str, str]:
    problem = answer.json()
    assert len(problem["errors"]) == 1, problem["errors"]
    fault = problem["errors"][0]
    return fault["pointer"], fault["code"], fault["message"]


BAD_BODIES = [
    ({"contenders": []}, "/contenders", "too_short", "at least 1"),
    ({"contenders": ["flcee"]}, "/contenders/0/kernel", "unknown_kernel", "did you mean 'flce'"),
    ({"contenders": ["liger@9"]}, "/contenders/0/version", "unknown_version", "0.8.5"),
    ({"contenders": ["a b"]}, "/contenders/0", "value_error", "is not a contender"),
    ({"contenders": [7]}, "/contenders/0", "model_type", "an object"),
    (
        {"contenders": ["flce[chunk_row=2]"]},
        "/contenders/0/params/chunk_row",
        "unknown_param",
        "did you mean 'chunk_rows'",
    ),
    (
        {"contenders": ["flce[chunk_rows=2]"]},
        "/contenders/0/params/chunk_rows",
        "bad_param",
        "16 .. 65536",
    ),
    (
        {"contenders": [{"kernel": "flce", "params": {"chunk_rows": [1]}}]},
        "/contenders/0/params/chunk_rows",
        "bool_type",
        "a whole number",
    ),
    ({"shapes": [{**SHAPE, "tokens": 0}]}, "/shapes/0/tokens", "greater_than_equal", "1"),
    (
        {"shapes": [{**SHAPE, "tokens": "many"}]},
        "/shapes/0/tokens",
        "int_parsing",
        "a whole number",
    ),
    (
        {"shapes": [{**SHAPE, "tokens": {"streem": {}}}]},
        "/shapes/0/tokens/stream",
        "missing",
        "required",
    ),
    ({"shapes": [{"tokens": 8}]}, "/shapes/0", "value_error", "hidden and vocab, or model"),
    (
        {"shapes": [{"tokens": 8, "model": "gemma-2"}]},
        "/shapes/0/model",
        "unknown_model",
        "did you mean 'gemma-2-2b'",
    ),
    ({"dtypes": ["bfloat"]}, "/dtypes/0", "enum", "did you mean 'bfloat16'"),
    ({"passes": ["sideways"]}, "/passes/0", "enum", "forward"),
    ({"processes": 0}, "/processes", "greater_than_equal", "1"),
    ({"priority": 10}, "/priority", "less_than_equal", "9"),
    ({"timeout_s": -1}, "/timeout_s", "greater_than", "0"),
    ({"dtype": ["bfloat16"]}, "/dtype", "extra_forbidden", "did you mean 'dtypes'"),
    ({"options": {"biass": True}}, "/options/biass", "extra_forbidden", "did you mean 'bias'"),
    ({"shapes": [{**SHAPE, "vocabb": 1}]}, "/shapes/0/vocabb", "extra_forbidden", "'vocab'"),
    ({"labels": {"Branch": "main"}}, "/labels/Branch", "string_pattern_mismatch", "pattern"),
    ({"labels": {"branch": "a\0b"}}, "", "odd_character", "NUL"),
    ({"labels": {"branch": "\ud800"}}, "", "odd_character", "surrogate"),
    ({"baseline": "liger@0.8.5"}, "/baseline", "baseline_not_built_in", "torch-naive"),
    ({"kind": "train"}, "/shapes", "value_error", "kind train has no shapes"),
    ({"kind": "compare"}, "/contenders", "not_two_contenders", "the base and the candidate"),
    ({"accelerator": "H 200"}, "/accelerator", "string_pattern_mismatch", "pattern"),
]


@pytest.mark.parametrize(("changes", "pointer", "code", "words"), BAD_BODIES)
def test_job_with_a_fault_names_its_place_and_the_valid_choice(
    shared_service: Any, changes: dict[str, Any], pointer: str, code: str, words: str
) -> None:
    body = {**BODY, **changes}
    answer = shared_service.http.post(JOBS, content=json.dumps(body))
    assert answer.status_code == 422, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    found = {fault["pointer"]: fault for fault in answer.json()["errors"]}
    assert pointer in found, found
    assert found[pointer]["code"] == code
    assert words in found[pointer]["message"]
    pointers = [fault["pointer"] for fault in answer.json()["errors"]]
    assert len(pointers) == len(set(pointers)), "a place is named twice"


def test_job_with_several_faults_names_all_of_them(shared_service: Any) -> None:
    body = {"contenders": ["nope"], "shapes": [{"tokens": 8, "model": "nope"}]}
    problem = assert_problem(shared_service.http.post(JOBS, json=body), 422, "unknown-name")
    assert [fault["pointer"] for fault in problem["errors"]] == [
        "/contenders/0/kernel",
        "/shapes/0/model",
    ]
    assert "(and 1 more)" in problem["detail"]


BAD_TEXTS = [
    (b"", "json_syntax", "empty"),
    (b"{", "json_syntax", "not JSON"),
    (b'{"priority": NaN}', "json_syntax", "NaN"),
    (b'{"priority": Infinity}', "json_syntax", "Infinity"),
    (b"\xff\xfe\xfa", "json_syntax", "not JSON"),
    (b"[" * 100_000, "json_syntax", ""),
    (b'{"priority": ' + b"9" * 5000 + b"}", "json_syntax", "not JSON"),
    (b"[]", "model_type", "an object"),
    (b"null", "model_type", "an object"),
]


@pytest.mark.parametrize(("text", "code", "words"), BAD_TEXTS)
def test_job_with_a_broken_text_is_refused(
    shared_service: Any, text: bytes, code: str, words: str
) -> None:
    answer = shared_service.http.post(
        JOBS, content=text, headers={"Content-Type": "application/json"}
    )
    assert_problem(answer, 422, "invalid-request")
    _, found, message = fault_of(answer)
    assert found == code
    assert words in message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [", "not YAML"),
        ("a: &x [1]\nb: *x\n", "aliases"),
        ("[" * 200, "nested too deeply"),
        ("!!python/object/apply:os.system ['true']", "not YAML"),
    ],
)
def test_job_with_a_dangerous_yaml_is_refused(shared_service: Any, text: str, words: str) -> None:
    answer = shared_service.http.post(
        JOBS, content=text, headers={"Content-Type": "application/yaml"}
    )
    assert_problem(answer, 422, "invalid-request")
    assert words in answer.json()["detail"]


def test_job_of_another_media_type_is_unsupported(shared_service: Any) -> None:
    answer = shared_service.http.post(JOBS, content="x", headers={"Content-Type": "text/csv"})
    assert_problem(answer, 415, "unsupported-media-type")


def test_job_larger_than_the_limit_is_refused(shared_service: Any) -> None:
    answer = shared_service.http.post(JOBS, content=b" " * (2**20 + 1))
    problem = assert_problem(answer, 413, "body-too-large")
    assert "1048576" in problem["detail"]


def test_job_larger_than_the_limit_without_length_is_refused(
    make_service: Callable[..., Any], sqlite_url: str
) -> None:
    import httpx

    service = make_service(sqlite_url)

    def chunks() -> Any:
        for _ in range(20):
            yield b" " * 100_000

    with httpx.Client(base_url=service.listen(), trust_env=False) as client:
        assert_problem(client.post(JOBS, content=chunks()), 413, "body-too-large")


@pytest.mark.parametrize(
    ("path", "pointer", "words"),
    [
        ("/api/v1/results?kernell=flce", "/query/kernell", "did you mean 'kernel'"),
        ("/api/v1/jobs?page=2", "/query/page", "Known: limit, cursor"),
        ("/api/v1/kernels/flce?x=1", "/query/x", "takes none"),
        ("/healthz?x=1", "/query/x", "takes none"),
        ("/api/v1/results?limit=0", "/query/limit", "greater than or equal to 1"),
        ("/api/v1/results?limit=1001", "/query/limit", "less than or equal to 1000"),
        ("/api/v1/results?limit=many", "/query/limit", "a whole number"),
        ("/api/v1/results?tokens=99999999999999999999", "/query/tokens/0", "less than"),
        ("/api/v1/results?dtype=bf16", "/query/dtype/0", "'bfloat16'"),
        ("/api/v1/results?pass=up", "/query/pass/0", "'forward'"),
        ("/api/v1/results?since=2026-03-29T02:30", "/query/since", "timezone"),
        ("/api/v1/results?since=0001-01-01T00:00:00%2B14:00", "/query/since", "out of range"),
        ("/api/v1/results?label=main", "/query/label/0", "name=value"),
        ("/api/v1/results?sort=-latency", "/query/sort", "did you mean 'latency_ms'"),
        ("/api/v1/results?cursor=zzz", "/query/cursor", "not a cursor"),
        ("/api/v1/jobs?cursor=WyJyZXN1bHRzIiwxXQ", "/query/cursor", "not a cursor"),
        ("/api/v1/results?" + "&".join(["gpu=x"] * 51), "/query/gpu", "at most 50"),
        ("/api/v1/jobs/job-1?wait=31", "/query/wait", "less than or equal to 30"),
        ("/api/v1/jobs/job-1?wait=nan", "/query/wait", ""),
        ("/api/v1/compare?cand=flce", "/query/base", "required"),
        ("/api/v1/compare?base=flce", "/query/cand", "required"),
        ("/api/v1/compare?base=flcee&cand=flce", "/query/base/kernel", "did you mean 'flce'"),
        ("/api/v1/compare?base=flce&cand=liger@9", "/query/cand/0/version", "0.8.5"),
        ("/api/v1/compare?base=%5B&cand=flce", "/query/base", "not a contender"),
        ("/api/v1/results?kernel=%00", "", "NUL"),
    ],
)
def test_query_with_a_fault_names_its_place_and_the_valid_choice(
    shared_service: Any, path: str, pointer: str, words: str
) -> None:
    answer = shared_service.http.get(path)
    assert answer.status_code == 422, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    where, _, message = fault_of(answer)
    assert where == pointer
    assert words in message


@pytest.mark.parametrize(
    "path",
    [
        "/nothing",
        "/api/v1/nothing",
        "/api/v1/jobs/",
        "/api/v1/results/run-1",
        "/api/v1/results/run-1/samples",
        "/api/v1/kernels/flcee",
        "/api/v1/machines/w-1",
        "/api/v1/plots/nothing",
    ],
)
def test_unknown_address_is_a_problem(shared_service: Any, path: str) -> None:
    assert_problem(shared_service.http.get(path), 404, "not-found")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", JOBS, "GET, POST"),
        ("DELETE", JOBS, "GET, POST"),
        ("POST", "/api/v1/results", "GET"),
        ("DELETE", "/api/v1/results/run-1", "GET, PATCH"),
        ("POST", "/healthz", "GET"),
    ],
)
def test_wrong_method_is_a_problem_with_the_allowed_ones(
    shared_service: Any, method: str, path: str, allowed: str
) -> None:
    answer = shared_service.http.request(method, path)
    assert_problem(answer, 405, "method-not-allowed")
    assert answer.headers["allow"] == allowed


def test_crash_inside_shows_no_internals_and_logs_the_request_id(
    shared_service: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(_request: object) -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr(shared_service.context.submission, "dry_run", crash)
    with capture_logs() as logs:
        answer = shared_service.http.post(JOBS, params={"dry_run": "true"}, json=BODY)
    problem = assert_problem(answer, 500, "internal")
    assert "secret" not in answer.text
    failed = next(entry for entry in logs if entry["event"] == "failed")
    assert failed["request_id"] == problem["instance"]
    assert str(failed["exc_info"]) == "secret detail"
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "error",
    [OperationalError("select", {}, Exception("password=x")), DatabaseError("out of reach")],
)
def test_database_that_does_not_answer_is_a_503(
    shared_service: Any, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def crash(_job: str) -> None:
        raise error

    monkeypatch.setattr(shared_service.context.events, "view", crash)
    answer = shared_service.http.get(f"{JOBS}/job-1")
    assert_problem(answer, 503, "database")
    assert "password" not in answer.text
    assert answer.headers["retry-after"]


def test_problem_for_a_browser_outside_the_api_is_drawn_by_the_page(service: Any) -> None:
    from starlette.responses import HTMLResponse

    service.app.state.problem_page = lambda _request, problem: HTMLResponse(
        f"<h1>{problem.status}</h1>", problem.status
    )
    headers = {"Accept": "text/html"}
    assert service.http.get("/nothing", headers=headers).text == "<h1>404</h1>"
    assert_problem(service.http.get("/api/v1/nothing", headers=headers), 404, "not-found")
