"""Query parameters, and forms, that would be read otherwise than they are written are refused."""

from typing import Any

import pytest

from lossbench.service.api.security import SESSION_COOKIE


@pytest.mark.parametrize(
    ("query", "pointer", "code"),
    [
        ("tokens_gte=5&tokens_gte=100", "/query/tokens_gte", "repeated_parameter"),
        ("limit=5&limit=5", "/query/limit", "repeated_parameter"),
        ("sort=tokens&sort=-tokens", "/query/sort", "repeated_parameter"),
        ("limit=5.0", "/query/limit", "int_parsing"),
        ("limit=1_0", "/query/limit", "int_parsing"),
        ("limit=%205", "/query/limit", "int_parsing"),
        ("limit=%2B5", "/query/limit", "int_parsing"),
        ("tokens=4&tokens=8.0", "/query/tokens", "int_parsing"),
        ("since=1774751400", "/query/since", "value_error"),
        ("since=0.5", "/query/since", "value_error"),
    ],
)
def test_query_parameter_with_a_doubtful_value_is_refused_by_name(
    shared_service: Any, query: str, pointer: str, code: str
) -> None:
    answer = shared_service.http.get(f"/api/v1/results?{query}")
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    assert [(f["pointer"], f["code"]) for f in answer.json()["errors"]] == [(pointer, code)]


@pytest.mark.parametrize("query", ["tokens=4&tokens=8", "kernel=flce&kernel=liger", "limit=5"])
def test_query_parameter_that_may_be_repeated_is_taken(shared_service: Any, query: str) -> None:
    assert shared_service.http.get(f"/api/v1/results?{query}").status_code == 200


def test_contender_as_text_is_in_the_schema_of_a_job(shared_service: Any) -> None:
    schemas = shared_service.http.get("/openapi.json").json()["components"]["schemas"]
    items = schemas["JobRequest"]["properties"]["contenders"]["items"]
    assert [part.get("type", "object") for part in items["anyOf"]] == ["object", "string"]


BROKEN_FORM = {"Content-Type": "multipart/form-data"}


def test_job_as_a_form_is_unsupported_even_without_a_boundary(shared_service: Any) -> None:
    answer = shared_service.http.post("/api/v1/jobs", content="x", headers=BROKEN_FORM)
    assert answer.status_code == 415


def test_broken_form_of_a_session_names_its_header(shared_token_service: Any) -> None:
    service = shared_token_service
    session = service.context.authenticator.login(service.token())
    headers = {**BROKEN_FORM, "Cookie": f"{SESSION_COOKIE}={session.secret}"}
    answer = service.http.post("/api/v1/jobs/job-1/cancel", content="x", headers=headers)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "/header/Content-Type"
