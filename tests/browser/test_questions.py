"""What a newcomer asks, answered by clicking from the first page; and what opens on the way."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from .conftest import TIMES_MS, serving
from .looking import ids_of, opened, read

pytestmark = pytest.mark.browser

CASE = "N8192-H4096-V128256-bfloat16"


def fill(filled: Any) -> None:
    """Releases of Liger that went up and came down again, and one contender that drifts."""
    from .conftest import ENVIRONMENT, register_worker

    register_worker(filled.context.database, "wrk-h200", "gpu-box-1", ["any", "h200"], ENVIRONMENT)
    filled.report_job = filled.submit(
        "asked", [*TIMES_MS, "liger@0.6.0", "cce@25.1.1", "flce[chunk_rows=1024]"]
    )
    filled.finish(filled.report_job)


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A service with the results that the three questions need."""
    with serving(tmp_path_factory.mktemp("asked"), fill) as filled:
        yield filled


def test_which_kernel_for_llama_within_two_gibibytes(chromium: Any, asked: Any) -> None:
    with opened(chromium, asked, "/", 1400, "light") as watched:
        page = watched.page
        page.click("text=Which kernel for my model?")
        page.select_option("select[name=model]", "llama-3-8b")
        page.fill("input[name=need_tokens]", "8192")
        page.fill("input[name=max_workspace]", "2GiB")
        page.click("text=Recommend")
        page.wait_for_selector(".answer")
        answer = page.inner_text(".answer .lead")
        assert answer.startswith("Use flce@1[chunk_rows=1024]")
        assert "workspace 2.00 GiB" in answer
        assert "on NVIDIA H200" in answer
        assert watched.said == []


def test_did_liger_get_slower_and_when_was_it_repaired(chromium: Any, asked: Any) -> None:
    with opened(chromium, asked, "/", 390, "dark") as watched:
        page = watched.page
        page.click("text=What got slower, and was it repaired?")
        page.wait_for_url("**/history")
        told = page.inner_text(".told")
        assert "liger got slower from 0.6.0 to 0.6.5: 1.34× → 3.59× the time of torch-naive" in told
        assert "repaired by 0.8.5 (1.33×)" in told
        assert "Not measured in between: 0.6.2, 0.6.3, 0.6.4, 0.8.0" in told
        # a release that runs the code of another is no gap
        assert "0.6.1" not in told


def test_which_contender_is_fast_but_inexact(chromium: Any, asked: Any) -> None:
    with opened(chromium, asked, "/", 1400, "light") as watched:
        page = watched.page
        page.click("text=What is fast but inexact?")
        page.wait_for_url("**/pareto")
        assert "Fast but inexact: cce@25.1.1 in 2 of 2." in page.inner_text(".lead >> nth=1")
        row = page.locator("tr", has_text="cce@25.1.1").first.inner_text()
        assert "fast but inexact" in row
        assert "✕ poor" in row


def test_overview_draws_a_line_over_the_versions(asked: Any) -> None:
    html = read(asked, "/")
    assert 'aria-label="Time over the baseline from 0.6.0 to 0.8.5, 3 versions' in html
    assert html.count("<polyline") >= 2
    assert "NVIDIA H200</a> <span>newest" in html


def test_row_of_a_comparison_opens_to_samples_and_history(chromium: Any, asked: Any) -> None:
    path = "/compare?base=liger@0.6.5&cand=liger@0.8.5"
    with opened(chromium, asked, path, 1400, "light") as watched:
        page = watched.page
        page.locator("tr.more summary").first.click()
        page.wait_for_selector("tr.more table")
        text = page.locator("tr.more").first.inner_text()
        assert "120 samples in 3 processes" in text
        assert "repaired by 0.8.5" in text
        assert page.locator("tr.more svg.box").count() == 6
        assert watched.said == []


def test_row_without_scripts_is_a_page(asked: Any) -> None:
    html = read(asked, "/compare?base=liger@0.6.5&cand=liger@0.8.5")
    assert html.count("Open this row on a page of its own") == 2
    base, cand = (
        ids_of(asked, contender=name, case=CASE)[0] for name in ("liger@0.6.5", "liger@0.8.5")
    )
    row = read(asked, f"/compare/row?base={base}&cand={cand}")
    assert row.count('class="box"') == 6
    assert "<h1" in row
    nothing = httpx.get(f"{asked.address}/compare/row")
    assert nothing.status_code == 422
    assert httpx.get(f"{asked.address}/compare/row?base=run-none").status_code == 404


def test_errors_are_drawn_against_the_number_of_chunks(asked: Any) -> None:
    html = read(asked, "/compare?base=torch-naive&cand=flce&tab=errors")
    assert "Error against the number of chunks" in html
    assert "same bits" in html


def test_search_leads_to_the_page_of_a_name(asked: Any) -> None:
    for asked_for, target in {
        "liger": "/kernels/liger",
        "liger@0.8.5": "/kernels/liger@0.8.5",
        "llama-3-8b": "/shapes?model=llama-3-8b&need_tokens=8192#recommend",
        CASE: f"/history?case={CASE}",
        "wrk-h200": "/machines/wrk-h200",
        asked.report_job: f"/jobs/{asked.report_job}",
    }.items():
        answer = httpx.get(f"{asked.address}/search", params={"q": asked_for})
        assert answer.headers["location"] == target
    assert "what to use for it" in read(asked, "/search?q=gemma")
    assert "Nothing is called" in read(asked, "/search?q=<b>")


def test_page_says_that_results_came_and_does_not_move(chromium: Any, asked: Any) -> None:
    newest = max(ids_of(asked))
    assert httpx.get(f"{asked.address}/newer?after={newest}").json() == {"newer": 0}
    older = sorted(ids_of(asked))[-4]
    assert httpx.get(f"{asked.address}/newer?after={older}").json() == {"newer": 3}
    with opened(chromium, asked, "/pareto", 1400, "light") as watched:
        page = watched.page
        assert page.locator("#newer").is_hidden()
        page.evaluate(f"document.getElementById('newer').dataset.after = '{older}'")
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        page.wait_for_selector("#newer:visible")
        assert page.inner_text("#newer") == "3 new results: show them"
