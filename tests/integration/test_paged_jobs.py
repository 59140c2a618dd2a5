"""Pages of jobs with many cases show them in parts; what they say of all cases is of all."""

from __future__ import annotations

from typing import Any

import pytest

from .test_known_reports import Bench

SHAPES = [{"tokens": n, "hidden": 64, "vocab": 1024} for n in (64, 128, 256)]
CASES = [f"N{n}-H64-V1024-bfloat16" for n in (64, 128, 256)]


@pytest.fixture
def paged(any_service: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[Bench, str]:
    """A job of two contenders on three shapes, of which one fits a page; on both engines."""
    monkeypatch.setattr("lossbench.web.queries.PAGE_CELLS", 2)
    monkeypatch.setattr("lossbench.web.compare_pages.PAGE_ROWS", 1)
    bench = Bench(any_service)
    return bench, bench.measure(contenders=["torch-naive", "flce"], shapes=SHAPES)


def cases_in(text: str) -> list[str]:
    """Cases that have a table of results on a job's page."""
    return [case for case in CASES if f"Results of {case}" in text]


def test_job_page_shows_each_case_once_over_its_parts(paged: tuple[Bench, str]) -> None:
    bench, job = paged
    parts = [bench.page(f"/jobs/{job}", first=first) for first in range(3)]
    assert [cases_in(part) for part in parts] == [[case] for case in CASES]
    assert "Cases 1 to 1 of 3" in parts[0]
    assert 'rel="prev"' not in parts[0]
    assert f'rel="next" href="/jobs/{job}?first=1"' in parts[0]
    assert f'rel="prev" href="/jobs/{job}?first=1"' in parts[2]
    assert 'rel="next"' not in parts[2]
    assert all("6 cells" in part for part in parts)


def test_part_behind_the_last_case_is_the_last_one(paged: tuple[Bench, str]) -> None:
    bench, job = paged
    assert cases_in(bench.page(f"/jobs/{job}", first=900)) == CASES[2:]


def test_comparison_of_a_job_shows_a_part_and_means_of_all(paged: tuple[Bench, str]) -> None:
    bench, job = paged
    parts = [bench.page("/compare", job=job, first=first) for first in range(3)]
    for number, part in enumerate(parts):
        assert "3 common cases" in part
        shown = [case for case in CASES if f"{case}<br>" in part]
        assert shown == [CASES[number]]
    assert "&amp;first=1" in parts[0]


def test_small_job_has_no_parts(service: Any) -> None:
    bench = Bench(service)
    job = bench.measure(contenders=["torch-naive", "flce"], shapes=SHAPES)
    text = bench.page(f"/jobs/{job}")
    assert cases_in(text) == CASES
    assert 'aria-label="Cases"' not in text
    assert "first=" not in text.replace(f"/jobs/{job}/live?first=0", "")
