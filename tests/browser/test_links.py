"""Every link of every page leads somewhere, and files hold what their page shows."""

import csv
import html
import io
import re
from typing import Any
from urllib.parse import urljoin, urlsplit

import httpx

from .looking import PAGES, read

LINK = re.compile(r'(?:href|src|action|data-fragment)="([^"#]+)')
FORMS = re.compile(r'<form[^>]*method="post"[^>]*action="([^"]+)"')
MOST = 1000
"""Addresses that are asked; more would only repeat the same pages of other results."""


def links_of(shown: str, path: str) -> set[str]:
    """Addresses of this service in a page, as GET asks for them."""
    posts = set(FORMS.findall(shown))
    found = {html.unescape(link) for link in LINK.findall(shown) if link not in posts}
    whole = {urljoin(path, link) for link in found}
    return {link for link in whole if not urlsplit(link).scheme and link.startswith("/")}


def test_every_link_of_every_page_answers(live_service: Any) -> None:
    waiting = list(dict.fromkeys(page(live_service) for page in PAGES.values()))
    asked: dict[str, int] = {}
    kinds: set[str] = set()
    with httpx.Client(base_url=live_service.address, timeout=30) as client:
        while waiting and len(asked) < MOST:
            path = waiting.pop(0)
            if path in asked:
                continue
            answer = client.get(path, headers={"Accept": "text/html"}, follow_redirects=True)
            asked[path] = answer.status_code
            is_page = answer.headers.get("content-type", "").startswith("text/html")
            kind = re.sub(r"(job|run|alt|wrk)-[\w-]+|=[^&]*", "*", path)
            # of pages that differ in an id or a value alone, the links of one are followed
            if is_page and kind not in kinds:
                kinds.add(kind)
                waiting += sorted(links_of(answer.text, path) - asked.keys())
    bad = {path: status for path, status in asked.items() if status >= 400}
    assert bad == {}
    assert len(asked) > 100


def test_files_of_a_comparison_hold_the_results_that_it_compares(live_service: Any) -> None:
    path = "/compare?base=liger@0.6.5&cand=liger@0.8.5"
    shown = read(live_service, path)
    on_page = set(re.findall(r'href="/results/(run-[\w-]+)"', shown))
    address = re.search(r'href="(/api/v1/export/results\.csv[^"]*)"', shown)
    assert address is not None
    table = httpx.get(live_service.address + html.unescape(address.group(1))).text
    rows = list(csv.DictReader(io.StringIO(table)))
    assert {row["id"] for row in rows} == on_page
    assert len(on_page) >= 4
