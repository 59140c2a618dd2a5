"""Version expressions: what a range stands for, and what is no range."""

import pytest

from lossbench.service.contract.contender import Contender
from lossbench.service.contract.versions import (
    first_of_its_code,
    matching,
    names_several,
    tidy_range,
)

VERSIONS = ("0.4.9", "0.5.0", "0.5.1", "0.5.2", "0.5.10", "0.6.0", "0.7.0rc1", "0.7.0")
TWINS = {"0.5.1": "0.5.0", "0.5.2": "0.5.0", "0.6.0": "0.5.10"}


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("all", ["0.4.9", "0.5.0", "0.5.10", "0.7.0rc1", "0.7.0"]),
        (">=0.5,<0.7", ["0.5.0", "0.5.10"]),
        # the first of a code inside the range, where its first release lies outside
        (">0.5.0,<0.5.10", ["0.5.1"]),
        (">=0.6", ["0.6.0", "0.7.0"]),
        (">=0.6,!=0.6.0", ["0.7.0"]),
        ("~=0.5.1", ["0.5.1", "0.5.10"]),
        ("==0.5.*", ["0.5.0", "0.5.10"]),
        ("<0.5", ["0.4.9"]),
        # PEP 440: a pre-release only where the range names one
        (">=0.7.0rc1", ["0.7.0rc1", "0.7.0"]),
        (">9", []),
    ],
)
def test_matching_of_an_expression_gives_one_release_a_code(
    expression: str, found: list[str]
) -> None:
    assert matching(expression, VERSIONS, TWINS) == found


def test_matching_of_what_is_no_release_lies_in_no_range() -> None:
    versions = ("git-0123456789ab", "path-0123456789ab")
    assert matching(">=0", versions, {}) == []
    assert matching("all", versions, {}) == list(versions)


def test_first_of_its_code_follows_twins_of_twins_and_ends() -> None:
    assert first_of_its_code("3", {"3": "2", "2": "1"}) == "1"
    assert first_of_its_code("3", {"3": "2", "2": "3"}) == "2"


@pytest.mark.parametrize("text", ["> 0.5, <0.7", " >0.5,\n<0.7"])
def test_tidy_range_takes_spaces_out(text: str) -> None:
    assert tidy_range(text) == ">0.5,<0.7"


@pytest.mark.parametrize(
    "text", [">", ">=", "=0.5", "===0.5", ">=0.5,", ">=0.5,0.7", "<>1", ">=a.b", ">=1 ; x", ">=-1"]
)
def test_tidy_range_of_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a range of versions"):
        tidy_range(text)


@pytest.mark.parametrize(
    ("version", "several"),
    [(None, False), ("latest", False), ("0.5", False), ("all", True), ("==0.5", True)],
)
def test_names_several_tells_expressions_from_versions(version: str | None, several: bool) -> None:
    assert names_several(version) is several


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("liger@>=0.5,<0.7", "liger@>=0.5,<0.7"),
        ("liger@>=0.5, <0.7[accum_dtype=float32]", "liger@>=0.5,<0.7[accum_dtype=float32]"),
        ("liger@all", "liger@all"),
        ("liger@==0.5.*", "liger@==0.5.*"),
    ],
)
def test_contender_at_an_expression_round_trips(written: str, text: str) -> None:
    contender = Contender.parse(written)
    assert contender.text == text
    assert Contender.parse(text) == contender
    assert Contender.model_validate_json(contender.model_dump_json()) == contender


def test_contender_that_is_half_a_range_says_to_quote_it() -> None:
    with pytest.raises(ValueError, match="in quotes"):
        Contender.parse("<0.7")


@pytest.mark.parametrize("version", [">=0.5,", "0.5 ", "a b", ">" * 70, ">=0.5," * 12 + "<1"])
def test_contender_at_a_malformed_version_is_refused(version: str) -> None:
    with pytest.raises(ValueError, match=r"version|at most 64"):
        Contender(kernel="liger", version=version)
