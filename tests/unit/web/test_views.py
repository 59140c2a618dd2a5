"""What the pages of maps, fronts and history are made of, without a service."""

from datetime import UTC, datetime
from typing import Any

import pytest
from starlette.requests import Request

from lossbench.service.api.series_routes import MapQuery
from lossbench.service.contract.errors import InvalidRequestError
from lossbench.service.store.aggregates import Brief
from lossbench.web.address import checked, given_of, kept_fields, query_with
from lossbench.web.changes import change_between
from lossbench.web.exports import exports_of
from lossbench.web.format import heat


def request(query: str) -> Request:
    headers = [(b"host", b"box:8000")]
    return Request(
        {
            "type": "http", "method": "GET", "path": "/shapes", "query_string": query.encode(),
            "headers": headers, "scheme": "http", "server": ("box", 8000), "root_path": "",
        }
    )  # fmt: skip


def test_empty_fields_of_a_form_are_no_filters() -> None:
    assert given_of(request("gpu=&pass=+&kernel=flce&kernel=liger")) == {
        "kernel": ["flce", "liger"]
    }


def test_checked_names_what_is_unknown() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        checked(MapQuery, {"kernl": ["flce"], "pass": ["sideways"]})
    text = str(caught.value)
    assert "kernl" in text
    assert "pass" in text


def test_checked_refuses_two_values_where_one_fits() -> None:
    with pytest.raises(InvalidRequestError, match="takes one value"):
        checked(MapQuery, {"max_error_grade": ["fair", "poor"]})


def test_query_with_replaces_and_leaves_out() -> None:
    given = {"gpu": ["a b"], "pass": ["forward"], "model": ["llama-3-8b"]}
    assert query_with(given, without=("model",), pass_="backward") == "gpu=a+b&pass=backward"
    assert query_with(given, gpu=None, model=None) == "pass=forward"


def test_a_form_carries_on_what_it_has_no_field_for() -> None:
    given = {"gpu": ["H200"], "kernel": ["flce", "liger"]}
    assert kept_fields(given, ("gpu", "pass")) == [("kernel", "flce"), ("kernel", "liger")]


def test_exports_take_only_the_filters_of_results() -> None:
    given = {"gpu": ["H200"], "max_error_grade": ["poor"], "settings": ["x"], "pass": ["forward"]}
    found = exports_of(request("gpu=H200"), ("/shape-map", "gpu=H200"), given, "| a |")
    assert found.csv == "/api/v1/export/results.csv?gpu=H200&pass=forward"
    assert found.parquet == "/api/v1/export/results.parquet?gpu=H200&pass=forward"
    assert found.link == "http://box:8000/shapes?gpu=H200"
    assert found.command == "curl -s 'http://box:8000/api/v1/shape-map?gpu=H200'"


def test_a_quote_in_a_filter_cannot_end_the_command() -> None:
    found = exports_of(request(""), ("/shape-map", "gpu=a'; rm -rf ~'"), {}, "")
    assert found.command.count("'") == 2


@pytest.mark.parametrize(("tint", "side"), [(-40, "better"), (40, "worse"), (0, "worse")])
def test_heat_is_blue_for_less_and_orange_for_more(tint: int, side: str) -> None:
    assert f"var(--{side}) {abs(tint)}%" in heat(tint)


def row(version: str, day: int, **changed: Any) -> Brief:
    return Brief(
        id=f"run-{version}", contender=f"liger@{version}", kernel="liger", version=version,
        params="", case="N64-H64-V64-bfloat16", pass_="forward", tokens=64, hidden=64, vocab=64,
        dtype="bfloat16", device_name="H200", environment_id="a-b", outcome="ok", reason=None,
        grade="exact", flags=[], baseline="torch-naive", latency_ms=1.0, latency_low_ms=None,
        latency_high_ms=None, ratio=1.0, ratio_low=0.99, ratio_high=1.01, floor_ratio=None,
        workspace_bytes=2**30, started_at=datetime(2026, 11, day, tzinfo=UTC),
    )._replace(**changed)  # fmt: skip


def test_change_goes_from_the_lower_to_the_higher_version_whatever_was_measured_first() -> None:
    faster = row("0.10.0", 1, ratio=0.5, ratio_low=0.49, ratio_high=0.51)
    for pair in ((faster, row("0.9.0", 2)), (row("0.9.0", 2), faster)):
        change = change_between(*pair)
        assert change is not None
        assert (change.before, change.after, change.way) == ("0.9.0", "0.10.0", "faster")
        assert change.time == "1.00× → 0.500×"


def test_change_within_the_intervals_is_none() -> None:
    near = row("2", 2, ratio=1.005, ratio_low=0.995, ratio_high=1.015)
    assert change_between(row("1", 1), near) is None


def test_change_of_memory_or_grade_alone_is_one() -> None:
    more = change_between(row("1", 1), row("2", 2, workspace_bytes=2**31))
    assert more is not None
    assert (more.way, more.memory, more.error) == ("", "1.00 GiB → 2.00 GiB", "")
    worse = change_between(row("1", 1), row("2", 2, grade="poor"))
    assert worse is not None
    assert worse.error == "exact → poor"


def test_times_over_different_baselines_are_no_change() -> None:
    other = row("2", 2, baseline="torch-compile", ratio=0.1, ratio_low=0.1, ratio_high=0.1)
    assert change_between(row("1", 1), other) is None
