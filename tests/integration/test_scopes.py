"""Every write of the OpenAPI document against every kind of token; pages and their headers."""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from lossbench.service.api.security import AuthMode
from lossbench.service.contract.words import Scope
from lossbench.service.store.events import now
from lossbench.service.store.tokens import create_token
from lossbench.web.app import create_app

SAFE = ("get", "head")
ADMINS = {"PATCH /api/v1/results/{}", "POST /api/v1/tokens", "DELETE /api/v1/tokens/{}"}
PAGES = ("/", "/login", "/jobs/new", "/kernels", "/machines", "/compare", "/nothing-here")


def writes(service: Any) -> list[tuple[str, str]]:
    """(method, path with made-up ids) of every operation that writes."""
    document = service.http.get("/openapi.json").json()
    return [
        (method.upper(), re.sub(r"\{\w+\}", "x-1", path))
        for path, methods in document["paths"].items()
        for method in methods
        if method not in SAFE
    ]


def test_every_write_needs_a_token_of_its_scope(shared_token_service: Any) -> None:
    service = shared_token_service
    reader = service.client(service.token(Scope.READ))
    submitter = service.client(service.token(Scope.SUBMIT))
    asked = writes(service)
    assert len(asked) >= 8
    for method, path in asked:
        label = f"{method} {path.replace('x-1', '{}')}"
        # without a body: the sender is asked first
        stranger = service.http.request(method, path)
        assert stranger.status_code == 401, (method, path)
        assert stranger.headers["www-authenticate"].startswith("Bearer")
        refused = reader.request(method, path)
        assert refused.status_code == 403, (method, path)
        assert refused.json()["type"] == "/docs/errors#not-allowed"
        found = submitter.request(method, path).status_code
        assert (found == 403) == (label in ADMINS), (method, path, found)


def test_list_of_tokens_is_for_admins(shared_token_service: Any) -> None:
    service = shared_token_service
    assert service.http.get("/api/v1/tokens").status_code == 401
    for scope, status in ((Scope.READ, 403), (Scope.SUBMIT, 403), (Scope.ADMIN, 200)):
        client = service.client(service.token(scope))
        assert client.get("/api/v1/tokens").status_code == status, scope


def test_token_past_its_expiry_is_a_stranger(shared_token_service: Any) -> None:
    service = shared_token_service
    with service.context.database.transaction() as session:
        past = now() - timedelta(seconds=1)
        secret = create_token(session, "test", (Scope.ADMIN,), past)[1]
    assert service.client(secret).post("/api/v1/tokens", json={"name": "x"}).status_code == 401


@pytest.fixture
def pages(make_service: Callable[..., Any], sqlite_url: str) -> Any:
    """Pages of a service with tokens and a tight limit."""
    service = make_service(sqlite_url, AuthMode.TOKENS, writes_per_minute=3)
    service.app = create_app(service.context)
    return service


def test_pages_have_the_security_headers_and_no_script_of_their_own(pages: Any) -> None:
    for path in PAGES:
        check_page(pages.client().get(path, headers={"Accept": "text/html"}))


def check_page(answer: Any) -> None:
    policy = answer.headers["content-security-policy"]
    for part in ("script-src 'self'", "frame-ancestors 'none'", "object-src 'none'"):
        assert part in policy
    assert "unsafe-eval" not in policy
    assert "'unsafe-inline'" not in policy.partition("style-src")[0]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "same-origin"
    for tag in re.findall(r"<script\b[^>]*>", answer.text):
        assert "src=" in tag or "application/json" in tag, tag
    assert not re.search(r"<[^>]+\son\w+\s*=", answer.text), "an inline event handler"
    assert "javascript:" not in answer.text


def test_guessing_at_the_login_is_limited(pages: Any) -> None:
    client = pages.client()
    headers = {"Accept": "text/html"}
    statuses = [
        client.post("/login", data={"token": f"lb_{n}"}, headers=headers).status_code
        for n in range(4)
    ]
    assert statuses == [401, 401, 401, 429]
