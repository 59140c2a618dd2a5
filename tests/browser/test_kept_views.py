"""Permalinks of the maps, the fronts and the history: opened later they show what they showed."""

import html
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from .conftest import ENVIRONMENT, register_worker, serving
from .looking import ids_of, read

FIRST = ("torch-naive", "liger@0.6.5", "flce")
PAGES = ("/shapes", "/pareto", "/history")


def fill(filled: Any) -> None:
    """Three contenders; what the tests add comes later."""
    register_worker(filled.context.database, "wrk-h200", "gpu-box-1", ["any", "h200"], ENVIRONMENT)
    filled.finish(filled.submit("before", FIRST))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A service that each test adds results to."""
    with serving(tmp_path_factory.mktemp("kept"), fill) as filled:
        yield filled


def keep(site: Any, path: str, query: str = "") -> str:
    """Press the page's own button; the address it leads to."""
    shown = read(site, f"{path}?{query}")
    form = re.search(r'<form method="post" action="/views">(.*?)</form>', shown, re.DOTALL)
    assert form is not None
    fields = dict(re.findall(r'name="(\w+)" value="([^"]*)"', html.unescape(form.group(1))))
    answer = httpx.post(f"{site.address}/views", data=fields, headers={"Origin": site.address})
    assert answer.status_code == 303, answer.text
    return str(answer.headers["location"])


def body(shown: str) -> str:
    """The page without what it says about its moment: from the form of its filters on."""
    return re.sub(r"\d+ (min|s|h)[^<]* ago|just now", "", shown[shown.index('class="filters"') :])


def test_kept_page_shows_what_it_showed(site: Any) -> None:
    kept = {path: keep(site, path) for path in PAGES}
    before = {path: read(site, address) for path, address in kept.items()}
    for path in PAGES:
        assert "No newer result matches" in before[path]
        assert "cce" not in body(before[path]).partition("recommend")[0]
    site.finish(site.submit("after", ["torch-naive", "cce@25.1.1", "liger@0.8.5"]))
    for path, address in kept.items():
        after = read(site, address)
        assert body(after) == body(before[path])
        assert re.search(r"6 newer results match this query and are not shown", after)
        assert f'href="{path}">see it as of now' in after
        assert "0.8.5" in read(site, path)


def test_kept_page_still_shows_a_result_that_fell_since(site: Any) -> None:
    address = keep(site, "/pareto", "kernel=flce")
    run = ids_of(site, kernel="flce")[0]
    assert f"/results/{run}" in read(site, address)
    change = {"invalid_reason": "the fan stood still"}
    answer = httpx.patch(f"{site.address}/api/v1/results/{run}", json=change)
    assert answer.status_code == 200, answer.text
    shown = read(site, address)
    assert shown.count(f"/results/{run}") >= 2
    assert "the fan stood still" in shown
    assert f"/results/{run}" not in read(site, "/pareto?kernel=flce")


def test_kept_answer_names_what_it_named(site: Any) -> None:
    ask = "model=llama-3-8b&need_tokens=8192&max_workspace=2GiB"
    address = keep(site, "/shapes", ask)
    answer = re.search(r'class="lead">(Use [^<]+)', read(site, address))
    assert answer is not None
    site.finish(site.submit("better", ["flce[chunk_rows=1024]", "torch-naive"]))
    assert answer.group(1) in read(site, address)
    assert answer.group(1) not in read(site, f"/shapes?{ask}")


def test_view_that_is_no_page_is_refused_with_the_known_ones(site: Any) -> None:
    answer = httpx.post(f"{site.address}/api/v1/views", json={"path": "/shape", "query": {}})
    assert answer.status_code == 422
    assert "/shapes, /pareto, /history" in answer.text
    wrong = {"path": "/pareto", "query": {"settings": "bfloat16"}}
    assert httpx.post(f"{site.address}/api/v1/views", json=wrong).status_code == 422
