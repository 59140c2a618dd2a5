"""The change detector's targets, on seeded series; each limit has a mutant that breaks it."""

from typing import Any

import change_figures as figures
import numpy as np
import pytest
from change_figures import CLEAN, clean_series, false_alarms
from detection_series import two_modes

from lossbench.service.statistics import change_points, change_points_noise, change_points_search
from lossbench.service.statistics.change_points_noise import Noise, around_levels

ENDS = (figures.ENDS, figures.ENDS)


def test_one_of_a_thousand_clean_series_at_most_has_an_alarm() -> None:
    assert figures.false_rate("white") <= 1.0


@pytest.mark.parametrize("kind", ["1 % outliers", "AR(1) of 0.5"])
def test_outliers_and_noise_that_lingers_hardly_add_alarms(kind: str) -> None:
    """Thresholds are made for 1.0 in the worst kind; 4,000 series tell 1.0 from 2.5."""
    assert figures.false_rate(kind) <= 2.5


def test_every_step_of_5_percent_is_found() -> None:
    assert figures.hits("white", 0.05, 0.005, ENDS, 1000).near == 1.0
    assert figures.hits("1 % outliers", 0.05, 0.005, ENDS, 1000).near >= 0.995


def test_every_step_of_5_percent_is_found_at_a_noise_of_1_percent() -> None:
    assert figures.hits("white", 0.05, 0.01, ENDS, 1000).near == 1.0


@pytest.mark.parametrize("kind", ["white", "1 % outliers"])
def test_95_percent_of_steps_of_2_percent_are_found_within_three_points(kind: str) -> None:
    found = figures.hits(kind, 0.02, 0.005, ENDS, 1000)
    assert found.near >= 0.95
    assert found.alone >= 0.95


def test_step_of_5_percent_is_always_told_after_three_points() -> None:
    assert figures.after(3, 0.05) >= 0.99
    assert figures.after(4, 0.05) == 1.0
    assert figures.after(3, 0.02) >= 0.85


def test_thirty_points_mostly_show_a_step_of_2_percent_and_fifteen_one_of_5() -> None:
    assert figures.found_in(30, 0.02) >= 0.85
    assert figures.found_in(15, 0.05) >= 0.95


def test_1000_points_take_less_than_20_ms() -> None:
    assert figures.cpu_ms() < 20.0


def two_mode_series() -> Any:
    """1,000 clean series of 100 points, each of one of two configurations 2 % apart."""
    return 0.005 * two_modes(np.random.default_rng(20261201), 1000, 100)


def test_lottery_between_two_configurations_is_no_change() -> None:
    assert false_alarms(two_mode_series()) <= 3


def test_detector_that_takes_the_rarer_mode_for_outliers_exceeds_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(change_points_noise, "MOST_OUTLIERS", 1.0)
    assert false_alarms(two_mode_series()) > 50


def test_figures_are_shown(shown: list[str]) -> None:
    shown.append(figures.table())


def test_detector_without_its_outlier_filter_exceeds_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(change_points_search, "without_outliers", lambda values: values)
    series = clean_series("1 % outliers", CLEAN["1 % outliers"])[:1000]
    assert false_alarms(series) > 5


def test_detector_that_takes_points_for_independent_exceeds_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def independent(values: object, edges: object, of_differences: float) -> Noise:
        return Noise(around_levels(values, edges, 0.0).deviation, 0.0)  # type: ignore[arg-type]

    monkeypatch.setattr(change_points_search, "around_levels", independent)
    assert false_alarms(clean_series("AR(1) of 0.5", 500)) > 5


def test_p_value_of_each_place_alone_exceeds_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant that forgets that a series has many places: a two-sided normal tail."""
    monkeypatch.setattr(change_points, "p_value", lambda strength, count: float(strength < 3.29))
    assert false_alarms(clean_series("white", 500)) > 5
