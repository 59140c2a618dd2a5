"""Figures by their JSON: axes with unit and direction, gaps by name, devices never mixed."""

import json
import math
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import plotly.graph_objects as go
import pytest

from lossbench.service.contract.errors import UnknownNameError
from lossbench.service.contract.result import CellView, Result
from lossbench.service.contract.run import SampleBlock
from lossbench.service.plots import FIGURES, figure, gaps_of
from lossbench.service.plots.samples import samples

MakeResult = Callable[..., Result]
Figure = dict[str, Any]


def texts(drawn: Figure) -> list[str]:
    """Every text of every trace."""
    return [
        str(text) for trace in drawn["data"] for text in trace.get("text", []) if text is not None
    ]


def labels(drawn: Figure) -> list[str]:
    """Tick labels of every panel, in order."""
    layout = drawn["layout"]
    return [
        text.replace("<br>", "")
        for name, axis in layout.items()
        if name.startswith("yaxis")
        for text in axis.get("ticktext", [])
    ]


def traces(drawn: Figure, name: str) -> list[dict[str, Any]]:
    """Traces of that name."""
    return [trace for trace in drawn["data"] if trace["name"] == name]


@pytest.fixture
def mixed(make_result: MakeResult) -> list[Result]:
    """Four contenders with a number and one of each other outcome."""
    return [
        make_result("torch-naive", version="2.11.0", latency_ms=42.0, ratio_to_baseline=1.0),
        make_result("flce", latency_ms=39.6),
        make_result("flce[chunk_rows=2048]", latency_ms=43.0),
        make_result("liger", version="0.8.5", latency_ms=56.0, grade="coarse"),
        make_result("torch-upcast", version="2.11.0", outcome="out_of_memory"),
        make_result("cce", version="25.1", outcome="wrong"),
        make_result("quack", version="0.2", outcome="unsupported"),
        make_result("fla", version="0.3", outcome="timed_out"),
    ]


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_is_a_plotly_figure_and_plain_json(name: str, mixed: list[Result]) -> None:
    drawn = figure(name, mixed)
    go.Figure(drawn)
    json.dumps(drawn, allow_nan=False)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("latency", "time per call, ms (lower is better)"),
        ("memory", "workspace, GiB (lower is better)"),
        ("error", "relative L2, log (lower is better)"),
        ("floor", "time / floor (lower is better)"),
    ],
)
def test_axis_title_has_quantity_unit_and_direction(
    name: str, wanted: str, mixed: list[Result]
) -> None:
    layout = figure(name, mixed)["layout"]
    titles = [axis["title"]["text"] for key, axis in layout.items() if key.startswith("xaxis")]
    assert titles[0] == wanted
    assert all("lower is better" in title for title in titles)


@pytest.mark.parametrize("name", FIGURES)
def test_other_outcomes_are_named_gaps_not_zeros(name: str, mixed: list[Result]) -> None:
    shown = " | ".join(texts(figure(name, mixed)))
    for words in ("out of memory", "wrong", "unsupported", "timed out"):
        assert words in shown


@pytest.mark.parametrize("name", FIGURES)
def test_gpu_and_cpu_never_share_a_figure(
    name: str, mixed: list[Result], make_result: MakeResult
) -> None:
    cpu = [make_result("cpu-only", device_type="cpu", device_name="a CPU", flags=["cpu"])]
    drawn = figure(name, [*cpu, *mixed])
    assert not any("cpu-only" in label for label in labels(drawn))
    assert "left out: 1 result of a CPU (CPU)" in drawn["layout"]["title"]["text"]
    assert "NVIDIA H200 (GPU)" in drawn["layout"]["title"]["text"]


def test_rows_are_sorted_and_gaps_come_last(mixed: list[Result]) -> None:
    found = labels(figure("latency", mixed))
    assert found[:4] == [
        "flce@1", "torch-naive@2.11.0", "flce@1[chunk_rows=2048]", "liger@0.8.5",
    ]  # fmt: skip
    assert len(found) == 8


def test_one_colour_per_kernel_and_a_pattern_per_version(mixed: list[Result]) -> None:
    marker = traces(figure("latency", mixed), "time per call")[0]["marker"]
    colours, shapes = marker["color"], marker["pattern"]["shape"]
    assert colours[0] == colours[2]
    assert shapes[0] != shapes[2]
    assert len({colours[0], colours[1], colours[3]}) == 3
    alone = traces(figure("latency", mixed[1:2]), "time per call")[0]["marker"]
    assert alone["color"][0] == colours[0]


def test_latency_draws_quartiles_ratio_and_floor(mixed: list[Result]) -> None:
    drawn = figure("latency", mixed)
    bars = traces(drawn, "time per call")[0]
    assert bars["error_x"]["array"][0] == pytest.approx(41.0 - 39.6)
    assert "  39.6 · 0.952×" in texts(drawn)
    assert "  42.0 · baseline" in texts(drawn)
    assert set(traces(drawn, "floor")[0]["x"]) == {37.0}


def test_interpreted_result_has_no_latency(make_result: MakeResult) -> None:
    drawn = figure("latency", [make_result("flce", flags=["interpreted"])])
    assert traces(drawn, "time per call") == []
    assert "  no speed: Triton interpreter" in texts(drawn)


def test_memory_axis_turns_log_above_a_spread_of_20(make_result: MakeResult) -> None:
    near = [make_result("a", workspace_bytes=2**30), make_result("b", workspace_bytes=19 * 2**30)]
    far = [make_result("a", workspace_bytes=2**30), make_result("b", workspace_bytes=21 * 2**30)]
    assert "type" not in figure("memory", near)["layout"]["xaxis"]
    assert figure("memory", far)["layout"]["xaxis"]["type"] == "log"


def test_memory_hover_splits_the_peaks(make_result: MakeResult) -> None:
    hover = traces(figure("memory", [make_result()]), "workspace")[0]["hovertext"][0]
    for words in ("forward peak 4.00 GiB", "held 1.00 GiB", "backward peak 2.00 GiB"):
        assert words in hover


def test_memory_of_zero_is_a_number_not_a_gap(make_result: MakeResult) -> None:
    assert "  0 B" in texts(figure("memory", [make_result(workspace_bytes=0)]))


def test_error_grade_of_an_output_is_its_own_shape_and_word(make_result: MakeResult) -> None:
    errors = [
        {"output": "dx", "relative_l2": 1e-3, "ratio": 1.0, "max_abs": 1e-6},
        {"output": "dw", "relative_l2": 3e-3, "ratio": 3.0, "max_abs": 1e-6},
    ]
    drawn = figure("error", [make_result(grade="coarse", errors=errors)])
    (dw,), (dx,) = traces(drawn, "dW"), traces(drawn, "dx")
    assert (dw["marker"]["symbol"], dx["marker"]["symbol"]) == (["triangle-up"], ["circle"])
    assert "coarse" in dw["text"][0]
    assert "exact" in dx["text"][0]


def test_error_has_a_panel_and_a_yardstick_for_each_output(mixed: list[Result]) -> None:
    drawn = figure("error", mixed)
    assert len(traces(drawn, "yardstick")) == 3
    assert set(traces(drawn, "yardstick")[0]["x"]) == {1.12e-3}
    assert drawn["layout"]["xaxis"]["type"] == "log"


def test_error_of_zero_stays_on_the_log_axis(make_result: MakeResult) -> None:
    exact = [{"output": "dx", "relative_l2": 0.0, "ratio": None, "max_abs": 0.0}]
    drawn = figure("error", [make_result(errors=exact)])
    assert all(value > 0 for value in traces(drawn, "dx")[0]["x"])


def test_floor_bars_start_at_one(mixed: list[Result]) -> None:
    drawn = figure("floor", mixed)
    assert traces(drawn, "time over floor")[0]["base"] == 1.0
    assert traces(drawn, "floor")[0]["x"] == [1.0, 1.0]


def test_newest_result_of_a_cell_is_drawn_and_older_ones_counted(make_result: MakeResult) -> None:
    later = make_result(latency_ms=50.0, ended_at="2026-12-01T00:00:00Z")
    drawn = figure("latency", [later, make_result(latency_ms=40.0)])
    assert traces(drawn, "time per call")[0]["x"] == [50.0]
    assert "1 older result" in drawn["layout"]["title"]["text"]


def test_contender_missing_on_a_case_is_not_measured(make_result: MakeResult) -> None:
    other = make_result("liger", version="0.8.5", case="N4096-H4096-V128256-bfloat16")
    assert "  not measured" in texts(figure("latency", [make_result(), other]))


def test_cell_without_a_result_is_named_by_its_outcome(
    make_result: MakeResult, make_cell: Callable[..., CellView]
) -> None:
    refused = make_cell(
        "quack@0.2", 1, outcome="unsupported", reason="no option bias", result_id=None
    )
    drawn = figure("latency", [make_result()], gaps_of([refused]))
    assert "  unsupported" in texts(drawn)
    assert "quack@0.2" in labels(drawn)


@pytest.mark.parametrize("name", FIGURES)
def test_no_results_give_an_empty_figure(name: str) -> None:
    drawn = figure(name, [])
    go.Figure(drawn)
    assert "no results yet" in drawn["layout"]["title"]["text"]


@pytest.mark.parametrize("name", FIGURES)
def test_no_trace_has_more_than_2000_points(name: str, make_result: MakeResult) -> None:
    many = [
        make_result(f"k{kernel}", case=f"N{n}-H4096-V128256-bfloat16", id=f"run-{n}-{kernel}")
        for n in range(1, 101)
        for kernel in range(30)
    ]
    drawn = figure(name, many)
    assert max(len(trace.get("x", [])) for trace in drawn["data"]) <= 2000
    assert "the table has all" in drawn["layout"]["title"]["text"]


def test_samples_are_thinned_to_the_ends_of_each_stretch() -> None:
    times = [1.0] * 9000
    times[4321], times[7777] = 9.0, 0.1
    block = SampleBlock.model_validate(
        {"arm": "contender", "process": 0, "latency_ms": times, "visit_sizes": [9000]}
    )
    trace = samples([block])["data"][0]
    assert 1000 < len(trace["x"]) <= 2000
    assert trace["x"] == sorted(trace["x"])
    drawn = dict(zip(trace["x"], trace["y"], strict=True))
    assert (drawn[4322], drawn[7778]) == (9.0, 0.1)
    assert trace["x"][-1] > 8990


def test_labels_cannot_carry_markup(make_result: MakeResult) -> None:
    drawn = figure("latency", [make_result(device_name="<a href='x'>GPU</a>")])
    assert "<a href" not in json.dumps(drawn)


def test_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(UnknownNameError, match="latency, memory, error, floor"):
        figure("latencey", [])


def test_domains_lie_inside_the_figure(mixed: list[Result]) -> None:
    for name in FIGURES:
        for key, axis in figure(name, mixed)["layout"].items():
            if key.startswith("yaxis"):
                low, high = axis["domain"]
                assert 0 <= low < high <= 1
                assert math.isfinite(low + high)


def test_importing_the_figures_does_not_import_plotly() -> None:
    code = "import sys, lossbench.service.plots; sys.exit('plotly' in sys.modules)"
    assert subprocess.run([sys.executable, "-P", "-c", code], check=False).returncode == 0
