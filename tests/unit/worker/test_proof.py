"""Proving processes: order, planted work, and figures of visits that are made up."""

import math
import random
from collections import Counter
from typing import Any

import pytest
import torch

from lossbench.service.contract.case import Case
from lossbench.service.contract.contender import Contender
from lossbench.worker.proof import Extra, SlowedArm, calibrate, measure_process, visit_order
from lossbench.worker.proof_figures import (
    by_case,
    class_figures,
    deviation_of,
    figures,
    lag_correlation,
    position_effect,
    verdict_of,
)
from lossbench.worker.proof_task import ARMS, PLANTED, ProofTask
from lossbench.worker.self_test import Call
from lossbench.worker.timing import Timed

CASE = "N64-H32-V128-float32"


def made_line(process: int, deviation: float, chance: random.Random, case: str = CASE) -> Any:
    """A line of a process whose arms differ by what was planted and by noise of the process."""
    visits = {}
    for arm in ARMS:
        log = math.log1p(PLANTED.get(arm, 0.0)) + chance.gauss(0.0, deviation / math.sqrt(2))
        visits[arm] = [[10.0 * math.exp(log)] * 4] * 6
    return {
        "process": process,
        "case": case,
        "contender": "flce",
        "call_ms": 10.0,
        "planted": dict(PLANTED),
        "visits": visits,
        "order": [visit_order(process, visit) for visit in range(6)],
        "steady": True,
        "flags": ["power_capped"],
        "timed_s": 3.0,
        "wall_s": 4.0,
    }


def pool(deviation: float, processes: int = 16) -> list[Any]:
    chance = random.Random(7)
    return [made_line(process, deviation, chance) for process in range(processes)]


def test_figures_find_what_was_planted_and_nothing_else() -> None:
    found = figures(pool(0.002))
    (made,) = found["classes"]
    assert found["passed"]
    assert made["same_code"]["verdict"] == "no_difference"
    for arm, share in PLANTED.items():
        step = made["slowdowns"][arm]
        assert step["verdict"] == "slower"
        assert step["read"] == pytest.approx(share, abs=0.003)
    assert (made["processes"], made["timed_share"], made["flags"]) == (16, 0.75, ["power_capped"])
    assert made["deviation"] == pytest.approx(0.002, rel=0.5)
    seen = [made["detectable"][p] for p in ("3", "8", "16", "24")]
    assert seen == sorted(seen, reverse=True)
    assert made["same_code"]["disjoint"].keys() <= {"no_difference", "inconclusive"}


def test_same_code_that_is_called_different_does_not_pass() -> None:
    lines = pool(0.001)
    for line in lines:
        line["visits"]["A'"] = [[10.5] * 4] * 6
    assert not figures(lines)["passed"]
    assert not figures([])["passed"]


def test_deviation_of_few_processes_is_not_that_of_three_that_agree() -> None:
    lines = pool(0.01, 3)
    for line in lines:
        line["visits"]["A'"] = line["visits"]["A"]
    assert deviation_of(lines) == pytest.approx(0.01, rel=0.8)
    assert deviation_of(pool(0.01, 1)) is None


def test_line_that_came_again_replaces_the_first_and_failures_are_listed() -> None:
    chance = random.Random(1)
    first, again = made_line(0, 0.0, chance), {**made_line(0, 0.0, chance), "call_ms": 11.0}
    broken = {"process": 1, "case": CASE, "failed": "OutOfMemoryError: no"}
    assert by_case([first, broken, again]) == {CASE: [again]}
    assert figures([first, broken])["failed"] == [broken]


def test_position_effect_is_read_where_the_first_place_is_slow() -> None:
    line = made_line(0, 0.0, random.Random(1))
    for number, order in enumerate(line["order"]):
        for arm in ARMS:
            made = list(line["visits"][arm])
            made[number] = [10.2 if arm == order[0] else 10.0] * 4
            line["visits"][arm] = made
    places = position_effect([line])
    assert places["0"] == pytest.approx(math.log(1.02), abs=0.006)
    assert all(abs(places[str(place)]) < 0.006 for place in range(1, 5))


def test_series_stops_at_its_first_answer() -> None:
    assert verdict_of([0.2, 0.2, 0.2, 0.0]).processes == 3
    assert verdict_of([0.0, 0.03, -0.03] * 3).processes == 8
    assert verdict_of([0.1]).verdict == "inconclusive"


def test_lag_correlation_has_the_sign_of_a_trend() -> None:
    rising = [0.1 * i for i in range(8)]
    assert (lag_correlation(rising) or 0) > 0.4
    assert (lag_correlation([0.1, -0.1] * 4) or 0) < -0.4
    assert lag_correlation([1.0] * 8) is None
    assert lag_correlation([0.1, 0.2]) is None


def test_order_is_mirrored_in_every_pair_and_gives_every_arm_every_place() -> None:
    for process in range(5):
        for visit in range(0, 6, 2):
            first, second = visit_order(process, visit), visit_order(process, visit + 1)
            assert first == second[::-1]
    orders = [visit_order(process, visit) for process in range(10) for visit in range(6)]
    places = Counter((arm, order.index(arm)) for order in orders for arm in ARMS)
    assert set(places.values()) == {len(orders) // len(ARMS)}
    assert visit_order(0, 0) != visit_order(1, 0)


class Ideal:
    """A device of 1 TFLOP/s without noise: the time of a call is that of its operations."""

    def __init__(self, extra: Extra, call_ms: float) -> None:
        self._extra, self._call_ms = extra, call_ms

    def time(self, arm: Timed) -> tuple[float, float]:
        """A call, or the extra work by itself, which takes twice what its operations should."""
        only_extra = type(arm).__name__ == "_OnlyExtra"
        milliseconds = 2.0 * self._extra.operations / 1e9 if only_extra else self._call_ms
        return milliseconds, milliseconds


@pytest.mark.parametrize("share", [0.01, 0.02, 0.05])
def test_planted_work_is_sized_by_its_measured_time(share: float) -> None:
    extra = Extra(torch.zeros(8192, 64), torch.zeros(4096, 64))
    flops = 6.0 * 8192 * 64 * 4096
    device = Ideal(extra, call_ms=flops / 1e9)
    measured, call_ms = calibrate(Call(lambda: None), extra, device, share, flops)
    assert measured == pytest.approx(share, rel=0.1)
    assert call_ms == flops / 1e9


def test_slowed_arm_does_its_work_and_more() -> None:
    done: list[str] = []
    extra = Extra(torch.ones(64, 8), torch.ones(32, 8))
    extra.resize(2.0 * 32 * 8 * 20)
    assert (extra.rows, extra.columns) == (20, 32)
    extra.resize(2.0 * 8 * 16 * 3)
    assert (extra.rows, extra.columns) == (16, 3)
    slowed = SlowedArm(Call(lambda: done.append("call")), extra)
    slowed.before()
    slowed.call()
    assert done == ["call"]


def test_shape_that_does_not_fit_leaves_the_others() -> None:
    def measure(task: ProofTask, case: Case, device: str) -> dict[str, Any]:
        if case.vocab == 256:
            raise torch.OutOfMemoryError("too big\nmore")
        return {"case": case.text}

    cases = (Case.parse("N64-H32-V256-float32"), Case.parse(CASE))
    task = ProofTask(process=3, cases=cases, contender=Contender(kernel="torch-naive"))
    failed, fine = measure_process(task, measure)
    assert failed == {
        "process": 3,
        "case": "N64-H32-V256-float32",
        "failed": "OutOfMemoryError: too big",
    }
    assert fine == {"case": CASE}


def test_figures_of_one_process_have_no_deviation() -> None:
    made = class_figures(CASE, pool(0.01, 1))
    assert made["deviation"] is None
    assert set(made["detectable"].values()) == {None}
