"""What a scan makes of histories: releases one by one, nightlies as series, notes told once."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np

from lossbench.service.contract.alert import AlertDirection, AlertKind, AlertMetric
from lossbench.service.contract.words import Grade
from lossbench.service.store.alert_findings import Told, title_of
from lossbench.service.store.alert_histories import StoredPoint
from lossbench.service.store.alert_scan import scan
from lossbench.service.store.series import SeriesKey

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
NOW = BEGIN + timedelta(days=70)
NIGHTS = 60


def key(number: int, kernel: str = "liger") -> SeriesKey:
    return SeriesKey(kernel, "", f"N{1024 * (number + 1)}-H64-V128-bfloat16", "forward", "GPU")


def point(number: int, ratio: float, **changes: object) -> StoredPoint:
    values: dict[str, object] = {
        "result_id": f"run-{number:04d}",
        "version": f"git-{number:012x}",
        "code": f"git-{number:012x}",
        "is_release": False,
        "started_at": BEGIN + timedelta(days=number),
        "environment_id": "a-b",
        "processes": 3,
        "ratio": ratio,
        "ratio_low": ratio * 0.998,
        "ratio_high": ratio * 1.002,
        "baseline_ms": 40.0,
        "floor_ms": 30.0,
        "workspace_bytes": 2**30,
        "grade": Grade.FAIR,
        **changes,
    }
    return StoredPoint(**values)  # type: ignore[arg-type]


def nights(
    seed: int, step: float = 1.0, since: int = 40, baseline: float = 1.0, floor: float = 1.0
) -> list[StoredPoint]:
    """Sixty nightly commits; from night `since` on times are changed by these factors."""
    noise = np.random.default_rng(seed).normal(0.0, 0.004, (NIGHTS, 2))
    made = []
    for night, (own, common) in enumerate(np.exp(noise)):
        after = night >= since
        made.append(
            point(
                night,
                0.8 * own * (step if after else 1.0),
                baseline_ms=40.0 * common * (baseline if after else 1.0),
                floor_ms=30.0 * common * (floor if after else 1.0),
            )
        )
    return made


def releases(*ratios: float) -> list[StoredPoint]:
    return [
        point(number, ratio, version=f"0.{number}.0", code=f"0.{number}.0", is_release=True)
        for number, ratio in enumerate(ratios)
    ]


def test_quiet_histories_have_nothing_to_tell() -> None:
    found = scan({key(n): nights(n) for n in range(8)}, NOW)
    assert (found.cases, found.notes) == ([], [])
    assert found.histories == 8


def test_slower_commit_is_one_case_of_its_version() -> None:
    found = scan({key(0): nights(0, step=1.05), key(1): nights(1)}, NOW)
    (case,) = found.cases
    assert (case.metric, case.direction) == (AlertMetric.TIME, AlertDirection.WORSE)
    assert abs(int(case.after_version.removeprefix("git-"), 16) - 40) <= 1
    assert case.ratio is not None
    assert abs(case.ratio - 1.05) < 0.01
    assert case.inputs["method"] == "history_changes"
    assert not case.is_exact


def test_step_of_all_histories_is_one_note_and_no_change_of_a_kernel() -> None:
    kernels = ("liger", "cce", "flce")
    shifted = {
        key(n, kernels[n % 3]): nights(n, step=1.0, baseline=1.07, floor=1.07) for n in range(9)
    }
    found = scan(shifted, NOW)
    assert found.cases == []
    (note,) = found.notes
    assert note.kind is AlertKind.ENVIRONMENT
    assert "7." in note.title
    moved = {key(n, kernels[n % 3]): nights(n, step=1.07) for n in range(9)}
    again = scan(moved, NOW)
    assert again.cases == []
    assert [each.kind for each in again.notes] == [AlertKind.ENVIRONMENT]


def test_baseline_that_moves_alone_is_one_note_and_no_change_of_a_kernel() -> None:
    kernels = ("liger", "cce", "flce")
    moved = {key(n, kernels[n % 3]): nights(n, step=1 / 1.03, baseline=1.03) for n in range(9)}
    found = scan(moved, NOW)
    assert found.cases == []
    assert [note.kind for note in found.notes] == [AlertKind.BASELINE]


def test_releases_are_compared_with_the_one_before_and_batched() -> None:
    found = scan({key(0): releases(0.8, 0.8, 0.9, 0.8), key(1): releases(0.5, 0.5, 0.5, 0.5)}, NOW)
    told = [(case.before_version, case.after_version, case.direction) for case in found.cases]
    assert told == [
        ("0.1.0", "0.2.0", AlertDirection.WORSE),
        ("0.2.0", "0.3.0", AlertDirection.BETTER),
    ]
    assert len(found.tests) == 6
    assert found.cases[0].adjusted_p_value is not None
    assert found.cases[0].p_value is not None
    assert found.cases[0].adjusted_p_value > found.cases[0].p_value


def test_twins_are_one_release() -> None:
    twin = point(3, 0.95, version="0.2.1", code="0.1.0", is_release=True)
    found = scan({key(0): [*releases(0.8, 0.8), twin]}, NOW)
    assert [case.before_version for case in found.cases] == ["0.0.0"]
    assert found.cases[0].after_version == "0.2.1", "the newest result of that code"


def test_memory_of_releases_is_exact() -> None:
    before, after = releases(0.8, 0.8)
    grown: Sequence[StoredPoint] = [before, replace(after, workspace_bytes=2**31)]
    (case,) = scan({key(0): grown}, NOW).cases
    assert (case.before, case.after, case.ratio) == ("1,024.0 MiB", "2,048.0 MiB", 2.0)
    assert case.is_exact


def test_title_counts_cases_and_spans_sizes() -> None:
    cases = [
        Told(AlertMetric.TIME, AlertDirection.WORSE, 1.08),
        Told(AlertMetric.TIME, AlertDirection.WORSE, 1.123),
        Told(AlertMetric.MEMORY, AlertDirection.BETTER, 0.5),
        Told(AlertMetric.ERROR, AlertDirection.WORSE, None),
    ]
    assert title_of("liger", "0.6.2", "0.6.5", cases) == (
        "liger 0.6.2 -> 0.6.5: slower by 8 % to 12 % on 2 cases; less workspace by 50 % on 1 case; "
        "less exact on 1 case"
    )
    doubled = [Told(AlertMetric.MEMORY, AlertDirection.WORSE, 2.0)]
    assert title_of("a", "1", "2", doubled) == "a 1 -> 2: more workspace by 100 % on 1 case"
