"""Permalinks: a view shows exactly the results of its moment and says what came after."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from lossbench.service.api.security import AuthMode
from lossbench.service.contract.words import Outcome, Scope

from .shared_sites import ENGINES, Site, open_site

VIEWS = "/api/v1/views"
PAIR = {"base": "liger", "cand": ["flce"]}


@pytest.fixture(scope="module", params=ENGINES)
def shared(request: pytest.FixtureRequest) -> Iterator[Site]:
    """One site for all tests of this file, on each engine in turn."""
    yield from open_site(request)


@pytest.fixture
def site(shared: Site) -> Site:
    """The site, with a hidden size that no other test has."""
    return shared.renewed()


def keep(site: Site, path: str = "/compare", **query: Any) -> dict[str, Any]:
    """Keep a view of this test's results."""
    body = {"path": path, "query": {"hidden": str(site.hidden), **query}}
    answer = site.http.post(VIEWS, json=body)
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    assert answer.headers["location"] == found["address"]
    return found


def page(site: Site, view: dict[str, Any], **query: Any) -> str:
    answer = site.http.get(view["address"], params=query, headers={"Accept": "text/html"})
    assert answer.status_code == 200, answer.text
    return str(answer.text)


def shown_ids(text: str) -> set[str]:
    """Results that the page's table links to."""
    table = text[text.index("<tbody>") : text.index("</tbody>")] if "<tbody>" in text else ""
    return set(re.findall(r"/results/(run-\w+)", table))


def ids(site: Site, **query: Any) -> set[str]:
    return {item["id"] for item in site.results(**query)}


def compare_page(site: Site, **query: Any) -> str:
    answer = site.http.get("/compare", params={"hidden": site.hidden, **query})
    assert answer.status_code == 200, answer.text
    return str(answer.text)


def test_view_of_a_comparison_shows_its_moment_and_counts_newer_results(site: Site) -> None:
    site.measure()
    then = ids(site)
    view = keep(site, **PAIR)
    assert (view["results"], view["newer"], view["invalidated_total"]) == (2, 0, 0)
    assert view["query"] == {
        "base": ["liger@0.8.5"], "cand": ["flce"], "hidden": [str(site.hidden)]
    }  # fmt: skip
    assert view["highest_result_id"] == max(then)
    first = page(site, view)
    assert shown_ids(first) == then
    assert "No newer result matches" in first
    assert "takes 0.800× the time of liger@0.8.5" in first
    site.measure({"flce": 10.0})
    later = page(site, view)
    assert shown_ids(later) == then
    assert "takes 0.800× the time of liger@0.8.5" in later
    assert "2 newer results match this query and are not shown" in later
    assert site.get(f"/views/{view['hash']}")["newer"] == 2
    live = compare_page(site, base="liger@0.8.5", cand="flce")
    assert "takes 0.400× the time of liger@0.8.5" in live
    assert not shown_ids(live) & then
    assert keep(site, **PAIR)["hash"] != view["hash"]


def test_view_keeps_a_result_invalidated_later_and_marks_it(site: Site) -> None:
    site.measure()
    view = keep(site, **PAIR)
    (fallen,) = ids(site, kernel="flce")
    site.invalidate(fallen)
    text = page(site, view)
    assert fallen in shown_ids(text)
    assert "takes 0.800× the time of" in text
    assert "1 result of this query was invalidated since" in text
    assert "the fan was off" in text
    assert "<small>invalidated since</small>" in text
    status = site.get(f"/views/{view['hash']}")
    assert status["invalidated"] == [{"result_id": fallen, "reason": "the fan was off"}]
    # nothing was stored since: the same view of the same results
    assert keep(site, cand=["flce"], base="liger@0.8.5")["hash"] == view["hash"]
    assert re.fullmatch(r"[0-9a-hjkmnp-tv-z]{12}", view["hash"])


def test_view_keeps_the_verdict_of_its_moment(site: Site) -> None:
    site.measure()
    site.compare("liger@0.8.5", "flce", ratio=0.75, verdict="faster")
    view = keep(site, **PAIR)
    assert "0.7500×" in page(site, view)
    site.compare("liger@0.8.5", "flce", ratio=1.25, verdict="slower")
    assert "0.7500×" in page(site, view)
    assert "1.250×" not in page(site, view)
    assert "1.250×" in compare_page(site, **PAIR)


def test_view_leaves_out_what_was_invalid_already(site: Site) -> None:
    site.measure()
    (fallen,) = ids(site, kernel="flce")
    site.invalidate(fallen)
    view = keep(site, "/results", kernel="flce")
    assert (view["results"], view["invalidated_total"]) == (0, 0)
    text = page(site, view)
    assert shown_ids(text) == set()
    assert "No result matched then" in text


def test_view_of_a_list_takes_every_filter_and_pages(site: Site) -> None:
    site.measure(sweep={"tokens": [64, 128]}, passes=["forward"])
    site.measure()
    then = ids(site, **{"pass": "forward", "tokens": "64"})
    wanted = {"pass": "forward", "tokens": "64", "kernel": ["flce", "liger"]}
    view = keep(site, "/results", **wanted)
    site.measure(sweep={"tokens": [64]}, passes=["forward"])
    assert len(then) == 2
    assert shown_ids(page(site, view)) == then
    assert shown_ids(page(site, view, before=max(then))) == {min(then)}
    assert site.get(f"/views/{view['hash']}")["newer"] == 2


def test_view_says_what_came_late_under_an_earlier_id(site: Site) -> None:
    site.measure()
    view = keep(site, "/results")
    # of a worker whose clock is behind
    late = site.store("flce", 20.0, run_id=f"run-000000000000{site.hidden:04d}")
    status = site.get(f"/views/{view['hash']}")
    assert (status["came_late"], status["newer"]) == (1, 0)
    text = page(site, view)
    assert late in shown_ids(text)
    assert "1 result shown came in later, under an earlier id" in text


def test_view_has_a_strong_etag_that_changes_with_its_results(site: Site) -> None:
    site.measure()
    view = keep(site, **PAIR)
    answer = site.http.get(view["address"])
    assert answer.headers["cache-control"] == "private, no-cache"
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    tag = answer.headers["etag"]
    assert tag.startswith('"')
    again = site.http.get(view["address"], headers={"If-None-Match": tag})
    assert (again.status_code, again.content) == (304, b"")
    site.measure()
    assert site.http.get(view["address"], headers={"If-None-Match": tag}).status_code == 200


def test_view_of_nothing_stays_empty(site: Site) -> None:
    view = keep(site, **PAIR)
    assert view["results"] == 0
    site.measure()
    assert shown_ids(page(site, view)) == set()
    assert site.get(f"/views/{view['hash']}")["newer"] == 2


def test_compare_page_over_all_results_means_over_common_cases_only(site: Site) -> None:
    def one_wrong(cell: Any) -> Any:
        if cell.contender.kernel == "flce" and cell.case.tokens == 64:
            # its time must not enter the mean
            record = site.worker.record(cell, 1.0)
            return record.model_copy(update={"outcome": Outcome.WRONG, "reason": "dw is off"})
        return site.worker.record(cell, {"flce": 20.0, "liger": 25.0}[cell.contender.kernel])

    site.measure(answer=one_wrong, sweep={"tokens": [64, 128]})
    text = compare_page(site, base="liger", cand=["flce", "torch-naive"])
    assert "takes 0.800× the time of liger@0.8.5 (geometric mean of 1 common case" in text
    assert "flce: 2 cases (1 ok, 1 wrong)" in text
    assert "torch-naive has no result here" in text
    missing = compare_page(site, base="torch-naive", cand="flce")
    assert "no baseline: torch-naive has no result here" in missing


def test_permalink_button_keeps_the_page(site: Site) -> None:
    site.measure()
    form = {"path": "/compare", "query": f"base=liger&cand=flce&hidden={site.hidden}"}
    posted = site.http.post("/views", data=form)
    assert posted.status_code == 303, posted.text
    assert "takes 0.800× the time of" in site.http.get(posted.headers["location"]).text


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"path": "/compere", "query": {}}, "/path"),
        ({"path": "/compare", "query": {"base": "flce"}}, "/query/cand"),
        ({"path": "/compare", "query": {**PAIR, "tokns": "8"}}, "/query/tokns"),
        ({"path": "/compare", "query": {**PAIR, "tokens": "many"}}, "/query/tokens/0"),
        ({"path": "/compare", "query": {**PAIR, "base": ["flce", "liger"]}}, "/query/base"),
        ({"path": "/compare", "query": {"base": "flcee", "cand": "flce"}}, "/query/base/kernel"),
        (
            {"path": "/compare", "query": {"base": "liger@all", "cand": "flce"}},
            "/query/base/version",
        ),
        ({"path": "/results"}, "/query"),
    ],
)
def test_view_that_cannot_be_is_refused_with_a_pointer(
    shared_service: Any, body: dict[str, Any], pointer: str
) -> None:
    answer = shared_service.http.post(VIEWS, json=body)
    assert answer.status_code == 422, answer.text
    assert [fault["pointer"] for fault in answer.json()["errors"]] == [pointer]


def test_unknown_view_is_not_found(site: Site) -> None:
    assert site.http.get(f"{VIEWS}/nothing").status_code == 404
    answer = site.http.get("/v/nothing", headers={"Accept": "text/html"})
    assert answer.status_code == 404
    assert "there is no view" in answer.text


def test_view_needs_a_token_where_writing_does(make_service: Any, sqlite_url: str) -> None:
    guarded = make_service(sqlite_url, AuthMode.TOKENS)
    body: dict[str, Any] = {"path": "/results", "query": {}}
    assert guarded.http.post(VIEWS, json=body).status_code == 401
    empty = guarded.client(guarded.token(Scope.SUBMIT)).post(VIEWS, json=body)
    assert (empty.status_code, empty.json()["highest_result_id"]) == (201, None)
