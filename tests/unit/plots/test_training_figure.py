"""The figure, the sentences and the table of a training, by their numbers."""

from typing import Any

import plotly.graph_objects as go
import pytest

from lossbench.service.api.training_records import (
    TrainingContender,
    TrainingCurve,
    TrainingCurvePoints,
)
from lossbench.service.plots.training import (
    MOST_LINES,
    training_figure,
    training_markdown,
    verdict_sentence,
)
from lossbench.service.statistics.training_verdict import CurveFinding, TrainingVerdict

CURVE = TrainingCurve(
    steps=(5, 10, 15),
    difference=(0.0, 0.01, None),
    rounding=(0.02, 0.02, 0.02),
    seeds=(0.2, 0.2, 0.2),
    finding=CurveFinding.INSIDE,
)


def contender(name: str, role: Any = "contender", **changed: Any) -> TrainingContender:
    values = dict.fromkeys(TrainingContender.model_fields)
    values |= {
        "contender": name, "role": role, "seeds": 2, "diverged": 0, "pairs": 2,
        "tokens_per_s": 5000.0, "peak_bytes": 2**30, "workspace_bytes": 2**28,
    }  # fmt: skip
    return TrainingContender.model_validate(values | changed)


def points(name: str, seed: int = 0) -> TrainingCurvePoints:
    return TrainingCurvePoints(
        run_id=f"trn-{name}-{seed}", contender=name, seed=seed, steps=(1, 2, 3),
        values=(5.0, None, 4.0),
    )  # fmt: skip


def traces(drawn: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return [trace for trace in drawn["data"] if trace["name"] == name]


def test_training_has_four_panels_with_units_and_directions() -> None:
    rows = [contender("torch-naive", "reference"), contender("flce@1", curve=CURVE)]
    drawn = training_figure(rows, [points("torch-naive"), points("flce@1")], "1m, 100 steps")
    layout = drawn["layout"]
    assert [layout[f"yaxis{n}"]["title"]["text"] for n in ("", "2", "3", "4")] == [
        "training loss (lower is better)",
        "loss less the reference's (0: the same)",
        "tokens per second (higher is better)",
        "GiB (lower is better)",
    ]
    (line,) = traces(drawn, "flce@1, seed 0")
    assert (line["x"], line["y"]) == ([1, 2, 3], [5.0, None, 4.0])
    (difference,) = traces(drawn, "flce@1")
    assert (difference["x"], difference["y"]) == ([5, 10], [0.0, 0.01])
    (band,) = traces(drawn, "rounding alone")
    assert band["y"] == [0.02, 0.02, 0.02, -0.02, -0.02, -0.02]
    low, high = layout["yaxis2"]["range"]
    assert low == -high == pytest.approx(-0.22)
    _, peak, workspace = traces(drawn, "medians over seeds")
    assert (peak["y"], workspace["y"]) == ([1.0, 1.0], [0.25, 0.25])
    go.Figure(drawn["data"], {k: v for k, v in layout.items() if k != "meta"})


def test_band_of_rounding_is_drawn_beside_the_control_which_has_none() -> None:
    bare = CURVE.model_copy(update={"rounding": (None, None, None)})
    control = contender("torch-naive (rows reordered)", "control", curve=bare)
    rows = [contender("torch-naive", "reference"), control, contender("flce@1", curve=CURVE)]
    drawn = training_figure(rows, [], "here")
    (band,) = traces(drawn, "rounding alone")
    assert band["y"] == [0.02, 0.02, 0.02, -0.02, -0.02, -0.02]
    assert len(traces(drawn, "torch-naive (rows reordered)")) == 1
    without = training_figure([rows[0], contender("flce@1", curve=bare)], [], "here")
    assert traces(without, "rounding alone") == []
    assert "dark band" not in without["layout"]["title"]["text"]


def test_training_that_has_just_begun_is_drawn_without_bands() -> None:
    drawn = training_figure([contender("flce@1", "reference")], [points("flce@1")], "here")
    assert traces(drawn, "rounding alone") == []
    assert len(traces(drawn, "flce@1, seed 0")) == 1


def test_many_runs_are_counted_and_not_all_drawn() -> None:
    curves = [points("flce@1", seed) for seed in range(40)]
    drawn = training_figure([contender("flce@1", "reference")], curves, "here")
    lines = [trace for trace in drawn["data"] if ", seed " in trace["name"]]
    assert len(lines) == MOST_LINES
    assert "the first 24 of 40 runs are drawn" in drawn["layout"]["title"]["text"]


@pytest.mark.parametrize(
    ("verdict", "changed", "told"),
    [
        ("same", {}, "flce@1 trains as well as torch-naive: perplexity 1.0010"),
        ("worse", {}, "flce@1 trains worse than torch-naive"),
        ("better", {}, "flce@1 trains better than torch-naive"),
        ("inconclusive", {"low": None}, "perplexity 1.0010 × its own (2 pairs of seeds)."),
        ("inconclusive", {"seeds_needed": 12}, "About 12 seeds would decide."),
        (None, {}, "flce@1: no pair of seeds has ended yet."),
        ("worse", {"ratio": None, "reason": "it diverged"}, "flce@1 is worse: it diverged"),
    ],
)
def test_sentence_says_what_the_seeds_say(
    verdict: str | None, changed: dict[str, Any], told: str
) -> None:
    found = {"ratio": 1.001, "low": 0.999, "high": 1.003, **changed}
    row = contender("flce@1", verdict=verdict and TrainingVerdict(verdict), **found)
    assert told in verdict_sentence(row, "torch-naive")


def test_table_has_a_line_for_each_contender() -> None:
    row = contender("flce@1", verdict=TrainingVerdict.SAME, ratio=1.0001, low=0.9999, high=1.0003)
    text = training_markdown("1m", [contender("torch-naive", "reference"), row])
    assert "| `torch-naive` | reference | – |" in text
    assert "| `flce@1` | same | 1.0001 (0.9999 – 1.0003) | 5000" in text.replace("5,000", "5000")
