"""Verdicts at their edges, against scipy. Error rates are in tests/simulation."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, optimize, stats

from lossbench.service.statistics.summary import ratio_interval
from lossbench.service.statistics.verdict import (
    LEAST_DEVIATION,
    PRACTICAL_LINE,
    Verdict,
    decide,
    decision_line,
    minimum_detectable_effect,
    next_look,
)

MIRRORED = {Verdict.SLOWER: Verdict.FASTER, Verdict.FASTER: Verdict.SLOWER}


def spread_around(mean: float, deviation: float, processes: int) -> list[float]:
    """Log ratios with exactly this mean and standard deviation."""
    values = np.linspace(-1, 1, processes)
    return [float(mean + deviation * value / values.std(ddof=1)) for value in values]


def t_line(deviation: float, processes: int) -> float:
    """Half of the interval at alpha 0.0002, by scipy."""
    return float(stats.t.ppf(0.9999, processes - 1) * deviation / math.sqrt(processes))


def test_decide_on_known_ratios_gives_the_whole_record() -> None:
    logs = [math.log(ratio) for ratio in (1.110, 1.112, 1.114)]
    found = decide(logs)
    mean, half = np.mean(logs), stats.t.ppf(0.975, 2) * np.std(logs, ddof=1) / math.sqrt(3)
    assert (found.verdict, found.processes, found.look) == (Verdict.SLOWER, 3, 1)
    assert found.ratio == pytest.approx(math.exp(mean), rel=1e-12)
    assert (found.low, found.high) == pytest.approx((math.exp(mean - half), math.exp(mean + half)))
    # nine of ten samples show at most sqrt(ln 10) times the true deviation of 0.18 %
    expected = math.expm1(70.70 * math.sqrt(math.log(10)) * np.std(logs, ddof=1) / math.sqrt(3))
    assert found.minimum_detectable_effect == pytest.approx(expected, rel=2e-3)
    assert found.reason is None


@pytest.mark.parametrize("processes", [3, 4, 8, 12, 16, 20, 24, 50])
@pytest.mark.parametrize("deviation", [0.003, 0.01, 0.05])
def test_decide_calls_a_difference_just_beyond_the_interval(
    deviation: float, processes: int
) -> None:
    line = max(t_line(deviation, processes), math.log(1.005))
    beyond = decide(spread_around(line * 1.0001, deviation, processes))
    before = decide(spread_around(line * 0.9999, deviation, processes))
    assert beyond.verdict is Verdict.SLOWER
    assert before.verdict in {Verdict.INCONCLUSIVE, Verdict.NO_DIFFERENCE}


@pytest.mark.parametrize(
    ("mean", "verdict"), [(0.00498, Verdict.NO_DIFFERENCE), (0.00499, Verdict.SLOWER)]
)
def test_decide_calls_nothing_below_the_practical_line(mean: float, verdict: Verdict) -> None:
    # log 1.005 is 0.0049875, and the interval at alpha excludes 0 by far
    found = decide(spread_around(mean, 1e-5, 24))
    assert found.verdict is verdict
    assert found.low is not None
    assert found.low > 1.004


@pytest.mark.parametrize(
    ("mean", "verdict"), [(0.0069, Verdict.NO_DIFFERENCE), (0.0071, Verdict.INCONCLUSIVE)]
)
def test_decide_calls_no_difference_when_the_interval_lies_inside(
    mean: float, verdict: Verdict
) -> None:
    # log 1.01 is 0.00995; half of the interval is 4.3027 x 0.0012 / sqrt(3) = 0.00298
    assert decide(spread_around(mean, 0.0012, 3)).verdict is verdict
    assert decide(spread_around(-mean, 0.0012, 3)).verdict is verdict


@pytest.mark.parametrize(("ratio", "verdict"), [(1.08, "inconclusive"), (1.09, "slower")])
def test_decide_on_three_processes_that_agree_by_luck_asks_for_more(
    ratio: float, verdict: str
) -> None:
    # 70.700 x 0.002 / sqrt(3) is a log ratio of 0.0816, 8.5 %
    assert decide(spread_around(math.log(ratio), 1e-6, 3)).verdict == verdict


def test_decide_without_any_spread() -> None:
    assert decide([0.0] * 8).verdict is Verdict.NO_DIFFERENCE
    found = decide([math.log(1.2)] * 3)
    assert found.verdict is Verdict.SLOWER
    assert (found.low, found.high) == pytest.approx((1.2, 1.2))
    assert found.minimum_detectable_effect == pytest.approx(math.expm1(decision_line(0.0, 3)))


@pytest.mark.parametrize(
    ("logs", "reason"),
    [
        ([], "0 processes: a verdict needs 3"),
        ([0.7], "1 process: a verdict needs 3"),
        ([0.7, 0.7], "2 processes: a verdict needs 3"),
    ],
)
def test_decide_on_too_few_processes_is_inconclusive_with_a_reason(
    logs: list[float], reason: str
) -> None:
    found = decide(logs)
    interval = ratio_interval(logs)
    assert (found.verdict, found.reason) == (Verdict.INCONCLUSIVE, reason)
    assert (found.look, found.processes) == (0, len(logs))
    assert found.minimum_detectable_effect is None
    assert found.ratio == (interval.value if interval else None)
    assert (found.low, found.high) == ((interval.low, interval.high) if interval else (None, None))


def test_decide_says_why_it_is_inconclusive() -> None:
    found = decide(spread_around(0.02, 0.01, 8))
    assert found.verdict is Verdict.INCONCLUSIVE
    assert str(found.reason).startswith("8 processes of this spread show a difference from 2.5% on")


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 20.1])
@pytest.mark.parametrize("others", [[], [0.1, 0.1, 0.1]])
def test_decide_on_what_is_no_log_ratio_is_refused(bad: float, others: list[float]) -> None:
    with pytest.raises(ValueError, match="log ratios must be finite and within 20 of 0"):
        decide([*others, bad])


@given(st.lists(st.floats(-20, 20), min_size=3, max_size=30))
def test_decide_of_the_inverse_is_the_mirrored_verdict(logs: list[float]) -> None:
    found, inverse = decide(logs), decide([-log for log in logs])
    assert inverse.verdict is MIRRORED.get(found.verdict, found.verdict)
    assert inverse.minimum_detectable_effect == pytest.approx(found.minimum_detectable_effect)
    assert found.ratio is not None
    assert inverse.ratio == pytest.approx(1 / found.ratio)


@given(st.lists(st.floats(-0.1, 0.1), min_size=3, max_size=24), st.randoms())
def test_decide_agrees_with_scipy_in_any_order(logs: list[float], random: object) -> None:
    mean, deviation = float(np.mean(logs)), float(np.std(logs, ddof=1))
    root = math.sqrt(len(logs))
    beyond = abs(mean) - max(math.log(1.005), t_line(max(deviation, 0.002), len(logs)))
    inside = math.log(1.01) - abs(mean) - stats.t.ppf(0.975, len(logs) - 1) * deviation / root
    if min(abs(beyond), abs(inside)) < 1e-9:
        return
    expected = Verdict.NO_DIFFERENCE if inside > 0 else Verdict.INCONCLUSIVE
    if beyond > 0:
        expected = Verdict.SLOWER if mean > 0 else Verdict.FASTER
    random.shuffle(logs)  # type: ignore[attr-defined]
    assert decide(logs).verdict is expected


@pytest.mark.parametrize(
    ("processes", "look", "following"),
    [
        (0, 0, 3), (1, 0, 3), (2, 0, 3), (3, 1, 8), (5, 1, 8), (8, 2, 12), (12, 3, 16),
        (16, 4, 20), (20, 5, 24), (23, 5, 24), (24, 6, None), (30, 6, None),
    ],
)  # fmt: skip
def test_next_look_follows_the_schedule(processes: int, look: int, following: int | None) -> None:
    assert next_look(processes) == following
    assert decide([0.3 * n for n in range(processes)]).look == look


@pytest.mark.parametrize("processes", [3, 5, 8, 16, 24, 100])
@pytest.mark.parametrize("deviation", [0.0, 0.001, 0.002, 0.004, 0.02, 0.1])
def test_decision_line_agrees_with_scipy(deviation: float, processes: int) -> None:
    expected = max(math.log(1.005), t_line(max(deviation, 0.002), processes))
    assert decision_line(deviation, processes) == pytest.approx(expected, rel=1e-9)


def test_least_deviation_costs_nothing_from_eight_processes_on() -> None:
    assert decision_line(LEAST_DEVIATION, 8) == pytest.approx(PRACTICAL_LINE, rel=2e-3)
    assert decision_line(LEAST_DEVIATION, 12) == PRACTICAL_LINE


@pytest.mark.parametrize("processes", [3, 4, 8, 16, 24])
@pytest.mark.parametrize("deviation", [0.012, 0.03])
def test_minimum_detectable_effect_agrees_with_the_noncentral_t(
    deviation: float, processes: int
) -> None:
    # so wide that practical line and least deviation have no part in it
    t = stats.t.ppf(0.9999, processes - 1)
    power = lambda shift: stats.nct.sf(t, processes - 1, shift) - 0.9
    shift = optimize.brentq(power, t / 2, 3 * t)
    expected = math.expm1(shift * deviation / math.sqrt(processes))
    found = minimum_detectable_effect(deviation, processes)
    assert found == pytest.approx(expected, rel=2e-3)


@pytest.mark.parametrize("processes", [3, 8, 12, 16, 24])
@pytest.mark.parametrize("deviation", [0.0005, 0.001, 0.002, 0.003, 0.005])
def test_minimum_detectable_effect_has_the_power_it_says(deviation: float, processes: int) -> None:
    """By scipy's integral over the deviations that a comparison would see."""
    effect = math.log1p(minimum_detectable_effect(deviation, processes))
    error, degrees = deviation / math.sqrt(processes), processes - 1
    seen = stats.chi(degrees, scale=deviation / math.sqrt(degrees))

    def found(at: float) -> float:
        line = max(math.log(1.005), t_line(max(at, 0.002), processes))
        return float(seen.pdf(at) * stats.norm.cdf((effect - line) / error))

    kinks = [0.002, 0.00499 * math.sqrt(processes) / stats.t.ppf(0.9999, degrees)]
    power, _ = integrate.quad(found, 0, seen.ppf(1 - 1e-12), points=kinks, limit=300)
    assert power == pytest.approx(0.9, abs=2e-3)


@given(st.floats(0, 0.2), st.floats(1.01, 3), st.integers(3, 40))
def test_minimum_detectable_effect_grows_with_the_spread(
    deviation: float, factor: float, processes: int
) -> None:
    found = minimum_detectable_effect(deviation, processes)
    assert found >= math.expm1(PRACTICAL_LINE) - 1e-12
    assert minimum_detectable_effect(deviation * factor, processes) >= found * (1 - 1e-6)
    assert minimum_detectable_effect(deviation, processes + 1) <= found * (1 + 1e-6)


@pytest.mark.parametrize("deviation", [math.nan, math.inf, -0.1])
def test_spread_that_is_none_is_refused(deviation: float) -> None:
    for function in (decision_line, minimum_detectable_effect):
        with pytest.raises(ValueError, match="says nothing"):
            function(deviation, 8)
        with pytest.raises(ValueError, match="says nothing"):
            function(0.01, 1)
