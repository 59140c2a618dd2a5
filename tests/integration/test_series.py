"""Aggregates ready to plot: series with their points, the shape map, memory against time."""

import time
from collections.abc import Iterator
from statistics import median
from typing import Any

import pytest

from lossbench.service.contract.case import Case
from lossbench.service.contract.contender import Contender
from lossbench.service.contract.run import Cell, ErrorReport, MemoryReport, OutputError
from lossbench.service.contract.words import Flag, Grade, Outcome, Pass
from lossbench.service.store.models import WorkerRow
from lossbench.service.store.results import insert_run

from .shared_sites import ENGINES, LATENCY, VOCAB, Site, open_site

BUDGET_S = 0.030


@pytest.fixture(scope="module", params=ENGINES)
def shared(request: pytest.FixtureRequest) -> Iterator[Site]:
    """One site for all tests of this file, on each engine in turn."""
    yield from open_site(request)


@pytest.fixture
def site(shared: Site) -> Site:
    """The site, with a hidden size that no other test has."""
    return shared.renewed()


def series(site: Site, **query: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = site.get("/series", hidden=site.hidden, **query)["items"]
    return found


def points(site: Site, one: dict[str, Any], **query: Any) -> dict[str, Any]:
    found: dict[str, Any] = site.get(f"/series/{one['id']}/points", **query)["points"]
    return found


def workspace(size: int) -> MemoryReport:
    names = ("base", "peak_forward", "held", "peak_backward", "outputs", "workspace")
    return MemoryReport.model_validate({f"{name}_bytes": size for name in names})


def test_series_goes_over_versions_in_their_order(site: Site) -> None:
    for version, took in (("0.8.5", 20.0), ("0.6.5", 30.0), ("0.6.0", 50.0), ("0.8.5", 21.0)):
        site.measure({"liger": took}, contenders=[f"liger@{version}"])
    (one,) = series(site)
    assert (one["kernel"], one["params"], one["case"]) == ("liger", "", site.case())
    assert (one["pass"], one["device_name"]) == ("forward_backward", "NVIDIA H200")
    assert (one["points"], one["versions"]) == (4, 3)
    found = points(site, one)
    assert found["version"] == ["0.6.0", "0.6.5", "0.8.5", "0.8.5"]
    assert found["latency_ms"] == [50.0, 30.0, 20.0, 21.0]
    assert found["ratio_to_baseline"] == [1.25, 0.75, 0.5, 0.525]
    assert found["worst_error_ratio"] == [1.1] * 4
    assert {len(column) for column in found.values()} == {4}
    assert points(site, one, version="0.6.5")["latency_ms"] == [30.0]


def test_series_are_split_by_params_case_and_pass_and_paged_newest_first(site: Site) -> None:
    site.measure(contenders=["flce", "flce[chunk_rows=16]"], passes=["forward", "backward"])
    site.measure(sweep={"tokens": [64]})
    every = series(site)
    assert len(every) == len({one["id"] for one in every}) == 6
    newest = [one["newest_result_id"] for one in every]
    assert newest == sorted(newest, reverse=True)
    first = site.get("/series", hidden=site.hidden, limit=4)
    rest = site.get("/series", hidden=site.hidden, limit=4, cursor=first["next_cursor"])
    assert [*first["items"], *rest["items"]] == every
    assert (rest["next_cursor"], rest["complete"]) == (None, True)
    assert len(series(site, kernel="liger")) == 1
    assert len(series(site, **{"pass": "backward"})) == 2


def test_series_of_a_renamed_kernel_stays_one(site: Site) -> None:
    site.service.worker("worker-rename")
    offer(site, _row("old-loss", "1.0"))
    site.measure({"old-loss": 30.0}, contenders=["old-loss"])
    (before,) = series(site)
    offer(site, _row("new-loss", "1.0", "1.1", aliases=["old-loss"]))
    site.measure({"new-loss": 20.0}, contenders=["new-loss"])
    (one,) = series(site)
    assert (one["kernel"], one["points"], one["versions"]) == ("new-loss", 2, 2)
    found = points(site, one)
    assert (found["kernel"], found["latency_ms"]) == (["old-loss", "new-loss"], [30.0, 20.0])
    # an address from before leads to the same points; either name finds them
    assert points(site, before)["result_id"] == found["result_id"]
    assert series(site, kernel="old-loss") == series(site, kernel="new-loss") == [one]


def offer(site: Site, row: dict[str, Any]) -> None:
    """Make the kernel of a plugin known, as its worker does when it starts."""
    with site.context.database.transaction() as session:
        session.get_one(WorkerRow, "worker-rename").kernels = {row["name"]: row}


def _row(name: str, *versions: str, **more: Any) -> dict[str, Any]:
    return {
        "name": name, "summary": "made up", "origin": "built-in", "versions": versions,
        "dtypes": ["bfloat16"], **more,
    }  # fmt: skip


def test_points_without_a_valid_time_have_no_numbers(site: Site) -> None:
    made = iter(
        [
            {"outcome": Outcome.WRONG, "reason": "dw: missing"},
            {"flags": (Flag.INTERPRETED,)},
            {},
        ]
    )
    for _ in range(3):
        site.measure(
            answer=lambda cell: site.worker.record(cell, 5.0, **next(made)), contenders=["flce"]
        )
    (one,) = series(site)
    found = points(site, one)
    assert found["outcome"] == ["wrong", "ok", "ok"]
    assert found["latency_ms"] == [None, None, 5.0]
    assert found["ratio_to_baseline"] == [None, None, 0.125]
    assert [size is None for size in found["workspace_bytes"]] == [True, False, False]


def test_points_of_an_invalidated_result_are_left_out_and_shown_when_asked(site: Site) -> None:
    site.measure(contenders=["flce"])
    site.measure({"flce": 99.0}, contenders=["flce"])
    (one,) = series(site)
    site.invalidate(one["newest_result_id"])
    assert points(site, one)["latency_ms"] == [20.0]
    whole = points(site, one, include_invalid="true")
    assert (whole["latency_ms"], whole["invalidated"]) == ([20.0, 99.0], [False, True])
    assert series(site)[0]["points"] == 1


def test_points_page_by_page_are_each_one_once(site: Site) -> None:
    for took in range(10, 15):
        site.measure({"flce": float(took)}, contenders=["flce"])
    (one,) = series(site)
    page = site.get(f"/series/{one['id']}/points", limit=2)
    seen = [page["points"]["latency_ms"]]
    while page["next_cursor"]:
        page = site.get(f"/series/{one['id']}/points", limit=2, cursor=page["next_cursor"])
        seen.append(page["points"]["latency_ms"])
    assert seen == [[13.0, 14.0], [11.0, 12.0], [10.0]]


def test_imported_results_are_in_no_aggregate(site: Site) -> None:
    site.measure(contenders=["flce"])
    site.store("flce", 1.0, imported=True)
    site.store("liger@0.8.5", 1.0, imported=True)
    (one,) = series(site)
    assert points(site, one)["latency_ms"] == [20.0]
    (cell,) = site.get("/shape-map", hidden=site.hidden)["cells"]
    assert [entry["latency_ms"] for entry in cell["entries"]] == [20.0]
    (front,) = site.get("/pareto", hidden=site.hidden)["items"]
    assert [point["latency_ms"] for point in front["points"]] == [20.0]


def test_unknown_series_is_not_found(site: Site) -> None:
    site.measure(contenders=["flce"])
    (one,) = series(site)
    for name in ("nothing", one["id"][:-3], "W10"):
        assert site.http.get(f"/api/v1/series/{name}/points").status_code == 404
    assert points(site, one, since="2100-01-01T00:00:00Z")["result_id"] == []


@pytest.mark.slow
def test_points_of_1000_results_come_in_time(site: Site) -> None:
    """The budget of pages.md, on this machine; the suite of budgets measures it at 10^6 results."""
    cell = Cell(
        contender=Contender(kernel="flce"),
        case=Case.parse(site.case()),
        pass_=Pass.FORWARD_BACKWARD,
    )
    with site.context.database.transaction() as session:
        for _ in range(1000):
            insert_run(session, site.worker.record(cell, 20.0))
    (one,) = series(site)
    address = f"/api/v1/series/{one['id']}/points"
    took = []
    for _ in range(7):
        began = time.perf_counter()
        answer = site.http.get(address)
        took.append(time.perf_counter() - began)
    assert len(answer.json()["points"]["result_id"]) == 1000
    # the share of the test's own client, and of a machine with others on it
    assert median(took) < 4 * BUDGET_S, f"{1000 * median(took):.0f} ms"


def test_shape_map_names_winners_and_never_a_wrong_or_inexact_one(site: Site) -> None:
    coarse = ErrorReport(
        outputs=(OutputError(output="dw", ratio=9.0, relative_l2=1.0),), grade=Grade.COARSE
    )

    def answer(cell: Any) -> Any:
        kernel, tokens = cell.contender.kernel, cell.case.tokens
        record = site.worker.record(cell, LATENCY[kernel])
        if kernel == "flce" and tokens == 64:
            return record.model_copy(update={"outcome": Outcome.WRONG, "reason": "dw"})
        if kernel == "flce" and tokens == 128:
            return record.model_copy(update={"errors": coarse})
        return record

    contenders = ["flce", "liger@0.8.5", "torch-naive"]
    site.measure(answer=answer, contenders=contenders, sweep={"tokens": [64, 128, 256]})
    site.measure(contenders=contenders, passes=["forward"])
    found = site.get("/shape-map", hidden=site.hidden)
    shown = {"device_name": "NVIDIA H200", "pass": "forward_backward", "settings": "bfloat16"}
    assert found["shown"] == {**shown, "results": 9}
    assert [each["results"] for each in found["slices"]] == [9, 3]
    assert [cell["tokens"] for cell in found["cells"]] == [64, 128, 256]
    assert [cell["winner"] for cell in found["cells"]] == [
        "liger@0.8.5", "liger@0.8.5", "flce@2.11.0",
    ]  # fmt: skip
    assert [cell["told_apart"] for cell in found["cells"]] == [True, True, True]
    wrong = found["cells"][0]["entries"][-1]
    assert (wrong["outcome"], wrong["latency_ms"], wrong["may_win"]) == ("wrong", None, False)
    loose = site.get("/shape-map", hidden=site.hidden, max_error_grade="coarse")
    assert loose["cells"][1]["winner"] == "flce@2.11.0"
    assert (found["complete"], found["read"], found["cells_total"]) == (True, 12, 3)


def test_pareto_marks_the_front_of_what_may_win(site: Site) -> None:
    sizes = {"flce": 300, "liger@0.8.5": 100, "torch-naive": 400, "liger@0.6.5": 50}
    times = {"flce": 20.0, "liger@0.8.5": 25.0, "torch-naive": 40.0, "liger@0.6.5": 1.0}

    def answer(cell: Any) -> Any:
        name = cell.contender.text
        record = site.worker.record(cell, times[name], memory=workspace(sizes[name]))
        if name == "liger@0.6.5":
            return record.model_copy(update={"outcome": Outcome.WRONG, "reason": "dw"})
        return record

    site.measure(answer=answer, contenders=list(sizes))
    (front,) = site.get("/pareto", hidden=site.hidden)["items"]
    found = {point["contender"]: point["on_front"] for point in front["points"]}
    assert found == {
        "flce@2.11.0": True, "liger@0.8.5": True, "torch-naive@2.11.0": False, "liger@0.6.5": False,
    }  # fmt: skip
    assert (front["case"], front["pass"]) == (site.case(), "forward_backward")
    assert front["points"][0]["worst_error_ratio"] == 1.1
    naive = next(each for each in site.results(kernel="flce"))
    site.invalidate(naive["id"])
    (front,) = site.get("/pareto", hidden=site.hidden)["items"]
    assert "flce@2.11.0" not in {point["contender"] for point in front["points"]}


def test_plots_of_aggregates_are_drawn_from_the_same_results(site: Site) -> None:
    site.measure(contenders=["flce", "torch-naive"])
    site.measure({"flce": 10.0}, contenders=["flce"])
    for name in ("pareto", "shape-map", "history"):
        drawn = site.get(f"/plots/{name}", hidden=site.hidden)
        assert "NVIDIA H200" in drawn["layout"]["title"]["text"]
    older = [trace for trace in drawn["data"] if trace["name"] == "older results"]
    assert [trace["y"] for trace in older] == [[0.5]]


def test_aggregates_of_nothing_are_empty(site: Site) -> None:
    assert series(site) == []
    assert site.get("/shape-map", hidden=site.hidden, vocab=VOCAB)["cells"] == []
    assert site.get("/pareto", hidden=site.hidden)["items"] == []


def test_times_of_two_protocols_are_told_apart(site: Site) -> None:
    site.store("liger@0.8.5", 20.0)
    cell = Cell(
        contender=Contender.parse("flce"),
        case=Case.parse(site.case()),
        pass_=Pass.FORWARD_BACKWARD,
    )
    record = site.worker.record(cell, 10.0)
    older = record.model_copy(update={"protocol_version": record.protocol_version - 1})
    with site.context.database.transaction() as session:
        insert_run(session, older)
    (one,) = series(site, kernel="flce")
    assert points(site, one)["protocol_version"] == [record.protocol_version - 1]
    query = {"base": "liger@0.8.5", "cand": "flce", "hidden": site.hidden}
    found = site.get("/compare", **query)
    assert [row["candidates"][0]["ratio"] for row in found["items"]] == [None]
    assert found["candidates"][0]["note"] == (
        "no ratio on 1 common case(s): measured by two versions of the protocol"
    )
    site.store("flce", 10.0)
    found = site.get("/compare", **query)
    assert found["items"][0]["candidates"][0]["ratio"] == pytest.approx(0.5)
    assert found["candidates"][0]["note"] is None
