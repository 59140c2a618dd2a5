"""Every page in a real Chromium: what it shows, that it fits, that it asks nobody else."""

import re
from typing import Any

import httpx
import pytest

from .looking import PAGES, looks, opened, read

pytestmark = pytest.mark.browser


@pytest.mark.parametrize(("name", "width", "scheme"), looks(often=True))
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


def test_maps_and_histories_read_the_same_without_scripts(live_service: Any) -> None:
    shapes = read(live_service, "/shapes?pass=forward_backward&max_error_grade=fair")
    assert re.search(r'class="heat".*flce.*?0\.941×', shapes, re.DOTALL)
    assert "out of memory" in shapes
    assert "unsupported" in shapes
    winners = shapes.partition("<h2>Every contender</h2>")[0]
    assert winners.count('class="s-not_measured"') == 2
    pareto = read(live_service, "/pareto?case=N8192-H4096-V128256-bfloat16")
    assert "Fastest: flce" in pareto
    assert "liger@0.8.5[chunk_mem_const=4]" in pareto
    history = read(live_service, "/history?kernel=liger")
    assert history.index(">0.8.5</a>") < history.index(">0.6.5</a>")
    for html in (shapes, pareto, history):
        assert re.search(r"<script(?![^>]*(src=|application/json))", html) is None
        assert "▲ coarse" in re.sub(r"<[^>]+>", "", html)
        assert "power capped" in html


def test_recommendation_is_answered_on_the_page(live_service: Any) -> None:
    ask = "/shapes?model=llama-3-8b&need_tokens=8192"
    assert "Use flce" in read(live_service, ask)
    assert "Use liger@0.8.5 " in read(live_service, ask + "&max_workspace=2GiB")
    assert "there is no model" in read(live_service, ask.replace("llama-3-8b", "lama"))
    assert "is not a size" in read(live_service, ask + "&max_workspace=much")


def test_grade_that_may_win_changes_the_winner(live_service: Any) -> None:
    narrow = "/shapes?kernel=liger&version=0.8.5"
    assert "is fastest on" in read(live_service, narrow)
    strict = read(live_service, narrow + "&max_error_grade=exact")
    assert "none exact enough" in strict


def test_view_with_an_unknown_parameter_names_it(live_service: Any) -> None:
    for path in ("/shapes", "/pareto", "/history"):
        answer = httpx.get(f"{live_service.address}{path}?kernl=flce")
        assert answer.status_code == 422
        assert "kernl" in answer.text


def test_view_without_a_match_says_what_to_do(live_service: Any) -> None:
    for path in ("/shapes", "/pareto", "/history"):
        html = read(live_service, f"{path}?kernel=cce")
        assert 'class="card empty"' in html
        assert 'href="/jobs/new"' in html


def test_files_of_a_view_are_there(live_service: Any) -> None:
    html = read(live_service, "/pareto")
    links = re.findall(r'href="(/api/v1/[^"]+)"', html)
    assert [link.partition("?")[0] for link in links if "/jobs" not in link][:3] == [
        "/api/v1/export/results.csv", "/api/v1/export/results.parquet", "/api/v1/pareto",
    ]  # fmt: skip
    for link in links[:3]:
        assert httpx.get(live_service.address + link.replace("&amp;", "&")).status_code == 200


def test_compare_hides_rows_in_which_nothing_differs(live_service: Any) -> None:
    same = f"/compare?job={live_service.report_job}&base=flce&cand=flce"
    assert "Nothing differs" in read(live_service, same + "&changed=1")
    other = f"/compare?job={live_service.report_job}&base=torch-naive&cand=flce"
    assert read(live_service, other + "&changed=1").count("<tr>") == 3


def test_overview_names_what_a_new_version_changed(live_service: Any) -> None:
    html = read(live_service, "/")
    assert "From version to version: 0 slower, 2 faster" in html
    assert re.search(r"0\.6\.5</a> → .*0\.8\.5</a>", html)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_on_the_map_has_contrast(chromium: Any, live_service: Any, scheme: str) -> None:
    with opened(chromium, live_service, "/shapes", 1400, scheme) as watched:
        watched.page.add_style_tag(content="* { transition: none }")
        low = watched.page.evaluate(CONTRAST)
        assert low >= 4.5


CONTRAST = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgb = (colour) => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const light = (colour) => {
    const [r, g, b] = rgb(colour).map((v) => v / 255)
      .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  let low = 99;
  // the fullest tints, whatever the data are
  const cell = document.querySelector("td.heat");
  for (const tint of ["better", "worse"]) {
    cell.style.background = `color-mix(in srgb, var(--${tint}) 40%, var(--card))`;
    const under = light(getComputedStyle(cell).backgroundColor);
    for (const node of cell.querySelectorAll("a, b, small, small span")) {
      const over = light(getComputedStyle(node).color);
      const ratio = (Math.max(under, over) + 0.05) / (Math.min(under, over) + 0.05);
      low = Math.min(low, ratio);
    }
  }
  return low;
}"""


@pytest.mark.slow
def test_filters_live_in_the_address_and_keys_lead_to_the_pages(
    chromium: Any, live_service: Any
) -> None:
    with opened(chromium, live_service, "/", 1400, "light") as watched:
        page = watched.page
        for key, path in (("s", "/shapes"), ("p", "/pareto"), ("h", "/history")):
            page.keyboard.press("g")
            page.keyboard.press(key)
            page.wait_for_url(f"**{path}")
        page.select_option("select[name=kernel]", "liger")
        page.click(".filters button")
        page.wait_for_url("**/history?*kernel=liger*")
        assert page.input_value("select[name=kernel]") == "liger"
        page.click("button:has-text('Permalink')")
        page.wait_for_url("**/v/*")
        assert "No newer result matches" in page.inner_text("main")
        assert page.input_value("select[name=kernel]") == "liger"
        assert watched.said == []


@pytest.mark.slow
def test_view_saves_its_figure_as_svg(chromium: Any, live_service: Any) -> None:
    with opened(chromium, live_service, "/pareto", 1400, "light") as watched:
        watched.drawn()
        with watched.page.expect_download() as waiting:
            watched.page.click("text=Save SVG")
        assert waiting.value.suggested_filename == "pareto.svg"


def test_compare_tabs_show_errors_and_floor(live_service: Any) -> None:
    path = f"/compare?job={live_service.report_job}&base=liger@0.6.5&cand=flce"
    errors = read(live_service, path + "&tab=errors")
    assert "1.36e-3" in errors
    assert "largest absolute" in errors
    floor = read(live_service, path + "&tab=floor")
    assert "4.04×" in floor
    wrong = httpx.get(f"{live_service.address}{path}&tab=memory")
    assert wrong.status_code == 422
    assert "known: errors, floor" in wrong.text
