"""Identifiers sort by the time that they were made."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lossbench.service.contract import ids

FIRST_MS = 1_577_836_800_000


def id_at(milliseconds: int, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(time, "time_ns", lambda: milliseconds * 1_000_000)
    return ids.new_id("job")


@given(st.integers(0, 2**40 - 2), st.integers(1, 2**20))
def test_new_id_later_sorts_behind_earlier(since: int, step: int) -> None:
    later = min(since + step, 2**40 - 1)
    with pytest.MonkeyPatch.context() as patch:
        first, second = id_at(FIRST_MS + since, patch), id_at(FIRST_MS + later, patch)
    assert first < second
    assert len(first) == len(second) == len("job-") + 16


def test_new_id_of_the_same_moment_is_unique(monkeypatch: pytest.MonkeyPatch) -> None:
    made = {id_at(FIRST_MS + 5, monkeypatch) for _ in range(1000)}
    assert len(made) == 1000
    assert len({one[:12] for one in made}) == 1


def test_new_id_has_no_letters_that_read_as_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    letters = "".join(id_at(FIRST_MS + n**7, monkeypatch)[4:] for n in range(50))
    assert not set(letters) & set("iluo")
