"""Every page in a real Chromium: what it shows, that it fits, that it asks nobody else."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

pytestmark = pytest.mark.browser

PAGES: dict[str, Callable[[Any], str]] = {
    "overview": lambda filled: "/",
    "new": lambda filled: "/jobs/new",
    "live": lambda filled: f"/jobs/{filled.live_job}",
    "report": lambda filled: f"/jobs/{filled.report_job}",
    "compare": lambda filled: f"/compare?job={filled.report_job}&base=liger@0.8.5&cand=flce",
    "machines": lambda filled: "/machines",
    "kernels": lambda filled: "/kernels",
}
LOOKS = [(1400, "light"), (390, "dark")]


class Watched:
    """A browser page with everything it said and everybody it asked."""

    def __init__(self, page: Any, address: str) -> None:
        self.page, self._address = page, address
        self.said: list[str] = []
        self.foreign: list[str] = []
        page.on("console", lambda message: self.said.append(message.text))
        page.on("pageerror", lambda error: self.said.append(str(error)))
        page.on("request", self._asked)

    def _asked(self, request: Any) -> None:
        if not request.url.startswith((self._address, "data:", "blob:")):
            self.foreign.append(request.url)

    def drawn(self) -> None:
        """Wait until every figure is drawn."""
        undrawn = "() => document.querySelectorAll('[data-figure]:not([data-drawn])').length === 0"
        self.page.wait_for_function(undrawn, timeout=20_000)


@contextmanager
def opened(chromium: Any, filled: Any, path: str, width: int, scheme: str) -> Iterator[Watched]:
    """A fresh browser context with one page open."""
    size = {"width": width, "height": 900}
    context = chromium.new_context(viewport=size, color_scheme=scheme)
    try:
        watched = Watched(context.new_page(), filled.address)
        watched.page.goto(filled.address + path)
        yield watched
    finally:
        context.close()


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_page_is_quiet_local_and_fits(
    chromium: Any, live_service: Any, name: str, width: int, scheme: str
) -> None:
    with opened(chromium, live_service, PAGES[name](live_service), width, scheme) as watched:
        watched.drawn()
        wider = watched.page.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        assert watched.said == []
        assert watched.foreign == []
        assert wider <= 0
        assert watched.page.locator("h1").count() == 1


def test_report_shows_outcomes_figures_and_markdown(chromium: Any, live_service: Any) -> None:
    path = PAGES["report"](live_service)
    with opened(chromium, live_service, path, 1400, "light") as watched:
        watched.drawn()
        page = watched.page
        text = page.inner_text("main")
        assert "16 cells: 14 ok, 1 out of memory, 1 unsupported" in text
        assert "▲ coarse" in text
        assert "CUDA out of memory" in text
        assert page.locator("figure svg.main-svg").count() >= 4
        assert page.locator("table.report").count() == 2
        assert "| contender | outcome |" in page.inner_text("#markdown")
        assert page.inner_text("#command").startswith("lossbench submit")
        figures = page.inner_text(".figures")
        assert "out of memory" in figures
        assert "time per call, ms (lower is better)" in figures


def test_report_without_scripts_has_the_same_numbers(live_service: Any) -> None:
    html = httpx.get(live_service.address + PAGES["report"](live_service)).text
    assert "39.6" in html
    assert "0.935 – 0.946" in html
    assert re.search(r"<script(?![^>]*(src=|application/json))", html) is None


def test_live_grid_fills_in_place_and_report_follows(chromium: Any, live_service: Any) -> None:
    job_id = live_service.submit("in-place")
    task = live_service.begin(job_id, 1)[0]
    with opened(chromium, live_service, f"/jobs/{job_id}", 1400, "light") as watched:
        page = watched.page
        page.evaluate("window.untouched = true")
        cell = page.locator("#cell-0")
        assert "running" in cell.inner_text()
        before = cell.bounding_box()
        live_service.work.note(task, "a line of the log")
        live_service.save(task)
        page.wait_for_selector("#cell-0.s-ok", timeout=5000)
        page.wait_for_function(
            "() => document.querySelector('#cell-0 .value').textContent.includes('ms')",
            timeout=5000,
        )
        page.wait_for_function(
            "() => document.getElementById('job-state').textContent.includes('8 of')"
        )
        assert "a line of the log" in page.inner_text("#log")
        assert page.evaluate("window.untouched") is True
        assert cell.bounding_box()["height"] == before["height"]
        page.set_viewport_size({"width": 1400, "height": 400})
        page.evaluate("scrollTo(0, 300)")
        for rest in live_service.begin(job_id):
            live_service.save(rest)
        page.wait_for_selector("#report-ready:visible", timeout=5000)
        assert page.evaluate("window.untouched") is True
        page.click("#report-ready")
        page.wait_for_selector("table.report")
        assert watched.said == []


def test_live_page_at_the_top_turns_into_the_report(chromium: Any, live_service: Any) -> None:
    job_id = live_service.submit("at-the-top")
    tasks = live_service.begin(job_id)
    with opened(chromium, live_service, f"/jobs/{job_id}", 1400, "light") as watched:
        for task in tasks:
            live_service.save(task)
        watched.page.wait_for_selector("table.report", timeout=8000)


def test_form_dry_run_then_submit_makes_a_job(chromium: Any, live_service: Any) -> None:
    with opened(chromium, live_service, "/jobs/new", 1400, "light") as watched:
        page = watched.page
        page.fill("textarea[name=more_contenders]", "liger@0.8.0")
        page.click("button[value=dry_run]")
        assert "4 cells, 3 known already" in page.inner_text("#plan")
        assert page.input_value("textarea[name=more_contenders]") == "liger@0.8.0"
        page.click("button[value=submit]")
        page.wait_for_url("**/jobs/job-*")
        assert "3 of 4 cells" in page.inner_text("main")
        page.click("text=Cancel the job")
        page.wait_for_selector("text=cancelled")
        assert watched.said == []


def test_form_with_a_wrong_name_says_what_exists(chromium: Any, live_service: Any) -> None:
    with opened(chromium, live_service, "/jobs/new", 1400, "light") as watched:
        page = watched.page
        page.fill("textarea[name=more_contenders]", "ligre")
        page.click("button[value=dry_run]")
        alert = page.inner_text("[role=alert]")
        assert "there is no kernel 'ligre'" in alert
        assert "liger" in alert


def test_keys_reach_search_and_help(chromium: Any, live_service: Any) -> None:
    with opened(chromium, live_service, "/", 1400, "light") as watched:
        page = watched.page
        page.keyboard.press("/")
        assert page.evaluate("document.activeElement.type") == "search"
        page.keyboard.type(live_service.report_job)
        page.keyboard.press("Enter")
        page.wait_for_url(f"**/jobs/{live_service.report_job}")
        page.keyboard.press("?")
        assert page.is_visible("dialog#help")


def test_figures_follow_a_change_of_the_colour_scheme(chromium: Any, live_service: Any) -> None:
    path = PAGES["report"](live_service)
    with opened(chromium, live_service, path, 1400, "light") as watched:
        watched.drawn()
        page = watched.page
        colour = "document.querySelector('[data-figure]').layout.font.color"
        light = page.evaluate(colour)
        page.emulate_media(color_scheme="dark")
        page.wait_for_function(f"() => {colour} !== '{light}'", timeout=5000)


def test_error_page_says_what_to_try(live_service: Any) -> None:
    answer = httpx.get(live_service.address + "/jobs/job-none", headers={"Accept": "text/html"})
    assert answer.status_code == 404
    assert "What to try" in answer.text
    plain = httpx.get(live_service.address + "/api/v1/jobs/job-none")
    assert plain.headers["content-type"].startswith("application/problem+json")


def test_plotly_is_small_on_the_wire_and_kept_for_good(live_service: Any) -> None:
    html = httpx.get(live_service.address + PAGES["report"](live_service)).text
    found = re.search(r'src="(/static/plotly\.min\.js\?v=\w+)"', html)
    assert found is not None
    answer = httpx.get(live_service.address + found.group(1))
    assert answer.headers["content-encoding"] == "gzip"
    assert "immutable" in answer.headers["cache-control"]
    assert "plotly.min.js" not in httpx.get(live_service.address + "/").text


def test_user_text_is_escaped(live_service: Any) -> None:
    job_id = live_service.submit("</script><script>alert(1)</script>")
    html = httpx.get(f"{live_service.address}/jobs/{job_id}").text
    assert "<script>alert(1)" not in html
