"""What counts as a difference of two contenders, and the bars of it."""

from typing import Any

import pytest

from lossbench.service.api.records import CandidateCell, Side
from lossbench.service.contract.errors import InvalidRequestError
from lossbench.service.contract.words import Grade, Outcome
from lossbench.web.compare_words import Pair, bars_of, changed, tab_of, tally, way_of


def side(**given: Any) -> Side:
    fields: dict[str, Any] = {"outcome": Outcome.OK, "grade": Grade.EXACT, "errors": ()}
    return Side.model_construct(**fields | given)


def cell(**given: Any) -> CandidateCell:
    fields: dict[str, Any] = {
        "side": side(), "ratio": 1.0, "ratio_low": 0.99, "ratio_high": 1.01, "verdict": None,
        "workspace_ratio": 1.0,
    }  # fmt: skip
    return CandidateCell.model_construct(**fields | given)


@pytest.mark.parametrize(
    ("found", "differs"),
    [
        (cell(), False),
        (cell(ratio_low=0.8, ratio_high=0.9), True),
        (cell(ratio_low=1.1, ratio_high=1.2), True),
        # a verdict outweighs the interval
        (cell(ratio_low=1.1, ratio_high=1.2, verdict="no_difference"), False),
        (cell(verdict="slower"), True),
        (cell(workspace_ratio=1.009), False),
        (cell(workspace_ratio=0.98), True),
        (cell(side=side(grade=Grade.POOR)), True),
        (cell(side=side(outcome=Outcome.WRONG)), True),
        (cell(side=None), False),
    ],
)
def test_changed_is_time_memory_grade_or_outcome(found: CandidateCell, differs: bool) -> None:
    assert changed(side(), found) is differs
    assert changed(None, found) is False


def test_bars_leave_out_what_has_no_ratio_and_mark_inexact_ones() -> None:
    bars, without = bars_of(
        [("a", cell()), ("b", cell(ratio=None)), ("c", None), ("d", cell(side=side(grade=None)))]
    )
    assert [(bar.label, bar.exact) for bar in bars] == [("a", True), ("d", False)]
    assert without == 2
    assert way_of(cell(verdict="inconclusive", ratio_high=0.5)) == ""


def test_a_faster_case_that_is_inexact_is_no_win() -> None:
    fast = {"ratio": 0.5, "ratio_low": 0.4, "ratio_high": 0.6}
    found = tally(
        [
            cell(**fast),
            cell(**fast, side=side(grade=Grade.COARSE)),
            cell(**fast, verdict="slower"),
            cell(),
            cell(verdict="inconclusive"),
            cell(ratio=None),
            None,
        ]
    )
    assert found == (1, 1, 2, 1, 2)
    assert [words for _, words in found.words] == [
        "1 faster", "1 slower", "2 not told apart", "1 faster but inexact", "2 without a ratio",
    ]  # fmt: skip
    assert [words for _, words in tally([]).words] == ["0 faster", "0 slower"]


def test_outputs_of_both_sides_are_paired_by_name() -> None:
    class Error:
        def __init__(self, output: str) -> None:
            self.output = output

    pair = Pair("case", "", side(errors=[Error("dw"), Error("loss")]), side(errors=[Error("dw")]))
    names = [(name, one is not None, two is not None) for name, one, two in pair.outputs]
    assert names == [("dw", True, True), ("loss", True, False)]


def test_an_unknown_tab_is_refused() -> None:
    assert tab_of("floor") == "floor"
    with pytest.raises(InvalidRequestError, match="known: errors, floor"):
        tab_of("memory")
