"""Grades at their exact edges, and the defects that must be called wrong."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lossbench.service.contract.run import OutputError
from lossbench.service.contract.words import Dtype, Grade, Outcome
from lossbench.service.statistics.grade import error_ratio, grade_of, judge


def output(name: str = "dx", relative_l2: float | None = 1e-3, **numbers: Any) -> OutputError:
    return OutputError.model_validate({"output": name, "relative_l2": relative_l2, **numbers})


@pytest.mark.parametrize(
    ("ratio", "grade"),
    [
        (0.0, Grade.EXACT),
        (1.1, Grade.EXACT),
        (math.nextafter(1.1, 2), Grade.FAIR),
        (1.5, Grade.FAIR),
        (math.nextafter(1.5, 2), Grade.COARSE),
        (4.0, Grade.COARSE),
        (math.nextafter(4.0, 5), Grade.POOR),
        (math.inf, Grade.POOR),
        (math.nan, Grade.POOR),
    ],
)
def test_grade_of_ratio_at_its_edge(ratio: float, grade: Grade) -> None:
    assert grade_of(ratio) is grade


DEFECTS = [
    (output(relative_l2=1.0, best_fit_scale=0.0), "relative L2 error 1 is above 0.05"),
    (output(relative_l2=math.nextafter(0.05, 1)), "above 0.05"),
    (output(relative_l2=math.nan), "relative L2 error nan"),
    (output(relative_l2=math.inf), "relative L2 error inf"),
    (output(relative_l2=2**-7, best_fit_scale=1 + 2**-7), "best-fit scale 1.00781"),
    (output(relative_l2=2**-7, best_fit_scale=1 - 2**-7), "best-fit scale 0.99219"),
    (output(relative_l2=2**-7, best_fit_scale=1 + 2**-7, ratio=1.2), "best-fit scale 1.00781"),
    (output(relative_l2=1e-3, best_fit_scale=math.nan), "best-fit scale nan"),
    (output(relative_l2=None, not_finite=3), "3 values are NaN or infinite"),
    (output(relative_l2=1e-3, not_finite=1), "1 values are NaN or infinite"),
    (output(relative_l2=None), "missing"),
    (output(relative_l2=None, max_abs=0.5), "not zero where the truth is zero"),
]


@pytest.mark.parametrize(("defect", "reason"), DEFECTS)
def test_judge_of_defect_is_wrong_without_grade(defect: OutputError, reason: str) -> None:
    found = judge([output("loss", ratio=1.0), defect, output("dw", ratio=1.0)])
    assert (found.outcome, found.grade, found.worst_output) == (Outcome.WRONG, None, "dx")
    assert str(found.reason).startswith("dx: ")
    assert reason in str(found.reason)


@pytest.mark.parametrize("name", ["loss", "dx", "dw", "db"])
def test_judge_sees_a_defect_in_every_output(name: str) -> None:
    outputs = [output(each, ratio=1.0) for each in ("loss", "dx", "dw", "db") if each != name]
    assert judge(outputs).outcome is Outcome.OK
    assert judge([*outputs, output(name, relative_l2=1.0)]).outcome is Outcome.WRONG


@pytest.mark.parametrize(
    "fine",
    [
        output(relative_l2=0.05),
        output(best_fit_scale=1 + 2**-8),
        output(best_fit_scale=1 - 2**-8),
        output(relative_l2=0.0, best_fit_scale=None),
        output(relative_l2=2**-7, best_fit_scale=1 + 2**-7, ratio=1.1),
        output("loss", relative_l2=0.014, best_fit_scale=1.014, ratio=1400.0),
    ],
)
def test_judge_at_the_edge_of_a_limit_is_ok(fine: OutputError) -> None:
    assert judge([fine]).outcome is Outcome.OK


@given(st.lists(st.floats(0, 20), min_size=1, max_size=4))
def test_judge_grades_by_the_worst_output(ratios: list[float]) -> None:
    names = ("loss", "dx", "dw", "db")
    found = judge(output(name, ratio=r) for name, r in zip(names, ratios, strict=False))
    assert found.grade is grade_of(max(ratios))
    assert ratios[names.index(str(found.worst_output))] == max(ratios)


def test_judge_without_yardstick_has_no_grade() -> None:
    found = judge([output(), output("dw")])
    assert found == (Outcome.OK, None, None, None)


@pytest.mark.parametrize(
    ("name", "dtype", "floor"),
    [
        ("loss", Dtype.BFLOAT16, 1e-5),
        ("loss", Dtype.FLOAT32, 1e-5),
        ("dx", Dtype.BFLOAT16, 2.0**-11),
        ("dw", Dtype.FLOAT16, 2.0**-14),
        ("db", Dtype.FLOAT32, 2.0**-26),
        ("dx", Dtype.FLOAT64, 2.0**-55),
    ],
)
@pytest.mark.parametrize("lucky", [None, 0.0, 1e-300])
def test_error_ratio_of_a_lucky_yardstick_divides_by_the_floor(
    name: str, dtype: Dtype, floor: float, lucky: float | None
) -> None:
    assert error_ratio(name, 3 * floor, lucky, dtype) == pytest.approx(3.0)


def test_error_ratio_of_an_honest_yardstick_divides_by_it() -> None:
    assert error_ratio("dx", 6e-3, 3e-3, Dtype.BFLOAT16) == pytest.approx(2.0)
