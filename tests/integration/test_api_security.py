"""Who may do what: open mode, tokens, scopes, cookies, CSRF, limits, headers, log lines."""

import gzip
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from lossbench.service.api.security import SESSION_COOKIE, AuthMode
from lossbench.service.contract.words import Scope
from lossbench.service.store.events import now
from lossbench.service.store.models import JobRow, TokenRow
from lossbench.service.store.tokens import find_token

BODY: dict[str, Any] = {
    "contenders": ["flce"],
    "shapes": [{"tokens": 1024, "hidden": 512, "vocab": 4096}],
}
JOBS = "/api/v1/jobs"
TOKENS = "/api/v1/tokens"
DRY = {"dry_run": "true"}


@pytest.fixture
def guarded(shared_token_service: Any) -> Any:
    return shared_token_service


@pytest.fixture
def closed(make_service: Callable[..., Any], sqlite_url: str) -> Any:
    return make_service(sqlite_url, AuthMode.TOKENS, open_reading=False)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("localhost:8765", 200),
        ("LOCALHOST:1", 200),
        ("127.0.0.1:8765", 200),
        ("[::1]:8765", 200),
        ("evil.example", 403),
        ("localhost.evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("[::2]:8765", 403),
        ("", 403),
        ("10.0.0.9:8765", 403),
    ],
)
def test_open_mode_answers_only_local_names(shared_service: Any, host: str, status: int) -> None:
    answer = shared_service.http.get(JOBS, headers={"Host": host})
    assert answer.status_code == status
    if status == 403:
        assert answer.json()["type"] == "/docs/errors#not-allowed"


@pytest.mark.parametrize(
    "header", ["X-Forwarded-For", "X-Forwarded-Host", "Forwarded", "X-Real-IP", "X-Forwarded"]
)
def test_open_mode_refuses_forwarded_requests(shared_service: Any, header: str) -> None:
    answer = shared_service.http.get(JOBS, headers={header: "127.0.0.1"})
    assert answer.status_code == 403
    assert header.lower() in answer.json()["detail"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Origin": "http://localhost:8765"}, 200),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Sec-Fetch-Site": "none"}, 200),
        ({"Origin": "http://localhost:3000"}, 403),
        ({"Origin": "https://localhost:8765"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
    ],
)
def test_open_mode_takes_writes_only_from_its_own_pages(
    shared_service: Any, headers: dict[str, str], status: int
) -> None:
    answer = shared_service.http.post(JOBS, params=DRY, json=BODY, headers=headers)
    assert answer.status_code == status


def test_tokens_mode_behind_another_name_still_reads(guarded: Any) -> None:
    headers = {"Host": "bench.example", "X-Forwarded-For": "1.2.3.4"}
    assert guarded.http.get(JOBS, headers=headers).status_code == 200


WRITES = [
    ("POST", JOBS, BODY),
    ("POST", f"{JOBS}/job-1/cancel", None),
    ("POST", f"{JOBS}/job-1/retry", None),
    ("PATCH", "/api/v1/results/run-1", {"invalid_reason": "x"}),
    ("POST", TOKENS, {"name": "x"}),
    ("DELETE", f"{TOKENS}/tok-1", None),
    ("GET", TOKENS, None),
]


@pytest.mark.parametrize(("method", "path", "body"), WRITES)
def test_write_without_token_is_not_authenticated(
    guarded: Any, method: str, path: str, body: Any
) -> None:
    answer = guarded.http.request(method, path, json=body)
    assert answer.status_code == 401
    assert answer.json()["type"] == "/docs/errors#not-authenticated"
    assert answer.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize(("method", "path", "body"), WRITES[3:])
def test_admin_write_with_submit_token_is_not_allowed(
    guarded: Any, method: str, path: str, body: Any
) -> None:
    client = guarded.client(guarded.token(Scope.SUBMIT))
    answer = client.request(method, path, json=body)
    assert answer.status_code == 403
    assert "'admin'" in answer.json()["detail"]


@pytest.mark.parametrize("header", ["Bearer nope", "Bearer ", "Basic YTpi", "Bearer \xff"])
def test_bad_authorization_is_refused_even_for_reading(guarded: Any, header: str) -> None:
    headers = {"Authorization": header.encode("latin-1")}
    assert guarded.http.post(JOBS, json=BODY, headers=headers).status_code == 401


def test_submit_with_token_stores_who_sent_it(guarded: Any) -> None:
    client = guarded.client(guarded.token(Scope.SUBMIT))
    job = client.post(JOBS, json=BODY).json()
    with guarded.context.database.reading() as session:
        token_id = session.get_one(JobRow, job["id"]).token_id
        assert session.get_one(TokenRow, token_id).last_used_at is not None


@pytest.mark.parametrize("ended", ["expired", "revoked"])
def test_token_that_ended_is_refused(guarded: Any, ended: str) -> None:
    secret = guarded.token(Scope.SUBMIT)
    with guarded.context.database.transaction() as session:
        row = find_token(session, secret)
        setattr(row, "expires_at" if ended == "expired" else "revoked_at", now())
    assert guarded.client(secret).post(JOBS, json=BODY).status_code == 401


def test_read_token_may_not_submit(guarded: Any) -> None:
    client = guarded.client(guarded.token(Scope.READ))
    assert client.post(JOBS, json=BODY).status_code == 403


@pytest.mark.parametrize(
    "path", [JOBS, "/api/v1/results", "/metrics", "/docs", "/docs/errors", "/openapi.json"]
)
def test_closed_reading_needs_a_token_for_data_docs_and_metrics(closed: Any, path: str) -> None:
    assert closed.http.get(path).status_code == 401
    assert closed.client(closed.token(Scope.READ)).get(path).status_code == 200


def test_closed_reading_leaves_health_open(closed: Any) -> None:
    assert closed.http.get("/healthz").status_code == 200
    assert closed.http.get("/readyz").status_code == 503


def test_token_is_shown_once_listed_without_secret_and_revoked(guarded: Any) -> None:
    admin = guarded.client(guarded.token(Scope.ADMIN))
    expiry = (now() + timedelta(days=1)).isoformat()
    body = {"name": "ci", "scopes": ["submit"], "expires_at": expiry}
    made = admin.post(TOKENS, json=body)
    assert made.status_code == 201
    assert made.headers["cache-control"] == "no-store"
    token = made.json()
    assert guarded.client(token["secret"]).post(JOBS, params=DRY, json=BODY).status_code == 200
    listed = admin.get(TOKENS)
    assert token["secret"] not in listed.text
    assert "secret_hash" not in listed.text
    assert {item["name"] for item in listed.json()["items"]} == {"ci", "test"}
    assert admin.delete(f"{TOKENS}/{token['id']}").status_code == 204
    assert guarded.client(token["secret"]).post(JOBS, params=DRY, json=BODY).status_code == 401
    assert admin.delete(f"{TOKENS}/tok-1").status_code == 404


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "/name"),
        ({"name": "x", "scopes": ["root"]}, "/scopes/0"),
        ({"name": "x", "expires_at": "2000-01-01T00:00:00Z"}, "/expires_at"),
        ({"name": "x", "expires_at": "2099-01-01T00:00:00"}, "/expires_at"),
        ({"name": "x", "scope": ["submit"]}, "/scope"),
    ],
)
def test_token_request_with_a_fault_is_refused(
    shared_service: Any, body: dict[str, Any], pointer: str
) -> None:
    answer = shared_service.http.post(TOKENS, json=body)
    assert answer.status_code == 422
    assert pointer in [fault["pointer"] for fault in answer.json()["errors"]]


def logged_in(service: Any) -> tuple[dict[str, str], Any]:
    session = service.context.authenticator.login(service.token(Scope.SUBMIT))
    return {"Cookie": f"{SESSION_COOKIE}={session.secret}"}, session


def test_cookie_with_its_csrf_token_may_write(guarded: Any) -> None:
    cookie, session = logged_in(guarded)
    headers = {**cookie, "X-CSRF-Token": session.csrf}
    answer = guarded.http.post(JOBS, params=DRY, json=BODY, headers=headers)
    assert answer.status_code == 200


@pytest.mark.parametrize("csrf", [{}, {"X-CSRF-Token": "wrong"}, {"X-CSRF-Token": ""}])
def test_cookie_without_its_csrf_token_may_not_write(guarded: Any, csrf: dict[str, str]) -> None:
    cookie, _ = logged_in(guarded)
    answer = guarded.http.post(JOBS, params=DRY, json=BODY, headers={**cookie, **csrf})
    assert answer.status_code == 403
    assert "CSRF" in answer.json()["detail"]


def test_cookie_write_from_another_site_is_refused(guarded: Any) -> None:
    cookie, session = logged_in(guarded)
    headers = {**cookie, "X-CSRF-Token": session.csrf, "Origin": "http://evil.example"}
    assert guarded.http.post(JOBS, params=DRY, json=BODY, headers=headers).status_code == 403


def test_cookie_write_by_https_through_a_proxy_is_taken(guarded: Any) -> None:
    cookie, session = logged_in(guarded)
    headers = {**cookie, "X-CSRF-Token": session.csrf}
    host = guarded.http.base_url.netloc.decode()
    own = {**headers, "Origin": f"https://{host}"}
    assert guarded.http.post(JOBS, params=DRY, json=BODY, headers=own).status_code == 200
    other = {**headers, "Origin": "https://evil.example"}
    assert guarded.http.post(JOBS, params=DRY, json=BODY, headers=other).status_code == 403


def test_form_field_counts_as_csrf_token(guarded: Any) -> None:
    cookie, session = logged_in(guarded)
    answer = guarded.http.post(
        f"{JOBS}/job-1/cancel", data={"csrf_token": session.csrf}, headers=cookie
    )
    assert answer.status_code == 404


def test_cookie_of_a_revoked_token_is_a_stranger(closed: Any) -> None:
    cookie, session = logged_in(closed)
    assert closed.http.get(JOBS, headers=cookie).status_code == 200
    with closed.context.database.transaction() as writing:
        writing.get_one(TokenRow, session.token_id).revoked_at = now()
    assert closed.http.get(JOBS, headers=cookie).status_code == 401


def test_cookie_value_tells_nothing_of_the_token(guarded: Any) -> None:
    secret = guarded.token(Scope.SUBMIT)
    session = guarded.context.authenticator.login(secret)
    assert session.secret != secret
    assert session.secret not in repr(session)
    guarded.context.authenticator.sessions.close(session.secret)
    assert guarded.context.authenticator.sessions.find(session.secret) is None


def test_writes_over_the_rate_are_refused_with_retry_after(
    make_service: Callable[..., Any], sqlite_url: str
) -> None:
    service = make_service(sqlite_url, AuthMode.TOKENS, writes_per_minute=3)
    first, second = service.client(service.token()), service.client(service.token())
    statuses = [first.post(JOBS, params=DRY, json=BODY).status_code for _ in range(4)]
    assert statuses == [200, 200, 200, 429]
    answer = first.post(JOBS, params=DRY, json=BODY)
    assert 1 <= int(answer.headers["retry-after"]) <= 20
    assert answer.json()["type"] == "/docs/errors#too-many-requests"
    assert second.post(JOBS, params=DRY, json=BODY).status_code == 200
    assert first.get(JOBS).status_code == 200


def test_guessing_tokens_is_limited_by_address(
    make_service: Callable[..., Any], sqlite_url: str
) -> None:
    service = make_service(sqlite_url, AuthMode.TOKENS, writes_per_minute=3)
    statuses = [service.client(f"lb_{n}").post(JOBS, json=BODY).status_code for n in range(4)]
    assert statuses == [401, 401, 401, 429]


def test_every_answer_carries_the_security_headers(shared_service: Any) -> None:
    for path in ("/healthz", "/nothing", JOBS, "/docs"):
        headers = shared_service.http.get(path).headers
        assert "script-src 'self'" in headers["content-security-policy"]
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "same-origin"
        assert headers["x-request-id"].startswith("req-")
        assert "access-control-allow-origin" not in headers


def test_write_leaves_one_log_line_and_a_read_none(guarded: Any) -> None:
    secret = guarded.token(Scope.SUBMIT)
    with capture_logs() as logs:
        guarded.http.get(JOBS)
        answer = guarded.client(secret).post(JOBS, json=BODY)
    writes = [entry for entry in logs if entry["event"] == "write"]
    assert len(writes) == 1
    assert writes[0]["who"].startswith("tok-")
    assert (writes[0]["method"], writes[0]["path"], writes[0]["status"]) == ("POST", JOBS, 202)
    assert writes[0]["request_id"] == answer.headers["x-request-id"]
    assert secret not in str(writes)


def test_large_answer_is_sent_as_gzip(shared_service: Any) -> None:
    with shared_service.http.stream("GET", "/openapi.json") as answer:
        raw = b"".join(answer.iter_raw())
    assert answer.headers["content-encoding"] == "gzip"
    assert gzip.decompress(raw).startswith(b'{"openapi"')
