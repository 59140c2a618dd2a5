"""Figures of the pages of maps, comparisons and history, by their JSON."""

import math
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import plotly.graph_objects as go
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lossbench.service.contract.words import Flag, Grade, Outcome
from lossbench.service.plots.contender_maps import contender_maps, map_markdown
from lossbench.service.plots.diverging import MOST_BARS, Bar, diverging
from lossbench.service.plots.imported_times import Imported, imported_figure, imported_sentences
from lossbench.service.plots.lineages import (
    Change,
    Lineage,
    LineagePoint,
    lineage_figure,
    lineage_markdown,
)
from lossbench.service.plots.log_scale import FLOOR, RATIO
from lossbench.service.plots.pareto import Mark, draw_front
from lossbench.service.plots.planes import Planes
from lossbench.service.plots.side_by_side import MOST_LINES, Dot, Line, side_by_side
from lossbench.service.plots.spots import level, spot, winner_of
from lossbench.service.plots.versions import version_order

MOST_POINTS = 2000
START = datetime(2026, 11, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Entry:
    contender: str = "flce@1"
    result_id: str = "run-1"
    outcome: Outcome = Outcome.OK
    latency_ms: float | None = 1.0
    ratio_to_baseline: float | None = 0.5
    ratio_low: float | None = 0.49
    ratio_high: float | None = 0.51
    grade: Grade | None = Grade.EXACT
    flags: tuple[Flag, ...] = ()
    may_win: bool = True


@dataclass(frozen=True)
class Shape:
    entries: tuple[Entry, ...]
    tokens: int = 64
    hidden: int = 4096
    vocab: int = 128256
    winner: str | None = "flce@1"
    told_apart: bool | None = True


def traces(drawn: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return [trace for trace in drawn["data"] if trace["name"] == name]


def test_level_rises_with_the_ratio_and_ends_at_one() -> None:
    ratios = [0.01, 0.5, 0.7, 0.99, 1.0, 1.01, 1.5, 2.0, 100.0]
    levels = [level(ratio) for ratio in ratios]
    assert levels == sorted(levels)
    assert (levels[0], level(1.0), levels[-1]) == (-1.0, 0.0, 1.0)
    assert level(0.8) == pytest.approx(-level(1.25))


@pytest.mark.parametrize(
    ("entry", "status", "words"),
    [
        (Entry(), "ok", "0.500×"),
        (Entry(outcome=Outcome.WRONG), "wrong", "wrong"),
        (Entry(outcome=Outcome.OUT_OF_MEMORY), "out_of_memory", "out of memory"),
        (Entry(ratio_to_baseline=None), "not_measured", "no ratio"),
        (
            Entry(ratio_to_baseline=None, flags=(Flag.INTERPRETED,)),
            "not_measured",
            "no speed: Triton interpreter",
        ),
    ],
)
def test_spot_has_a_number_or_says_why_not(entry: Entry, status: str, words: str) -> None:
    found = spot(entry)
    assert (found.status, found.words) == (status, words)
    assert (found.level is None) == (status != "ok")


def test_spot_that_does_not_count_is_never_faster() -> None:
    found = spot(Entry(may_win=False, grade=Grade.POOR))
    assert found.way == ""
    assert found.warning == "fast but inexact"
    assert spot(Entry(may_win=False, flags=(Flag.SUSPECT,))).warning == "suspect"
    assert spot(Entry()).warning == ""


def test_winner_says_why_there_is_none() -> None:
    poor = Entry(may_win=False, grade=Grade.POOR)
    broken = Entry(outcome=Outcome.WRONG)
    assert winner_of(Shape((poor,), winner=None)).words == "none exact enough"
    assert winner_of(Shape((broken,), winner=None)).words == "all wrong"
    full = Entry(outcome=Outcome.OUT_OF_MEMORY)
    assert winner_of(Shape((broken, full), winner=None)).words == "none ran"


def test_maps_mark_every_kind_of_gap_apart() -> None:
    kinds = (Outcome.OUT_OF_MEMORY, Outcome.WRONG, Outcome.UNSUPPORTED)
    shapes = [
        Shape((Entry(outcome=outcome),), tokens=64 * n, winner=None)
        for n, outcome in enumerate(kinds, 1)
    ]
    shapes.append(Shape((Entry("liger@1"),), tokens=1024, winner="liger@1"))
    drawn = contender_maps(shapes, ["flce@1", "liger@1"], "H200")
    ours = next(t for t in traces(drawn, "gaps") if t["xaxis"] == "x2")
    assert ours["text"] == ["■", "✗", "–", "·"]
    (fastest,) = traces(drawn, "fastest that counts")
    assert fastest["z"] == [[None], [None], [None], [-1.0]]
    assert fastest["text"][3] == ["▼0.500"]
    go.Figure(drawn["data"], {k: v for k, v in drawn["layout"].items() if k != "meta"})


def test_map_markdown_names_ties_and_gaps() -> None:
    text = map_markdown([Shape((Entry(),), told_apart=False)], "H200", "bfloat16")
    assert "| 64 | `flce@1` 0.500× (0.490 – 0.510), exact ≈ |" in text


def test_bars_are_sorted_and_the_middle_is_left_out_first() -> None:
    bars = [Bar(f"case {n}", 0.5 + n / 100, None, None, "", exact=True) for n in range(101)]
    drawn = diverging(bars[::-1], "base", "cand", without=2)
    (bar,) = traces(drawn, "ratio")
    assert bar["x"] == sorted(bar["x"])
    assert len(bar["x"]) == MOST_BARS
    assert drawn["layout"]["yaxis"]["ticktext"][0] == "case 0"
    assert drawn["layout"]["yaxis"]["ticktext"][-1] == "case 100"
    assert "2 cases without a ratio" in drawn["layout"]["title"]["text"]
    go.Figure(drawn["data"], drawn["layout"])


def test_bars_have_signs_and_say_inexact() -> None:
    bars = [
        Bar("a", 0.5, 0.49, 0.51, "faster", exact=True),
        Bar("b", 2.0, 1.9, 2.1, "slower", exact=False),
    ]
    drawn = diverging(bars, "base", "cand")
    assert [w.strip() for w in traces(drawn, "words")[0]["text"]] == ["▼ 0.500×", "▲ 2.00× inexact"]
    low, high = drawn["layout"]["xaxis"]["range"]
    assert low == -high
    assert high > 1


def point(version: str | None, day: int, ratio: float | None, **more: Any) -> LineagePoint:
    return LineagePoint(
        f"run-{version}-{day}-{more.pop('n', 0)}", version, START + timedelta(days=day),
        "ok" if ratio else "wrong", 10.0, ratio, ratio and ratio * 0.9, ratio and ratio * 1.1,
        2**30, 1.2, "fair", ("noisy",), "torch-naive",
    )._replace(**more)  # fmt: skip


def test_lineage_draws_newest_of_each_version_and_older_ones_faint() -> None:
    line = Lineage(
        "liger", "", [point("0.10.0", 1, 0.5), point("0.9.0", 2, 0.7), point("0.9.0", 3, 0.8)]
    )
    drawn = lineage_figure([line], "here")
    time, memory, error = traces(drawn, "liger")
    assert (time["x"], time["y"]) == ([0, 1], [0.8, 0.5])
    assert memory["y"] == [1.0, 1.0]
    assert error["y"] == [1.2, 1.2]
    assert traces(drawn, "older results")[0]["y"] == [0.7]
    layout = drawn["layout"]
    assert layout["xaxis"]["ticktext"] == ["0.9.0", "0.10.0"]
    titles = [layout[f"yaxis{n}"]["title"]["text"] for n in ("", "2", "3")]
    assert titles == [
        "time / baseline (lower is better)",
        "workspace, GiB (lower is better)",
        "worst error / torch's own (lower is better)",
    ]
    assert layout["meta"]["wide"]["xaxis2"]["domain"][0] > 0
    go.Figure(drawn["data"], {k: v for k, v in layout.items() if k != "meta"})


def test_lineage_names_versions_without_a_number() -> None:
    bad = point("2", 2, None)._replace(latency_ms=None, workspace_bytes=None, error_ratio=None)
    drawn = lineage_figure([Lineage("liger", "", [point("1", 1, 0.5), bad])], "here")
    assert [trace["text"] for trace in traces(drawn, "gaps")] == [["wrong: 2"]] * 3
    blind = point("3", 3, 0.5)._replace(error_ratio=None)
    drawn = lineage_figure([Lineage("liger", "", [blind])], "here")
    assert [trace["text"] for trace in traces(drawn, "gaps")] == [["not measured: 3"]]
    assert "| `liger` | 2 |" in lineage_markdown([Lineage("liger", "", [bad])], "here")


def test_changes_are_marked_at_the_version_that_brought_them_with_state_and_direction() -> None:
    line = Lineage("liger", "", [point("1", 1, 0.5), point("2", 2, 0.8), point("3", 3, 0.4)])
    changes = [
        Change("liger", "", "time", "2", True, "confirmed"),
        Change("liger", "", "time", "3", False, "candidate"),
        Change("liger", "", "error", "9", True, "confirmed"),
        Change("liger", "impl=triton", "time", "2", True, "confirmed"),
        Change("cce", "", "memory", "2", True, "confirmed"),
    ]
    (marks,) = traces(lineage_figure([line], "here", changes), "changes")
    assert (marks["xaxis"], marks["x"], marks["y"]) == ("x", [1, 2], [0.8, 0.4])
    assert marks["text"] == [" confirmed", " candidate"]
    assert marks["marker"]["symbol"] == ["triangle-up-open", "triangle-down-open"]
    assert traces(lineage_figure([line], "here"), "changes") == []


@pytest.mark.parametrize("lines", [1, 3, 20])
@pytest.mark.parametrize("scale", [{}, {"type": "log"}])
def test_words_take_a_strip_above_every_point(lines: int, scale: dict[str, Any]) -> None:
    planes = Planes("title", [])
    axes = planes.add("panel", {}, {**scale, "range": [-1.0, 1.0]})
    planes.words(axes, 1.0, ["not measured: x"] * lines)
    drawn = planes.figure()
    low, high = drawn["layout"]["yaxis"]["range"]
    text = traces(drawn, "gaps")[0]["text"][0].split("<br>")
    height_px = 14 * min(lines, 7)
    # what stood at the old end of the axis is now below the lowest line of words
    assert (1.0 - low) / (high - low) == pytest.approx(1 - height_px / 250)
    assert len(text) == min(lines, 7)
    assert (text[-1] == "and 14 more") == (lines == 20)


def test_no_trace_has_more_than_2000_points() -> None:
    many = [point("1", n % 28, 0.5, n=n) for n in range(5000)]
    figures = [
        lineage_figure([Lineage("liger", "", many)], "here"),
        imported_figure([Imported("there", "forward", "A100", [Lineage("liger", "", many)])]),
    ]
    for drawn in figures:
        assert max(len(trace["x"]) for trace in drawn["data"]) <= MOST_POINTS


def test_published_times_are_told_by_version_over_cases_and_never_as_a_verdict() -> None:
    def published(*times: tuple[str, float]) -> Lineage:
        points = [point(v, day, 1.0)._replace(latency_ms=ms) for day, (v, ms) in enumerate(times)]
        return Lineage("liger", "", points)

    groups = [
        Imported("a", "forward", "A100", [published(("0.4.2", 108.0), ("0.2.1", 100.0))]),
        Imported("b", "forward", "A100", [published(("0.2.1", 50.0), ("0.4.2", 49.0))]),
        Imported("c", "backward", "A100", [published(("0.2.1", 50.0))]),
    ]
    assert imported_sentences(groups) == [
        "Published: liger 0.4.2 takes 0.980× to 1.08× the time of 0.2.1 (forward, A100, 2 cases). "
        "Not measured here, so no verdict."
    ]


def test_imported_results_are_named_as_such() -> None:
    line = Lineage("liger", "", [point("1", 1, 0.5)])
    drawn = imported_figure([Imported("N64", "forward", "A100", [line])])
    assert "on A100" in drawn["layout"]["title"]["text"]
    assert drawn["layout"]["annotations"][0]["text"] == "N64, forward"
    both = [Imported("N64", "forward", device, [line]) for device in ("A100", "H100")]
    headings = [a["text"] for a in imported_figure(both)["layout"]["annotations"]]
    assert headings == ["N64, forward, A100", "N64, forward, H100"]
    assert "Imported, not measured here" in drawn["layout"]["title"]["text"]
    assert traces(drawn, "liger")[0]["line"]["dash"] == "dot"


def test_versions_are_in_the_order_of_their_numbers_then_by_age() -> None:
    seen = [("0.10.0", START), ("git-b", START), ("git-a", START + timedelta(1)), ("0.9", START)]
    assert version_order(seen) == ["0.9", "0.10.0", "git-b", "git-a"]
    assert version_order([(None, START)]) == ["–"]


@dataclass
class Crowd:
    """Marks of one panel."""

    marks: list[Mark] = field(default_factory=list)

    def add(self, label: str, time: float, memory: int, grade: Grade = Grade.EXACT) -> None:
        counts = grade in (Grade.EXACT, Grade.FAIR)
        self.marks.append(Mark(label, "flce", "1", "", time, memory, grade, counts))

    def words(self) -> str:
        planes = Planes("", ())
        draw_front(planes, "here", self.marks, ())
        gaps = traces(planes.figure(), "gaps")
        return gaps[0]["text"][0] if gaps else ""


def test_front_names_what_only_its_error_keeps_off() -> None:
    crowd = Crowd()
    crowd.add("quick", 10, 100)
    crowd.add("small", 20, 10)
    crowd.add("beaten", 30, 200, Grade.POOR)
    assert crowd.words() == ""
    crowd.add("a", 5, 300, Grade.COARSE)
    crowd.add("b", 30, 1, Grade.POOR)
    crowd.add("c", 15, 50, Grade.POOR)
    assert crowd.words().split("<br>") == [
        "fast but inexact: a",
        "small but inexact: b",
        "good but inexact: c",
    ]


def test_front_with_no_workspace_at_all_can_be_drawn_on_a_log_axis() -> None:
    planes = Planes("", ())
    crowd = Crowd()
    crowd.add("none", 10, 0)
    crowd.add("much", 5, 2**33)
    draw_front(planes, "here", crowd.marks, ())
    drawn = planes.figure()
    assert drawn["layout"]["yaxis"]["type"] == "log"
    assert min(traces(drawn, "contenders")[0]["y"]) > 0
    assert "log scale" in drawn["layout"]["yaxis"]["title"]["text"]


def test_several_candidates_are_marks_on_one_line_a_case_with_whiskers() -> None:
    shape = "N8192-H{}-V32000-bfloat16 fwd+bwd"
    lines = [
        Line(shape.format(4096), [Dot(0.9, 0.88, 0.92), Dot(1.4, 1.3, 1.5, exact=False)]),
        Line(shape.format(2048), [Dot(0.5), None]),
        Line(shape.format(1024), [None, None]),
    ]
    drawn = side_by_side(lines, ["flce@1", "liger@0.8.5"], RATIO)
    assert drawn is not None
    (flce,), (liger,) = traces(drawn, "flce@1"), traces(drawn, "liger@0.8.5")
    assert (flce["x"], flce["y"]) == ([0.5, 0.9], [-0.125, 0.875])
    assert (liger["x"], liger["y"]) == ([1.4], [1.125])
    assert flce["error_x"]["array"] == pytest.approx([0.0, 0.02])
    assert liger["error_x"]["arrayminus"] == pytest.approx([0.1])
    assert flce["marker"]["symbol"] == ["circle", "circle"]
    assert liger["marker"]["symbol"] == ["square-open"]
    title = drawn["layout"]["title"]["text"]
    assert "● flce@1" in title
    assert "■ liger@0.8.5" in title
    assert "1 case without a number not drawn" in title
    assert drawn["layout"]["yaxis"]["ticktext"] == ["N8192-H2048-V32000", "N8192-H4096-V32000"]
    assert side_by_side(lines[2:], ["flce@1", "liger@0.8.5"], RATIO) is None


@given(
    st.lists(
        st.tuples(st.floats(0.01, 100), st.floats(0.01, 100)), min_size=1, max_size=60
    )
)  # fmt: skip
def test_lines_drawn_of_many_are_those_that_differ_most(
    numbers: list[tuple[float, float]],
) -> None:
    lines = [Line(f"case {i:02d}", [Dot(a), Dot(b)]) for i, (a, b) in enumerate(numbers)]
    drawn = side_by_side(lines, ["a", "b"], FLOOR)
    assert drawn is not None
    shown = set(drawn["layout"]["yaxis"]["ticktext"])
    assert len(shown) == min(len(lines), MOST_LINES)
    left_out = [line.spread for line in lines if line.label not in shown]
    drawn_least = min(line.spread for line in lines if line.label in shown)
    assert all(spread <= drawn_least for spread in left_out)
    low, high = drawn["layout"]["xaxis"]["range"]
    assert all(low <= math.log10(x) <= high for pair in numbers for x in pair if len(lines) <= 40)
