"""Student's t against scipy: tails and quantiles to 1e-9."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t as student

from lossbench.service.statistics.student_t import quantile, upper_tail

DEGREES = (1, 2, 3, 4, 7, 11, 19, 23, 99, 1000)


@given(st.floats(-60, 60), st.sampled_from(DEGREES))
def test_upper_tail_agrees_with_scipy(t: float, degrees: float) -> None:
    assert upper_tail(t, degrees) == pytest.approx(student.sf(t, degrees), abs=1e-9, rel=1e-9)


@pytest.mark.parametrize("t", [1e-12, 1e-9, 1e-7, 1e-5, 1e-3, 0.1, 3.0, 40.0])
@pytest.mark.parametrize("degrees", DEGREES)
def test_upper_tail_of_small_and_large_t_agrees_with_scipy(t: float, degrees: float) -> None:
    assert upper_tail(t, degrees) == pytest.approx(student.sf(t, degrees), abs=1e-11, rel=1e-9)


@pytest.mark.parametrize("degrees", DEGREES)
@pytest.mark.parametrize("probability", [1e-4, 0.025, 0.05, 0.4, 0.5, 0.6, 0.9, 0.975, 0.9999])
def test_quantile_agrees_with_scipy(probability: float, degrees: float) -> None:
    expected = student.ppf(probability, degrees)
    assert quantile(probability, degrees) == pytest.approx(expected, abs=1e-9, rel=1e-9)


def test_quantile_of_the_usual_interval_over_three_processes() -> None:
    # the value in every printed table of t
    assert quantile(0.975, 2) == pytest.approx(4.302652729749464, rel=1e-12)


@given(st.floats(0.001, 0.999), st.integers(1, 200))
def test_quantile_is_the_inverse_of_the_tail(probability: float, degrees: int) -> None:
    assert 1 - upper_tail(quantile(probability, degrees), degrees) == pytest.approx(
        probability, abs=1e-9
    )


@pytest.mark.parametrize("probability", [0.0, 1.0, -0.1, 1.1, float("nan")])
def test_quantile_outside_of_zero_to_one_is_refused(probability: float) -> None:
    with pytest.raises(ValueError, match="probability"):
        quantile(probability, 3)


@pytest.mark.parametrize("degrees", [0, -1])
def test_upper_tail_without_degrees_of_freedom_is_refused(degrees: int) -> None:
    with pytest.raises(ValueError, match="degrees of freedom"):
        upper_tail(1.0, degrees)
