"""Steps of a lineage in words, arrows, chunk errors, drift, sparklines, boxes: by their numbers."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import plotly.graph_objects as go
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lossbench.service.contract.run import SampleBlock
from lossbench.service.contract.words import Arm
from lossbench.service.plots.arrows import MOST_ARROWS, arrows
from lossbench.service.plots.case_labels import case_labels
from lossbench.service.plots.chunk_errors import ChunkError, chunk_errors, chunks_of
from lossbench.service.plots.drift import (
    BaselineTime,
    DriftLine,
    Seen,
    detectable_by_case,
    drift_figure,
    drift_sentence,
)
from lossbench.service.plots.lineages import Lineage, LineagePoint, lineage_figure
from lossbench.service.plots.log_scale import ERROR, FLOOR
from lossbench.service.plots.sparkline import EDGE, HEIGHT, WIDTH, SparkPoint, spark
from lossbench.service.plots.steps import between, step_sentences, steps_of
from lossbench.service.plots.strips import boxes

START = datetime(2026, 11, 1, tzinfo=UTC)
CASE = "N8192-H4096-V128256-bfloat16 fwd+bwd"


def lineage(*points: tuple[str, float, float], **changed: Any) -> Lineage:
    """Versions with ratio and half of its interval, measured one day after another."""
    return Lineage(
        "liger",
        "",
        [
            LineagePoint(
                f"run-{place}",
                version,
                START + timedelta(days=place),
                "ok",
                ratio=ratio,
                ratio_low=ratio - half,
                ratio_high=ratio + half,
                baseline="torch-naive",
                **changed,
            )
            for place, (version, ratio, half) in enumerate(points)
        ],
    )


KNOWN = ["0.6.0", "0.6.2", "0.6.5", "0.8.0", "0.8.4", "0.8.5"]


def test_slowdown_and_its_repair_are_one_sentence_with_the_gap() -> None:
    told = step_sentences(
        lineage(("0.6.0", 1.33, 0.01), ("0.6.5", 3.6, 0.02), ("0.8.5", 1.33, 0.01)), KNOWN
    )
    assert told == [
        "liger got slower from 0.6.0 to 0.6.5: 1.33× → 3.60× the time of torch-naive, repaired by "
        "0.8.5 (1.33×). Not measured in between: 0.6.2, 0.8.0, 0.8.4."
    ]


def test_half_a_repair_is_none() -> None:
    told = step_sentences(lineage(("1", 1.0, 0.01), ("2", 2.0, 0.01), ("3", 1.5, 0.01)))
    assert told[0].endswith("and no later version measured here repaired it.")
    assert told[1].startswith("liger got faster from 2 to 3: 2.00× → 1.50×")


def test_step_within_the_intervals_is_no_step() -> None:
    assert steps_of(lineage(("1", 1.0, 0.05), ("2", 1.08, 0.05))) == []
    assert step_sentences(lineage(("1", 1.0, 0.05))) == []


def test_versions_in_another_order_than_measured_make_the_same_sentence() -> None:
    points = [("0.6.0", 1.0, 0.01), ("0.8.5", 1.0, 0.01), ("0.6.5", 3.0, 0.01)]
    assert step_sentences(lineage(*points)) == step_sentences(lineage(*sorted(points)))


def test_between_names_known_versions_only() -> None:
    assert list(between("0.6.0", "0.8.0", KNOWN)) == ["0.6.2", "0.6.5"]
    assert list(between("0.6.0", "abc", KNOWN)) == []


def test_rule_stands_where_the_environment_changed() -> None:
    found = lineage(("1", 1.0, 0.1), ("2", 1.0, 0.1), ("3", 1.0, 0.1))
    moved = Lineage(
        "liger",
        "",
        [
            point._replace(environment_id="b" if point.version == "3" else "a")
            for point in found.points
        ],
    )
    drawn = lineage_figure([moved], "here")
    rules = [trace for trace in drawn["data"] if trace["name"] == "environment changed"]
    assert len(rules) == 3
    assert [trace["x"][0] for trace in rules] == [1.5] * 3
    assert not any(t["name"] == "environment changed" for t in lineage_figure([found], "")["data"])


def named(drawn: dict[str, Any], name: str) -> dict[str, Any]:
    return next(trace for trace in drawn["data"] if trace["name"] == name)


def test_arrow_goes_from_base_to_candidate_and_says_which_way() -> None:
    pairs = [(f"{CASE}", 4.0, 1.5), (f"{CASE}-2", 1.1, 1.3), ("none", None, 1.0)]
    drawn = arrows(pairs, FLOOR, "old", "new")
    assert drawn is not None
    go.Figure(drawn)
    assert named(drawn, "less")["x"] == [4.0, 1.5, None]
    assert named(drawn, "more")["x"] == [1.1, 1.3, None]
    assert named(drawn, "rule")["x"] == [1.0, 1.0]
    assert drawn["layout"]["xaxis"]["title"]["text"] == "time / floor (lower is better)"
    assert "1 case without both not drawn" in drawn["layout"]["title"]["text"]
    assert arrows([("none", None, 1.0)], ERROR, "old", "new") is None


def test_arrows_are_bounded_to_those_that_moved_most() -> None:
    pairs = [(f"case {n}", 1.0, 1.0 + n / 100) for n in range(1, MOST_ARROWS + 30)]
    drawn = arrows(pairs, ERROR, "a", "b")
    assert drawn is not None
    assert len(named(drawn, "words")["y"]) == MOST_ARROWS
    assert min(x for x in named(drawn, "words")["x"]) == pytest.approx(1.30)


@given(st.lists(st.floats(0.01, 1000.0), min_size=2, max_size=20))
def test_every_arrow_lies_on_its_axis(values: list[float]) -> None:
    pairs = [(f"case {n}", a, b) for n, (a, b) in enumerate(pairwise(values))]
    drawn = arrows(pairs, FLOOR, "a", "b")
    assert drawn is not None
    axis = drawn["layout"]["xaxis"]
    low, high = (10**end for end in axis["range"])
    assert all(low < value < high for value in values[:1])
    assert len(axis["tickvals"]) >= 2


def test_labels_say_once_what_all_cases_share() -> None:
    found = case_labels(["N1-H2-V3-bfloat16 fwd", "N4-H2-V3-bfloat16-recipe=trained fwd"])
    assert found.shared == "bfloat16 fwd"
    assert found.lines == ["N1-H2-V3", "N4-H2-V3<br>recipe=trained"]
    assert case_labels(["<b>"]).lines == ["&lt;b&gt;"]


@pytest.mark.parametrize(
    ("params", "chunks"),
    [
        ("chunk_rows=1024", 8),
        ("chunk_rows=1000", 9),
        ("chunks=4", 4),
        ("split=fixed", None),
        ("", None),
    ],
)
def test_number_of_chunks_comes_from_the_params(params: str, chunks: int | None) -> None:
    assert chunks_of(params, 8192) == chunks


def chunked(chunks: int, ratio: float, version: str = "1") -> ChunkError:
    return ChunkError(f"flce@{version}", "flce", version, CASE, chunks, ratio, "fair")


def test_chunk_line_joins_settings_of_one_version_in_order() -> None:
    drawn = chunk_errors([chunked(8, 1.3), chunked(2, 1.0), chunked(4, 9.0, "2")])
    assert drawn is not None
    go.Figure(drawn)
    line = named(drawn, f"flce@1, {CASE}")
    assert (line["x"], line["y"]) == ([2, 8], [1.0, 1.3])
    assert not any("flce@2" in trace["name"] for trace in drawn["data"])
    assert drawn["layout"]["yaxis"]["title"]["text"] == "error / torch's own (lower is better)"
    assert chunk_errors([chunked(8, 1.3)]) is None


def times(*values: float, environments: str = "aaaa") -> DriftLine:
    return DriftLine(
        "torch-naive case",
        [
            BaselineTime(START + timedelta(hours=n), value, f"run-{n}", environments[n])
            for n, value in enumerate(values)
        ],
    )


def test_drift_is_over_the_median_with_a_rule_at_a_new_environment() -> None:
    line = times(10.0, 10.0, 10.2, 9.9, environments="aabb")
    assert line.relative == [1.0, 1.0, 1.02, pytest.approx(0.99)]
    assert "lie within −1.0 % and +2.0 % of the usual one (4 times, 1 case)" in drift_sentence(
        [line]
    )
    drawn = drift_figure([line], "GPU")
    go.Figure(drawn)
    assert named(drawn, "environment")["x"][0] == "2026-11-01 02:00:00"
    assert drawn["layout"]["yaxis"]["title"]["text"] == "time / median (1 is usual)"
    assert "Too few" in drift_sentence([])


def test_detectable_effect_is_the_median_by_case_least_first() -> None:
    seen = [
        Seen(e, 8, case, START) for case, e in (("b", 0.02), ("b", 0.04), ("a", 0.05), ("b", 0.03))
    ]
    assert detectable_by_case(seen) == [("b", 3, 0.03), ("a", 1, 0.05)]


def test_spark_starts_at_zero_and_ends_at_its_last_point() -> None:
    drawn = spark([SparkPoint(2.0, 1.9, 2.0), SparkPoint(1.0, 0.9, 1.1)])
    assert drawn is not None
    middle = HEIGHT - EDGE - (HEIGHT - 2 * EDGE) / 2
    assert drawn.line == f"{EDGE},{EDGE} {WIDTH - EDGE},{middle:g}"
    assert drawn.last == (WIDTH - EDGE, middle)
    assert len(drawn.band.split()) == 4
    assert spark([SparkPoint(1.0)]) is None
    bare = spark([SparkPoint(1.0), SparkPoint(2.0, 1.0, 3.0)])
    assert bare is not None
    assert bare.band == ""


def test_boxes_share_one_scale_and_leave_out_the_baseline() -> None:
    blocks = [
        SampleBlock(arm=arm, process=0, latency_ms=values, visit_sizes=(len(values),))
        for arm, values in (
            (Arm.CONTENDER, (1.0, 2.0, 3.0, 4.0, 5.0)),
            (Arm.BASELINE, (100.0,)),
        )
    ]
    slow = SampleBlock(arm=Arm.CONTENDER, process=1, latency_ms=(9.0,), visit_sizes=(1,))
    found = boxes([("base", blocks), ("cand", [slow])])
    assert [(box.side, box.samples, box.median) for box in found] == [
        ("base", 5, 3.0), ("cand", 1, 9.0),
    ]  # fmt: skip
    assert found[0].across[0] < found[0].across[2] < found[1].across[2]
    assert boxes([]) == []
