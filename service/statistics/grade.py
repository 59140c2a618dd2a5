"""From errors per output to an outcome and a grade.

Grade: error relative to the yardstick, torch's own error in the same dtype on the same inputs
(torch-naive for gradients, torch-upcast for the loss). `wrong` is for defects only.
"""

from collections.abc import Iterable
from typing import NamedTuple

from ..contract.run import OutputError
from ..contract.words import Dtype, Grade, Outcome

GRADE_LIMITS = ((Grade.EXACT, 1.1), (Grade.FAIR, 1.5), (Grade.COARSE, 4.0))
WRONG_RELATIVE_L2 = 0.05
WRONG_SCALE = 2.0**-8
GRADIENTS = ("dx", "dw", "db")
"""Outputs whose scale is checked; torch-naive's own bf16 loss is off by up to 1.4 % (2026-11)."""
LOSS_FLOOR = 1e-5
"""A scalar's rounding error can be 0 by luck, so a loss is compared with at least this error.
It is the goal our own kernel sets for the loss, relative to float64."""
_UNIT_ROUNDOFF = {
    "bfloat16": 2.0**-9,
    "float16": 2.0**-12,
    "float32": 2.0**-24,
    "float64": 2.0**-53,
}
_ROUNDOFF_SHARE = 0.25
"""A yardstick below a quarter of the dtype's unit roundoff is luck, too: the result is rounded."""


class Judgement(NamedTuple):
    """Outcome of a checked cell; `reason` names the defect, `grade` is None when wrong."""

    outcome: Outcome
    reason: str | None
    grade: Grade | None
    worst_output: str | None


def error_ratio(output: str, relative_l2: float, yardstick: float | None, dtype: Dtype) -> float:
    """Error over the yardstick's, with a floor under the yardstick so that luck does not count."""
    roundoff = _UNIT_ROUNDOFF[dtype.value]
    floor = LOSS_FLOOR if output == "loss" else _ROUNDOFF_SHARE * roundoff
    return relative_l2 / max(yardstick or 0.0, floor)


def grade_of(ratio: float) -> Grade:
    """Grade of the worst ratio of a result."""
    return next((grade for grade, limit in GRADE_LIMITS if ratio <= limit), Grade.POOR)


def judge(outputs: Iterable[OutputError]) -> Judgement:
    """Judge the errors of all outputs of a cell."""
    worst_ratio, worst_output = 0.0, None
    for output in outputs:
        if defect := _defect(output):
            return Judgement(Outcome.WRONG, f"{output.output}: {defect}", None, output.output)
        if output.ratio is not None and output.ratio >= worst_ratio:
            worst_ratio, worst_output = output.ratio, output.output
    if worst_output is None:
        return Judgement(Outcome.OK, None, None, None)
    return Judgement(Outcome.OK, None, grade_of(worst_ratio), worst_output)


def _defect(output: OutputError) -> str | None:
    if output.not_finite:
        return f"{output.not_finite} values are NaN or infinite where the truth is finite"
    if output.relative_l2 is None:
        # an infinite error, of something where the truth is all zeros, is stored as null
        return "missing" if output.max_abs is None else "not zero where the truth is zero"
    # a comparison that NaN passes would let a broken check through
    if not output.relative_l2 <= WRONG_RELATIVE_L2:
        return f"relative L2 error {output.relative_l2:.3g} is above {WRONG_RELATIVE_L2}"
    scale = output.best_fit_scale
    if output.output not in GRADIENTS or scale is None or abs(scale - 1.0) <= WRONG_SCALE:
        return None
    # torch's own bf16 gradients with class weights are off by as much: no defect of this contender
    if output.ratio is not None and output.ratio <= GRADE_LIMITS[0][1]:
        return None
    return f"best-fit scale {scale:.5f} is off by more than 2^-8"
