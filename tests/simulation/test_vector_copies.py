"""The simulation's array functions equal the functions that the service uses."""

import math

import numpy as np
import pytest
from noise_kinds import KINDS, PROCESSES, STEADY, VISITS, NoiseKind, draw_times, slots
from trial_runs import (
    CODES,
    Floats,
    extended,
    half_widths,
    log_ratios,
    mode_strengths,
    verdicts,
    visit_medians,
)

from lossbench.service.statistics.process_modes import CRITICAL, LEAST_PROCESSES, find_two_modes
from lossbench.service.statistics.summary import ratio_interval, visit_log_ratio
from lossbench.service.statistics.verdict import LOOKS, PRACTICAL_LINE, Verdict, decide, next_look


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_log_ratios_equal_those_of_single_processes(kind: NoiseKind) -> None:
    times = draw_times(kind, np.random.default_rng(1), 4)
    found = log_ratios(visit_medians(times))
    for trial, process in np.ndindex(found.shape):
        contender, base = times[trial, process].astype(np.float64).tolist()
        assert found[trial, process] == pytest.approx(visit_log_ratio(contender, base), abs=1e-7)


def many_ratios(processes: int) -> Floats:
    """Rows that meet every verdict: means and deviations of many sizes."""
    rng = np.random.default_rng(processes)
    deviation = 10 ** rng.uniform(-5, -1.3, (400, 1))
    mean = rng.choice([0, 0.004, 0.006, 0.01, 0.03, 0.2], (400, 1)) * rng.choice([-1, 1], (400, 1))
    return np.asarray(mean + deviation * rng.standard_normal((400, processes)))


@pytest.mark.parametrize("processes", [3, 5, 8, 12, 16, 20, 24, 30])
def test_verdicts_equal_single_decisions(processes: int) -> None:
    rows = many_ratios(processes)
    codes = verdicts(rows)
    assert set(codes) == set(CODES.values())
    for row, code, half_width in zip(rows, codes, half_widths(rows), strict=True):
        decision, interval = decide(row.tolist()), ratio_interval(row.tolist())
        assert CODES[decision.verdict] == code
        assert interval is not None
        assert (decision.low, decision.high) == pytest.approx((interval.low, interval.high))
        assert decision.high is not None
        assert decision.ratio is not None
        assert math.log(decision.high / decision.ratio) == pytest.approx(half_width, rel=1e-6)


def test_extended_equals_a_series_that_asks_for_its_next_look() -> None:
    rows = many_ratios(LOOKS[-1])
    codes, ended_at = extended(rows)
    for row, code, end in zip(rows, codes, ended_at, strict=True):
        processes = next_look(0)
        decision = decide(row[:processes].tolist())
        while decision.verdict is Verdict.INCONCLUSIVE and (more := next_look(processes or 0)):
            processes, decision = more, decide(row[:more].tolist())
        assert (CODES[decision.verdict], processes) == (code, end)


@pytest.mark.parametrize(("processes", "gap"), [(6, 10), (8, 6), (24, 4)])
def test_mode_strengths_equal_those_of_single_rows(processes: int, gap: int) -> None:
    rng = np.random.default_rng(processes)
    rows = rng.standard_normal((300, processes)) + gap * rng.integers(0, 2, (300, processes))
    critical = CRITICAL[processes - LEAST_PROCESSES]
    strengths, seen = mode_strengths(rows), 0
    for row, strength in zip(rows, strengths, strict=True):
        found = find_two_modes(row.tolist())
        assert (found is not None) == (strength > critical)
        if found is not None:
            seen += 1
            assert found.gap > PRACTICAL_LINE
            assert found.strength == pytest.approx(strength, rel=1e-9)
    assert 20 < seen < 300


def test_slots_mirror_every_round_and_alternate_between_processes() -> None:
    contender, base = slots(PROCESSES, alternate=True)[0].tolist()
    assert (contender, base) == ([0, 3, 4, 7, 8, 11], [1, 2, 5, 6, 9, 10])
    assert slots(PROCESSES, alternate=True)[1].tolist() == [base, contender]
    assert slots(PROCESSES, alternate=False)[1].tolist() == [contender, base]
    assert len(contender) == VISITS


def test_step_of_the_contender_adds_its_log_to_every_ratio() -> None:
    """So steps can be added to the ratios that were drawn for the same code."""
    times = draw_times(STEADY, np.random.default_rng(3), 20)
    stepped = times.copy()
    stepped[:, :, 0] *= 1.02
    added = log_ratios(visit_medians(stepped)) - log_ratios(visit_medians(times))
    assert added == pytest.approx(np.full_like(added, math.log(1.02)), abs=1e-6)
