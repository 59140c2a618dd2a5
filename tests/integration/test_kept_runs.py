"""What is kept of the newest results is never stale: saves, invalidations, jobs, permalinks."""

from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from .shared_sites import ENGINES, VOCAB, Site, open_site


@pytest.fixture(scope="module", params=ENGINES)
def shared(request: pytest.FixtureRequest) -> Iterator[Site]:
    yield from open_site(request)


@pytest.fixture
def site(shared: Site) -> Site:
    """The site, with a hidden size that no other test has."""
    return shared.renewed()


def compared(site: Site, **query: Any) -> list[float | None]:
    """Times of flce in a comparison against liger, case by case."""
    asked = {"base": "liger@0.8.5", "cand": "flce", "hidden": site.hidden, **query}
    rows = site.get("/compare", **asked)["items"]
    return [
        row["candidates"][0]["side"] and row["candidates"][0]["side"]["latency_ms"] for row in rows
    ]


def statements(site: Site, ask: Any) -> int:
    """How many statements over the table of runs a question takes."""
    seen: list[str] = []

    def note(_conn: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        if "FROM runs" in statement:
            seen.append(statement)

    engine = site.context.database.engine
    sa.event.listen(engine, "before_cursor_execute", note)
    try:
        ask()
    finally:
        sa.event.remove(engine, "before_cursor_execute", note)
    return len(seen)


def test_second_look_reads_less_and_says_the_same(site: Site) -> None:
    site.measure()
    first = statements(site, lambda: compared(site))
    assert statements(site, lambda: compared(site)) < first
    assert compared(site) == [20.0]


def test_saved_and_invalidated_results_show_at_once(site: Site) -> None:
    site.measure()
    assert compared(site) == [20.0]
    site.measure({"flce": 15.0})
    assert compared(site) == [15.0]
    newest = site.results(kernel="flce")[0]["id"]
    site.invalidate(newest)
    assert compared(site) == [20.0]
    site.measure({"flce": 12.0}, sweep={"tokens": [512, 2048]})
    assert sorted(str(each) for each in compared(site)) == ["12.0", "12.0", "20.0"]


def test_reused_result_of_a_new_job_is_found_by_its_job(site: Site) -> None:
    first = site.measure()
    assert compared(site, job=first) == [20.0]
    second = site.measure(reuse=True)
    assert compared(site, job=second) == [20.0]
    assert site.get("/results", job=second)["items"]


def test_job_that_goes_on_is_not_kept_as_it_was(site: Site) -> None:
    """The second case is answered by a stored result: nothing new is saved."""
    known = site.measure(sweep={"tokens": [512]})
    assert compared(site, job=known) == [20.0]
    body = {
        "contenders": ["flce", "liger@0.8.5"],
        "shapes": [{"tokens": 512, "hidden": site.hidden, "vocab": VOCAB}],
    }
    job = site.http.post("/api/v1/jobs", json={**body, "sweep": {"tokens": [512, 1024]}}).json()[
        "id"
    ]
    assert compared(site, job=job) == [20.0]
    site.worker.answer(job)
    assert compared(site, job=job) == [20.0, 20.0]


def test_permalink_does_not_see_what_is_kept_of_today(site: Site) -> None:
    site.measure()
    query = {"base": ["liger@0.8.5"], "cand": ["flce"], "hidden": [str(site.hidden)]}
    made = site.http.post("/api/v1/views", json={"path": "/compare", "query": query})
    assert made.status_code == 201, made.text
    site.measure({"flce": 15.0})
    assert compared(site) == [15.0]
    page = site.http.get(made.json()["address"]).text
    assert "20.0" in page
    assert "15.0" not in page
    assert compared(site) == [15.0]
