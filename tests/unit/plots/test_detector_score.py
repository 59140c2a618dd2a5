"""The figure and the sentence of the detector's score, by their numbers."""

from typing import Any

import pytest

from lossbench.service.plots.detector_score import Score, detector_figure, scores_of
from lossbench.web.detector_pages import sentence

COLUMNS = ["noise", "detector", "false alarms per 1,000", "1 % hit", "2 % hit", "elsewhere per 100"]


def rows(ours_false: str = "1.0") -> list[list[str]]:
    return [
        ["white", "lossbench", "0.0", "88.7 %", "100.0 %", "0.5"],
        ["white", "lossbench, false_rate=0.05", "14.0", "96.7 %", "100.0 %", "1.9"],
        ["white", "asv 0.6.6", "0.0", "55.0 %", "96.3 %", "0.3"],
        ["outliers", "lossbench", ours_false, "87.0 %", "99.7 %", "0.9"],
        ["outliers", "asv 0.6.6", "3.0", "50.3 %", "96.3 %", "2.8"],
    ]


def test_scores_are_the_numbers_of_the_table() -> None:
    first = scores_of(COLUMNS, rows())[0]
    assert first == Score("white", "lossbench", 0.0, {"1 %": 88.7, "2 %": 100.0}, 0.5)


@pytest.mark.parametrize(("false", "told"), [("1.0", "at most 1 false"), ("7.5", "at most 7.5")])
def test_sentence_is_of_our_worst_noise(false: str, told: str) -> None:
    said = sentence(scores_of(COLUMNS, rows(false)))
    assert told in said
    assert "at least 87 % of 1 % steps, 99.7 % of 2 % steps" in said


def test_figure_has_a_trace_a_detector_and_step_and_draws_zero_at_the_edge() -> None:
    drawn: dict[str, Any] = detector_figure(scores_of(COLUMNS, rows()))
    of_ours = [trace for trace in drawn["data"] if trace["name"] == "lossbench"]
    assert [trace["x"] for trace in of_ours] == [[0.5, 1.0]] * 2
    assert [trace["y"] for trace in of_ours] == [[88.7, 87.0], [100.0, 99.7]]
    assert len(drawn["data"]) == 3 * 2
    loose = next(trace for trace in drawn["data"] if trace["name"].endswith("0.05"))
    assert loose["marker"]["color"] == of_ours[0]["marker"]["color"]
    assert loose["marker"]["symbol"] != of_ours[0]["marker"]["symbol"]
