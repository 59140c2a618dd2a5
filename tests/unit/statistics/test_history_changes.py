"""Many histories at once: what is a kernel's change, and what is one note for all."""

import math
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from lossbench.service.contract.words import Grade
from lossbench.service.statistics.history_changes import find_history_changes
from lossbench.service.statistics.history_changes_records import (
    Candidate,
    History,
    HistoryKey,
    HistoryPoint,
    Metric,
    Note,
    NoteKind,
)

FIRST_NIGHT = datetime(2026, 9, 1, 3, 0, tzinfo=UTC)
KERNELS = ("flce", "liger", "cce")
CASES = (
    "N8192-H4096-V128256-bfloat16",
    "N4096-H2048-V32000-bfloat16",
    "N1024-H1024-V32000-float32",
)
NIGHTS = 60
Factor = Callable[[int, HistoryKey], float]


def nothing(night: int, key: HistoryKey) -> float:
    return 1.0


def world(
    seed: int = 0,
    *,
    contender: Factor = nothing,
    baseline: Factor = nothing,
    everything: Factor = nothing,
    floor_known: bool = True,
    nights: int = NIGHTS,
    new_environment_at: int | None = None,
) -> list[History]:
    """Nightly histories of three kernels on three cases; each factor multiplies true times.

    A ratio has a noise of 0.5 %, own times of 1 %, shared by what runs in one night on one case.
    """
    rng = np.random.default_rng(seed)
    histories = []
    for kernel in KERNELS:
        for case in CASES:
            key = HistoryKey(kernel, case, "forward_backward", "NVIDIA H200")
            points = []
            for night in range(nights):
                own = 30.0 * everything(night, key) * math.exp(0.01 * rng.standard_normal())
                base = own * baseline(night, key)
                ratio = 0.7 * contender(night, key) / baseline(night, key)
                later = new_environment_at is not None and night >= new_environment_at
                points.append(
                    HistoryPoint(
                        version=f"main+{night:03d}",
                        released_at=FIRST_NIGHT + timedelta(days=night),
                        measured_at=FIRST_NIGHT + timedelta(days=night, hours=1),
                        environment="driver 581" if later else "driver 580",
                        code_hash=f"{kernel}-{night}",
                        ratio_to_baseline=ratio * math.exp(0.005 * rng.standard_normal()),
                        baseline_ms=base,
                        floor_ms=0.5 * own if floor_known else None,
                        workspace_bytes=512 * 1024**2,
                        grade=Grade.EXACT,
                    )
                )
            histories.append(History(key, tuple(points)))
    return histories


def since(night: int, factor: float, kernel: str | None = None) -> Factor:
    return lambda n, key: factor if n >= night and kernel in (None, key.kernel) else 1.0


def only(notes: tuple[Note, ...]) -> Note:
    (note,) = notes
    return note


@pytest.mark.parametrize("seed", range(3))
def test_quiet_histories_have_no_candidate_and_no_note(seed: int) -> None:
    found = find_history_changes(world(seed))
    assert (found.candidates, found.notes, found.silent, found.not_enough_data) == ((), (), (), ())


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("new_driver", [None, 40])
@pytest.mark.parametrize("floor_known", [True, False])
def test_environment_step_of_7_percent_on_all_series_is_one_note_and_no_candidate(
    seed: int, new_driver: int | None, floor_known: bool
) -> None:
    step = since(40, 1.07)
    histories = world(seed, everything=step, floor_known=floor_known, new_environment_at=new_driver)
    found = find_history_changes(histories)
    assert found.candidates == ()
    note = only(found.notes)
    assert note.kind is NoteKind.ENVIRONMENT
    assert math.expm1(note.change) == pytest.approx(0.07, abs=0.01)
    assert len(note.keys) == len(histories)
    assert note.new_environment == (new_driver is not None)
    assert note.since <= FIRST_NIGHT + timedelta(days=40, hours=1) <= note.until


@pytest.mark.parametrize("seed", range(3))
def test_step_of_7_percent_of_all_ratios_is_one_environment_note(seed: int) -> None:
    """A driver that suits the baseline's kernels less: only ratios and the baseline show it."""
    found = find_history_changes(world(seed, contender=since(40, 1.07), new_environment_at=40))
    assert found.candidates == ()
    note = only(found.notes)
    assert note.kind is NoteKind.ENVIRONMENT
    assert math.expm1(note.change) == pytest.approx(0.07, abs=0.01)
    assert len(note.keys) == 9


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("factor", [1.03, 1 / 1.03])
@pytest.mark.parametrize("floor_known", [True, False])
def test_baseline_alone_moving_3_percent_is_one_note_and_no_candidate(
    seed: int, factor: float, floor_known: bool
) -> None:
    found = find_history_changes(world(seed, baseline=since(35, factor), floor_known=floor_known))
    assert found.candidates == ()
    note = only(found.notes)
    assert note.kind is NoteKind.BASELINE
    assert note.change == pytest.approx(math.log(factor), abs=0.012)
    assert len(note.keys) == 9
    assert "baseline alone" in note.sentence


@pytest.mark.parametrize("seed", range(3))
def test_step_of_one_kernel_is_a_candidate_for_each_of_its_cases(seed: int) -> None:
    found = find_history_changes(world(seed, contender=since(40, 1.05, "liger")))
    assert found.notes == ()
    assert {(each.key.kernel, each.metric) for each in found.candidates} == {("liger", Metric.TIME)}
    assert len(found.candidates) == 3
    for each in found.candidates:
        assert abs(each.index_after - 40) <= 1
        assert each.index_before == each.index_after - 1
        assert each.after.version == f"main+{each.index_after:03d}"
        assert each.low < each.change < each.high
        assert each.change == pytest.approx(math.log(1.05), abs=0.006)
        assert each.p_value < 0.001


@pytest.mark.parametrize("seed", range(3))
def test_kernel_that_steps_with_the_environment_is_still_a_candidate(seed: int) -> None:
    both = world(
        seed,
        everything=since(40, 1.07),
        contender=since(40, 0.95, "cce"),
        new_environment_at=40,
    )
    found = find_history_changes(both)
    assert only(found.notes).kind is NoteKind.ENVIRONMENT
    assert {each.key.kernel for each in found.candidates} == {"cce"}
    assert all(each.at_environment_change for each in found.candidates)


def test_gradual_slowdown_is_one_gradual_candidate() -> None:
    slow = lambda n, key: 1 + 0.05 * n / NIGHTS if key.kernel == "flce" else 1.0
    found = find_history_changes(world(contender=slow))
    assert len(found.candidates) == 3
    assert all(each.gradual and each.change > 0.03 for each in found.candidates)


def test_renamed_kernel_keeps_its_history() -> None:
    histories = world(contender=since(30, 1.05, "liger"))
    cut = []
    for history in histories:
        if history.key.kernel == "liger":
            cut.append(History(replace(history.key, kernel="liger-flce"), history.points[:30]))
            cut.append(History(history.key, history.points[30:]))
        else:
            cut.append(history)
    found = find_history_changes(cut, aliases={"liger-flce": "liger"})
    assert {each.key.kernel for each in found.candidates} == {"liger"}
    assert len(found.candidates) == 3
    assert find_history_changes(cut).candidates == ()


def test_order_of_the_points_does_not_matter() -> None:
    histories = world(contender=since(40, 1.05, "liger"))
    shuffled = [replace(h, points=h.points[::-1]) for h in histories[::-1]]
    assert find_history_changes(shuffled) == find_history_changes(histories)


def one(points: list[HistoryPoint]) -> tuple[tuple[Candidate, ...], tuple[Note, ...]]:
    key = world()[0].key
    found = find_history_changes([History(key, tuple(points))])
    return found.candidates, found.notes


def test_memory_step_of_a_release_is_an_exact_candidate() -> None:
    points = list(world()[0].points[:5])
    points[3:] = [replace(point, workspace_bytes=600 * 1024**2) for point in points[3:]]
    (candidate,), notes = one(points)
    assert notes == ()
    assert (candidate.metric, candidate.index_before, candidate.index_after) == (
        Metric.MEMORY,
        2,
        3,
    )
    assert (candidate.change, candidate.p_value) == (88 * 1024**2, 0.0)


def test_memory_of_the_same_code_that_moves_is_a_note() -> None:
    points = [replace(point, code_hash="one") for point in world()[0].points[:5]]
    points[3:] = [replace(point, workspace_bytes=600 * 1024**2) for point in points[3:]]
    candidates, notes = one(points)
    assert candidates == ()
    assert only(notes).kind is NoteKind.SAME_CODE


def test_coarser_grade_is_a_candidate() -> None:
    points = list(world()[0].points[:3])
    points[2] = replace(points[2], grade=Grade.COARSE)
    (candidate,), _ = one(points)
    assert (candidate.metric, candidate.change) == (Metric.ERROR, 2.0)


@pytest.mark.parametrize("seed", range(3))
def test_time_step_is_told_where_the_code_changed(seed: int) -> None:
    """Three releases measured over sixty nights: a step may only lie between two of them."""
    points = world(seed, contender=since(30, 1.02))[0].points
    released = [replace(p, code_hash=f"code {n // 30}") for n, p in enumerate(points)]
    (candidate,), _ = one(released)
    assert (candidate.index_before, candidate.index_after) == (29, 30)


def test_time_step_without_new_code_is_a_note() -> None:
    points = world(contender=since(30, 1.05))[0].points
    candidates, notes = one([replace(point, code_hash="one") for point in points])
    assert candidates == ()
    assert only(notes).kind is NoteKind.SAME_CODE
    assert only(notes).change == pytest.approx(math.log(1.05), abs=0.01)


def test_few_points_are_told_as_not_enough_data() -> None:
    found = find_history_changes(world(nights=6))
    assert len(found.not_enough_data) == 9
    assert found.candidates == ()


@pytest.mark.parametrize(("days", "silent"), [(2, False), (3, False), (4, True), (30, True)])
def test_history_without_points_for_three_usual_intervals_is_silent(
    days: int, silent: bool
) -> None:
    histories = world()
    last = histories[0].points[-1].measured_at
    found = find_history_changes(histories, now=last + timedelta(days=days, minutes=-1))
    assert len(found.silent) == (9 if silent else 0)
    if silent:
        assert found.silent[0].usual_interval == timedelta(days=1)
        assert found.silent[0].last_measured_at == last


def test_history_measured_in_one_day_is_never_silent() -> None:
    points = [
        replace(point, measured_at=FIRST_NIGHT + timedelta(minutes=n))
        for n, point in enumerate(world()[0].points)
    ]
    history = History(world()[0].key, tuple(points))
    later = FIRST_NIGHT + timedelta(days=365)
    assert find_history_changes([history], now=later).silent == ()


def test_number_that_is_not_finite_is_refused() -> None:
    points = list(world()[0].points)
    points[3] = replace(points[3], ratio_to_baseline=math.inf)
    with pytest.raises(ValueError, match="values must be finite"):
        one(points)
