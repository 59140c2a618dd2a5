"""Figures of aggregates by their JSON: fronts, winners by shape, history by version."""

from collections.abc import Callable
from typing import Any

import pytest

from lossbench.service.contract.result import Result
from lossbench.service.plots import figure

MakeResult = Callable[..., Result]
MIB = 2**20


def traces(drawn: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return [trace for trace in drawn["data"] if trace["name"] == name]


@pytest.fixture
def crowd(make_result: MakeResult) -> list[Result]:
    """Two on the front, one behind it, and three that may not be on it."""
    return [
        make_result("flce", latency_ms=20.0, workspace_bytes=300 * MIB),
        make_result("liger", version="0.8.5", latency_ms=25.0, workspace_bytes=100 * MIB),
        make_result("torch-naive", version="2", latency_ms=40.0, workspace_bytes=400 * MIB),
        make_result("cce", latency_ms=10.0, workspace_bytes=10 * MIB, grade="coarse"),
        make_result("fla", latency_ms=9.0, workspace_bytes=9 * MIB, flags=["suspect"]),
        make_result("quack", outcome="wrong"),
    ]


def test_pareto_draws_the_front_without_inexact_suspect_and_wrong_ones(crowd: list[Result]) -> None:
    drawn = figure("pareto", crowd)
    (front,) = traces(drawn, "front")
    assert (front["x"], front["y"]) == ([20.0, 25.0], [300.0, 100.0])
    (marks,) = traces(drawn, "contenders")
    assert dict(zip(marks["text"], marks["marker"]["symbol"], strict=True))["cce"] == "triangle-up"
    assert traces(drawn, "gaps")[0]["text"] == ["fast but inexact: cce@1<br>wrong: quack@1"]
    layout = drawn["layout"]
    assert layout["xaxis"]["title"]["text"] == "time per call, ms (lower is better)"
    assert layout["yaxis"]["title"]["text"] == "workspace, log scale (lower is better)"


def test_pareto_joins_settings_of_one_kernel(make_result: MakeResult) -> None:
    rows = [make_result(f"flce[chunk_rows={n}]", latency_ms=float(n)) for n in (16, 64, 32)]
    (joined,) = traces(figure("pareto", rows), "settings of flce")
    assert joined["x"] == [16.0, 32.0, 64.0]


def test_shape_map_names_the_winner_of_each_shape(make_result: MakeResult) -> None:
    def at(tokens: int, contender: str, ratio: float, **more: Any) -> Result:
        case = f"N{tokens}-H4096-V128256-bfloat16"
        return make_result(contender, tokens=tokens, case=case, ratio_to_baseline=ratio, **more)

    drawn = figure(
        "shape-map",
        [
            at(64, "flce", 0.5),
            at(64, "liger", 0.8),
            at(128, "flce", 0.5, grade="poor"),
            at(128, "liger", 0.8),
            at(256, "flce", 0.5, outcome="wrong"),
        ],
    )
    (fastest,) = traces(drawn, "fastest")
    assert fastest["text"] == [["flce@1 0.500×"], ["liger@1 0.800×"], [""]]
    assert [row[0] for row in fastest["z"]][:1] == [-1.0]
    assert drawn["layout"]["yaxis"]["ticktext"] == ["N64", "N128", "N256"]
    assert drawn["layout"]["xaxis"]["ticktext"] == ["H4096 V128256"]
    (ours,) = traces(drawn, "flce@1")
    assert ours["text"] == [["0.500×"], ["0.500× poor"], [""]]
    gaps = {trace["yaxis"]: (trace["y"], trace["text"]) for trace in traces(drawn, "gaps")}
    assert gaps == {
        "y": ([2], ["none ran"]), "y2": ([2], ["wrong"]), "y3": ([2], ["not measured"]),
    }  # fmt: skip


def test_shape_map_shows_one_pass_and_says_what_it_leaves_out(make_result: MakeResult) -> None:
    rows = [make_result(), make_result("liger"), make_result(**{"pass": "forward"})]
    title = figure("shape-map", rows)["layout"]["title"]["text"]
    assert "left out: 1 result of other passes and settings" in title
    assert "forward + backward, bfloat16" in title


def test_history_orders_versions_by_number_and_draws_older_results_faint(
    make_result: MakeResult,
) -> None:
    def release(version: str, ratio: float, day: int) -> Result:
        return make_result(
            "liger",
            id=f"run-{version}-{day}",
            version=version,
            ratio_to_baseline=ratio,
            ended_at=f"2026-11-{day:02d}T00:00:00Z",
        )

    drawn = figure(
        "history",
        [
            release("0.10.0", 0.5, 1),
            release("0.9.0", 0.7, 2),
            release("0.9.0", 0.8, 3),
            make_result("liger", version="git-0123456789ab", ratio_to_baseline=0.4),
            make_result("liger", version="0.8.0", outcome="wrong"),
        ],
    )
    (line,) = traces(drawn, "liger")
    assert drawn["layout"]["xaxis"]["ticktext"] == ["0.9.0", "0.10.0", "git-0123456789ab"]
    assert (line["x"], line["y"]) == ([0, 1, 2], [0.8, 0.5, 0.4])
    (older,) = traces(drawn, "older results")
    assert (older["x"], older["y"]) == ([0], [0.7])
    assert traces(drawn, "gaps")[0]["text"] == ["wrong: liger@0.8.0"]
    assert drawn["layout"]["yaxis"]["title"]["text"] == "time / baseline (lower is better)"


def test_history_of_an_interpreted_result_has_no_line(make_result: MakeResult) -> None:
    drawn = figure("history", [make_result(flags=["interpreted"])])
    assert traces(drawn, "flce") == []
    assert "no speed" in str(traces(drawn, "gaps")[0]["text"])
