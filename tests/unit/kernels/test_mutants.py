"""Each mutant is wrong in the output that it says, and only the tests that look there see it."""

from __future__ import annotations

import math

import pytest

from lossbench.kernels.inputs import make_inputs
from lossbench.kernels.mutants import MUTANTS
from lossbench.kernels.problem import Problem, forward_backward
from lossbench.kernels.reference import reference, relative_errors

PROBLEM = Problem(
    128, 32, 515, "float32", bias=True, ignored_share=0.25, upstream="random", recipe="trained"
)


@pytest.mark.parametrize(
    ("name", "wrong", "at_least"),
    [
        ("dx_zero", {"dx"}, 0.99),
        ("dw_zero", {"dw"}, 0.99),
        ("dw_missing_chunk", {"dw"}, 0.1),
        ("gradients_scaled", {"dx", "dw", "db"}, 0.0077),
        ("ignored_counted", {"loss", "dx", "dw", "db"}, 0.2),
        ("db_missing", {"db"}, 0.99),
        ("lse_off_by_one_tile", {"loss", "dx", "dw", "db"}, 0.05),
        ("nan_in_ignored_row", {"dx"}, math.nan),
        ("other_seed", {"dx", "dw"}, 0.5),
        ("softmax_in_bf16", {"dx", "dw", "db"}, 0.01),
        ("dw_summed_in_bf16", {"dw"}, 0.004),
    ],
)
def test_mutant_is_wrong_only_where_it_says(name: str, wrong: set[str], at_least: float) -> None:
    inputs = make_inputs(PROBLEM, "cpu", 0)

    errors = relative_errors(forward_backward(MUTANTS[name], inputs), reference(inputs, PROBLEM))

    for output, error in errors.items():
        if output not in wrong:
            assert error <= 1e-5, output
        elif math.isnan(at_least):
            assert math.isnan(error)
        else:
            assert error >= at_least, output


def test_mutants_all_are_listed_above() -> None:
    assert len(MUTANTS) == 11
