"""Forms where writing needs a token: logging in, the CSRF field, logging out."""

import re
from typing import Any

import httpx
import pytest

from lossbench.service.contract.words import Scope
from lossbench.service.store.tokens import create_token

HTML = {"Accept": "text/html"}
FORM = {
    "contenders": "flce",
    "models": "llama-3-8b",
    "tokens": "8192",
    "dtypes": "bfloat16",
    "passes": "forward_backward",
    "recipes": "normal",
    "action": "submit",
}


@pytest.fixture
def secret(guarded_service: Any) -> str:
    """A token that may submit."""
    with guarded_service.context.database.transaction() as session:
        return create_token(session, "tests", [Scope.SUBMIT])[1]


@pytest.fixture
def browser(guarded_service: Any) -> Any:
    """A client that keeps cookies, as a browser does."""
    with httpx.Client(base_url=guarded_service.address, headers=HTML) as client:
        yield client


def csrf_of(html: str) -> str:
    """The CSRF token of a page's first form."""
    found = re.search(r'name="csrf_token" value="([^"]*)"', html)
    return found.group(1) if found else ""


def test_stranger_who_submits_is_sent_to_the_login(browser: Any) -> None:
    answer = browser.post("/jobs/new", data=FORM)
    assert answer.status_code == 401
    assert 'href="/login?to=/jobs/new"' in answer.text


def test_form_filled_in_without_a_login_is_kept(browser: Any) -> None:
    filled = {**FORM, "shapes": "96 64 512", "more_contenders": "flce[chunk_rows=512]"}
    answer = browser.post("/jobs/new", data=filled)
    assert answer.status_code == 401
    assert "96 64 512" in answer.text
    assert "flce[chunk_rows=512]" in answer.text
    assert "log in first" in answer.text
    assert "Bearer" not in answer.text


def test_logged_in_browser_submits_with_its_csrf_token(browser: Any, secret: str) -> None:
    entered = browser.post("/login", data={"token": secret, "to": "/jobs/new"})
    assert (entered.status_code, entered.headers["location"]) == (303, "/jobs/new")
    cookie = entered.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    token = csrf_of(browser.get("/jobs/new").text)
    stale = browser.post("/jobs/new", data={**FORM, "shapes": "96 64 512"})
    assert stale.status_code == 403
    assert "send it again" in stale.text
    assert "96 64 512" in stale.text
    sent = browser.post("/jobs/new", data={**FORM, "csrf_token": token})
    assert sent.status_code == 303
    assert sent.headers["location"].startswith("/jobs/job-")


def test_log_out_ends_the_session(browser: Any, secret: str) -> None:
    browser.post("/login", data={"token": secret})
    token = csrf_of(browser.get("/").text)
    assert browser.post("/logout", data={"csrf_token": token}).status_code == 303
    assert browser.post("/jobs/new", data={**FORM, "csrf_token": token}).status_code == 401


@pytest.mark.parametrize(("scheme", "secure"), [("https", True), ("http", False)])
def test_cookie_of_a_login_by_https_is_secure(
    browser: Any, secret: str, scheme: str, secure: bool
) -> None:
    origin = f"{scheme}://{browser.base_url.netloc.decode()}"
    entered = browser.post("/login", data={"token": secret}, headers={"Origin": origin})
    assert entered.status_code == 303
    assert ("secure" in entered.headers["set-cookie"].lower()) == secure


def test_wrong_token_says_so(browser: Any) -> None:
    answer = browser.post("/login", data={"token": "lb_nothing"})
    assert answer.status_code == 401
    assert "unknown, revoked or expired" in answer.text


@pytest.mark.parametrize("target", ["//evil.example", "https://evil.example", "/\\evil.example"])
def test_login_never_leads_to_another_site(browser: Any, secret: str, target: str) -> None:
    answer = browser.post("/login", data={"token": secret, "to": target})
    assert answer.headers["location"] == "/"
