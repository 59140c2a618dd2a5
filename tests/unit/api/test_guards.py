"""Small guards with fake clocks: rate limit, sessions, cursors, ETags, open-mode hosts."""

import pytest
from starlette.datastructures import Headers

from lossbench.service.api.middleware import _open_fault
from lossbench.service.api.paging import decode_cursor, encode_cursor
from lossbench.service.api.rate_limit import RateLimiter
from lossbench.service.api.security import SESSION_S, Sessions, own_origin
from lossbench.service.contract.errors import InvalidRequestError, TooManyRequestsError


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_rate_limit_when_used_up_says_when_and_refills_evenly() -> None:
    clock = Clock()
    limiter = RateLimiter(60, clock)
    for _ in range(60):
        limiter.take("a")
    with pytest.raises(TooManyRequestsError) as caught:
        limiter.take("a")
    assert caught.value.retry_after_s == 1
    limiter.take("b")
    clock.now += 2.0
    limiter.take("a")
    limiter.take("a")
    with pytest.raises(TooManyRequestsError):
        limiter.take("a")


def test_rate_limit_of_many_addresses_stays_small() -> None:
    clock = Clock()
    limiter = RateLimiter(60, clock)
    for number in range(25_000):
        limiter.take(str(number))
    assert len(limiter._buckets) <= 10_001


def test_session_when_its_time_is_over_is_gone() -> None:
    clock = Clock()
    sessions = Sessions(clock)
    session = sessions.open("tok-1")
    assert sessions.find(session.secret) is session
    clock.now += SESSION_S
    assert sessions.find(session.secret) is None


def test_sessions_over_the_limit_drop_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lossbench.service.api.security.MOST_SESSIONS", 2)
    sessions = Sessions()
    made = [sessions.open("tok-1") for _ in range(3)]
    assert [sessions.find(session.secret) is not None for session in made] == [False, True, True]


def test_cursor_comes_back_as_it_was() -> None:
    cursor = encode_cursor("results", "-latency_ms", 0.1 + 0.2, "run-1")
    assert cursor.isascii()
    parts = decode_cursor("results", cursor, [str, (int, float), str])
    assert parts == ["-latency_ms", 0.1 + 0.2, "run-1"]


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "!",
        "é",
        encode_cursor("jobs", 1),
        encode_cursor("cells", "1"),
        encode_cursor("cells", 2**70),
        encode_cursor("cells", True),
        encode_cursor("cells"),
        encode_cursor("cells", 1, 2),
        "W1tbW1tb",
    ],
)
def test_cursor_of_something_else_is_refused(cursor: str) -> None:
    with pytest.raises(InvalidRequestError):
        decode_cursor("cells", cursor, [int])


@pytest.mark.parametrize("host", ["", "[", "[]", "[::1", "localhost.", "127.0.0.1@x", "0.0.0.0"])
def test_open_mode_with_an_odd_host_is_refused(host: str) -> None:
    assert _open_fault(Headers({"host": host})) is not None


def test_origin_is_own_only_when_scheme_host_and_port_are() -> None:
    def own(origin: str) -> bool:
        return own_origin(Headers({"host": "a.example:1", "origin": origin}), "http")

    assert own("http://A.example:1")
    others = ["https://a.example:1", "http://a.example", "http://a.example:2", "null", "http://["]
    assert not any(own(origin) for origin in others)


def test_origin_by_https_is_own_where_a_proxy_may_end_it() -> None:
    def own(origin: str) -> bool:
        return own_origin(Headers({"host": "a.example", "origin": origin}), "http", proxied=True)

    assert own("https://a.example")
    assert own("http://a.example")
    assert not any(own(o) for o in ("https://b.example", "https://a.example:2", "ftp://a.example"))
