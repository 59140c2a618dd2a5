"""Transactions while the database is away: made again, and given up in the end."""

from typing import Any

import pytest
import sqlalchemy as sa

from lossbench.service.store.persistence import first_line, passes_by_itself, persistently


def away(text: str = "server closed the connection") -> sa.exc.OperationalError:
    return sa.exc.OperationalError("SELECT 1", {}, Exception(text))


class Flaky:
    """Fails so many times, then answers."""

    def __init__(self, failures: int, error: Exception) -> None:
        self.failures, self.error = failures, error
        self.calls: list[bool] = []
        self.waits: list[float] = []

    def __call__(self, again: bool) -> str:
        self.calls.append(again)
        if len(self.calls) <= self.failures:
            raise self.error
        return "saved"


def test_call_is_made_again_and_knows_that_one_failed_before() -> None:
    flaky = Flaky(4, away())
    assert persistently(flaky, "save", sleep=flaky.waits.append) == "saved"
    assert flaky.calls == [False, True, True, True, True]
    assert flaky.waits == [0.2, 0.4, 0.8, 1.6]


def test_waits_stay_short_however_long_the_database_is_away() -> None:
    flaky = Flaky(20, away())
    persistently(flaky, "save", sleep=flaky.waits.append)
    assert max(flaky.waits) == 2.0


def test_call_is_given_up_after_a_while() -> None:
    with pytest.raises(sa.exc.OperationalError):
        persistently(Flaky(3, away()), "save", give_up_after_s=0.0, sleep=lambda _: None)


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (away("database or disk is full"), True),
        (sa.exc.InterfaceError("SELECT 1", {}, Exception("closed")), True),
        (sa.exc.InternalError("SELECT 1", {}, Exception("idle for too long")), True),
        (sa.exc.TimeoutError("no connection is free"), True),
        (sa.exc.IntegrityError("INSERT", {}, Exception("ck_runs_time_order")), False),
        (sa.exc.ProgrammingError("SELECT", {}, Exception("permission denied")), False),
        (ValueError("not of the database"), False),
    ],
)
def test_only_what_may_pass_by_itself_is_tried_again(error: Exception, passes: bool) -> None:
    assert passes_by_itself(error) is passes
    flaky: Any = Flaky(1, error)
    if passes:
        assert persistently(flaky, "save", sleep=lambda _: None) == "saved"
    else:
        with pytest.raises(type(error)):
            persistently(flaky, "save", sleep=lambda _: None)
        assert flaky.calls == [False]


def test_log_shows_what_the_driver_said_in_one_line() -> None:
    cause = RuntimeError("server closed the connection\nunexpectedly")
    error = sa.exc.OperationalError("INSERT INTO runs ...", {"a": 1}, cause)
    error.add_detail("a hint of SQLAlchemy")
    assert first_line(error) == "RuntimeError: server closed the connection"
    assert first_line(ValueError()) == "ValueError: "
