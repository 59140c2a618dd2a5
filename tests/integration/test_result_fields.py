"""`fields` leaves out what is not asked for and changes nothing else of a list of results."""

from __future__ import annotations

from typing import Any

import pytest

from .test_known_reports import Bench

SHAPES = [{"tokens": n, "hidden": 64, "vocab": 1024} for n in (64, 128, 256)]


@pytest.fixture
def measured(any_service: Any) -> Bench:
    bench = Bench(any_service)
    times = iter((20.0, 10.0, 30.0, 5.0, 25.0, 15.0))
    bench.measure(lambda _cell: next(times), contenders=["torch-naive", "flce"], shapes=SHAPES)
    return bench


@pytest.mark.parametrize(
    "fields", [["latency_ms"], ["contender", "case", "errors"], ["pass", "device_name"], ["id"]]
)
def test_fields_are_those_asked_for_with_the_same_values(
    measured: Bench, fields: list[str]
) -> None:
    whole = measured.got("/results")["items"]
    parts = measured.got("/results", fields=fields)["items"]
    names = {"id", *fields}
    assert parts == [{k: v for k, v in each.items() if k in names} for each in whole]
    assert len(parts) == 6


@pytest.mark.parametrize("fields", [["contender"], ["contender", "latency_ms"]])
def test_pages_follow_an_order_that_is_not_among_the_fields(
    measured: Bench, fields: list[str]
) -> None:
    whole = measured.got("/results", sort="-latency_ms")["items"]
    query: dict[str, Any] = {"sort": "-latency_ms", "fields": fields, "limit": 2}
    found, cursor = [], None
    while True:
        page = measured.got("/results", **query, **({"cursor": cursor} if cursor else {}))
        found += page["items"]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert [each["id"] for each in found] == [each["id"] for each in whole]
    assert all(set(each) == {"id", *fields} for each in found)


def test_unknown_field_is_refused_with_the_nearest_one(service: Any) -> None:
    answer = service.http.get("/api/v1/results", params={"fields": ["case", "latency"]})
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert error["pointer"] == "/query/fields/1"
    assert "no field 'latency'" in error["message"]
    assert "latency_ms" in error["message"]
