"""The case's text form and its streams of token counts."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from lossbench.service.contract.case import (
    MAX_HIDDEN,
    MAX_TOKENS,
    MAX_VOCAB,
    Case,
    CaseOptions,
    TokenStream,
)
from lossbench.service.contract.words import Dtype, Recipe

SCALES = st.none() | st.floats(0, 1e6, exclude_min=True)
OPTIONS = st.builds(
    CaseOptions,
    bias=st.booleans(),
    class_weight=st.booleans(),
    ignore_index=st.integers(-(2**31), -1),
    ignored_share=st.floats(0, 1),
    label_smoothing=st.floats(0, 1, exclude_max=True),
    softcap=SCALES,
    logit_scale=SCALES,
    lse_square_scale=st.floats(0, 1),
    reduction=st.sampled_from(["mean", "sum", "none"]),
    frozen=st.sampled_from([None, "input", "weight"]),
    accumulate=st.booleans(),
    upstream=st.sampled_from(["one", "random"]),
)


@st.composite
def streams(draw: Callable[[st.SearchStrategy[Any]], Any]) -> TokenStream:
    low, high = sorted(draw(st.lists(st.integers(1, MAX_TOKENS), min_size=2, max_size=2)))
    return TokenStream(
        first=draw(st.integers(1, MAX_TOKENS)),
        random=draw(st.integers(0, 50)),
        low=low,
        high=high,
        jitter=draw(st.integers(0, MAX_TOKENS)),
        last=draw(st.integers(1, MAX_TOKENS)),
        seed=draw(st.integers(0, 2**31 - 1)),
    )


CASES = st.builds(
    Case,
    tokens=st.integers(1, MAX_TOKENS) | streams(),
    hidden=st.integers(1, MAX_HIDDEN),
    vocab=st.integers(2, MAX_VOCAB),
    dtype=st.sampled_from(Dtype),
    options=OPTIONS,
    recipe=st.sampled_from(Recipe),
)


@given(CASES)
def test_case_text_parsed_again_gives_equal_case(case: Case) -> None:
    again = Case.parse(case.text)
    assert again == case
    assert again.text == case.text
    assert hash(again) == hash(case)


def test_case_text_of_defaults_names_only_the_shape() -> None:
    assert Case(tokens=8192, hidden=4096, vocab=128256).text == "N8192-H4096-V128256-bfloat16"


def test_case_text_names_what_differs_with_sorted_keys() -> None:
    options = CaseOptions(softcap=30.0, bias=True, ignore_index=-1)
    case = Case(tokens=8, hidden=4, vocab=16, options=options, recipe=Recipe.TRAINED)
    expected = "N8-H4-V16-bfloat16-bias=true-ignore_index=-1-recipe=trained-softcap=30.0"
    assert case.text == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "N8-H4-V16",
        "N8-H4-V16-bfloat17",
        "N0-H4-V16-bfloat16",
        "N8-H4-V1-bfloat16",
        "N8-H4-V16-bfloat16-",
        "N8-H4-V16-bfloat16-bias",
        "N8-H4-V16-bfloat16-bais=true",
        "N8-H4-V16-bfloat16-bias=true-bias=false",
        "N8-H4-V16-bfloat16-recipe=trained-recipe=normal",
        "N8-H4-V16-bfloat16-recipe=none_such",
        "N8-H4-V16-bfloat16-ignored_share=1.5",
        "N8-H4-V16-bfloat16-ignored_share=nan",
        "N8-H4-V16-bfloat16-softcap=0",
        "N٨-H4-V16-bfloat16",
        "Nstream(first=1,high=9,last=2,low=4,random=3,seed=0,seed=1)-H4-V16-bfloat16",
        "Nstream(first=1,high=3,jitter=0,last=2,low=4,random=3,seed=0)-H4-V16-bfloat16",
        "Nstream()-H4-V16-bfloat16",
        " N8-H4-V16-bfloat16",
    ],
)
def test_case_of_malformed_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        Case.parse(text)


@given(streams())
def test_stream_counts_stay_within_their_bounds(stream: TokenStream) -> None:
    first, *drawn, last = stream.tokens
    assert (first, last) == (stream.first, stream.last)
    assert len(drawn) == stream.random
    assert all(max(1, stream.low - stream.jitter) <= n <= stream.high for n in drawn)


def test_stream_of_one_seed_is_the_same_on_every_machine() -> None:
    fields = {"first": 4096, "random": 5, "low": 4096, "high": 32768, "jitter": 1000, "last": 9}
    stream = TokenStream(**fields, seed=0)
    # written down from CPython 3.11; another value means that stored streams changed meaning
    assert stream.tokens == (4096, 31372, 28021, 17836, 11592, 20352, 9)
    assert TokenStream(**fields, seed=0).tokens == stream.tokens
    assert TokenStream(**fields, seed=1).tokens != stream.tokens


def test_stream_with_low_above_high_is_refused() -> None:
    with pytest.raises(ValidationError, match="low"):
        TokenStream(first=1, random=1, low=5, high=4, last=1)


def test_case_of_a_stream_has_its_largest_count() -> None:
    stream = TokenStream(first=7, random=0, low=1, high=1, last=11)
    assert Case(tokens=stream, hidden=1, vocab=2).max_tokens == 11


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        ({}, set()),
        ({"bias": True, "softcap": 30.0}, {"bias", "softcap"}),
        ({"logit_scale": 1.0}, set()),
        ({"logit_scale": 0.5}, {"logit_scale"}),
        ({"ignored_share": 0.1}, {"ignore_index"}),
        ({"ignore_index": -1}, {"ignore_index"}),
        ({"reduction": "none", "frozen": "weight"}, {"reduction_none", "frozen_weight"}),
        ({"accumulate": True, "upstream": "random"}, set()),
        (
            {"lse_square_scale": 0.1, "label_smoothing": 0.1},
            {"lse_square_scale", "label_smoothing"},
        ),
    ],
)
def test_options_asked_are_the_kernels_words(options: dict[str, Any], asked: set[str]) -> None:
    assert CaseOptions(**options).asked() == asked
