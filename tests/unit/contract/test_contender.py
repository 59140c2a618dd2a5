"""The contender's text form: it round-trips, and what would not is refused."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from lossbench.service.contract.contender import Contender, ParamValue, parse_value

RESERVED = ("true", "false", "null", "nan", "inf", "infinity")
NAMES = st.from_regex(r"[a-z][a-z0-9_-]{0,20}", fullmatch=True)
KEYS = st.from_regex(r"[a-z][a-z0-9_]{0,12}", fullmatch=True)
WORDS = st.from_regex(r"[a-z][a-z0-9_.\-]{0,12}", fullmatch=True).filter(
    lambda word: word not in RESERVED
)
VERSIONS = st.none() | st.from_regex(r"[A-Za-z0-9][A-Za-z0-9.+!_\-]{0,12}", fullmatch=True)
VALUES: st.SearchStrategy[ParamValue] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    WORDS,
)
CONTENDERS = st.builds(
    Contender, kernel=NAMES, version=VERSIONS, params=st.dictionaries(KEYS, VALUES, max_size=4)
)


@given(CONTENDERS)
def test_contender_text_parsed_again_gives_equal_contender(contender: Contender) -> None:
    again = Contender.parse(contender.text)
    assert again == contender
    assert again.text == contender.text
    assert {key: type(value) for key, value in again.params.items()} == {
        key: type(value) for key, value in contender.params.items()
    }


@given(st.text(max_size=40) | st.from_regex(r"[a-z@\[\]=,0-9._ \-]{1,30}", fullmatch=True))
def test_contender_of_any_text_is_refused_or_round_trips(text: str) -> None:
    try:
        contender = Contender.parse(text)
    except ValueError:
        return
    assert Contender.parse(contender.text) == contender


@given(CONTENDERS)
def test_contender_json_read_again_gives_equal_contender(contender: Contender) -> None:
    assert Contender.model_validate_json(contender.model_dump_json()).text == contender.text


@pytest.mark.parametrize(
    ("text", "kernel", "version", "params"),
    [
        ("flce", "flce", None, {}),
        ("liger@0.8.5", "liger", "0.8.5", {}),
        ("a[z=1,b=-2]", "a", None, {"b": -2, "z": 1}),
        ("a@1!2.0+cu12[x=1e-05]", "a", "1!2.0+cu12", {"x": 1e-05}),
        (
            "a[b=true,c=null,d=float32,e=1.0]",
            "a",
            None,
            {"b": True, "c": None, "d": "float32", "e": 1.0},
        ),
    ],
)
def test_contender_parse_reads_every_part(
    text: str, kernel: str, version: str | None, params: dict[str, ParamValue]
) -> None:
    found = Contender.parse(text)
    assert (found.kernel, found.version, found.params) == (kernel, version, params)


def test_contender_text_sorts_its_keys() -> None:
    assert Contender(kernel="a", params={"z": 1, "b": "x"}).text == "a[b=x,z=1]"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "A",
        "1a",
        "a b",
        " a",
        "a\n",
        "a@",
        "a@@1",
        "a@1 2",
        "a@-1",
        "a[",
        "a]",
        "a[x]",
        "a[x=]",
        "a[x=1",
        "a[x=[1]]",
        "a[x=1]]",
        "a[x=1,x=2]",
        "a[x= 1]",
        "a[x=1 ]",
        "a[x=Word]",
        "a[X=1]",
        "a[x=1_000]",
        "a[x=٣]",
        "a[x=nan]",
        "a[x=inf]",
        "a[x=-inf]",
        "a[x=infinity]",
        "a[x=1e999]",
        "a" * 65,
    ],
)
def test_contender_of_malformed_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        Contender.parse(text)


@pytest.mark.parametrize(
    "value",
    [*RESERVED, "5", "1.5", "1e5", "a b", "a]", "a,b", "a=b", "", "Word", math.nan, math.inf],
)
def test_contender_with_param_that_would_not_round_trip_is_refused(value: Any) -> None:
    with pytest.raises(ValidationError):
        Contender(kernel="a", params={"x": value})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", 7),
        ("-7", -7),
        ("0.5", 0.5),
        (".5", 0.5),
        ("2.", 2.0),
        ("1e-05", 1e-05),
        ("1E3", 1000.0),
        ("true", True),
        ("null", None),
        ("e5", "e5"),
        ("float32", "float32"),
    ],
)
def test_parse_value_keeps_the_kind(text: str, value: ParamValue) -> None:
    assert parse_value(text) == value
    assert type(parse_value(text)) is type(value)
