"""Which releases a bisection compares, and what it ends with."""

from collections.abc import Sequence

import pytest

from lossbench.service.cli.bisecting import releases_between, search
from lossbench.service.contract.catalogue import load_catalogue
from lossbench.service.contract.contender import Contender
from lossbench.service.contract.errors import InvalidRequestError, LossbenchError
from lossbench.service.plots.verdicts import Compared

from .rows import row

CATALOGUE = load_catalogue()
WORDS = frozenset({"slower"})


def line(count: int) -> list[Contender]:
    return [Contender.parse(f"liger@0.{number}.0") for number in range(count)]


@pytest.mark.parametrize("first_bad", range(1, 9))
def test_search_ends_at_the_first_bad_release(first_bad: int) -> None:
    releases = line(9)

    def measure(base: Contender, candidate: Contender) -> Sequence[Compared]:
        assert base == releases[0]
        bad = releases.index(candidate) >= first_bad
        return [row("faster"), row("slower" if bad else "no_difference")]

    steps = list(search(releases, measure, WORDS))
    bad = [candidate for _, candidate, why in steps if why]
    assert bad[-1] == releases[first_bad]
    assert len(steps) <= 4, "one for the ends, then the logarithm of eight"


def test_search_stops_where_the_later_release_is_good() -> None:
    steps = list(search(line(9), lambda base, candidate: [row("faster")], WORDS))
    assert [why for _, _, why in steps] == [[]]


def test_search_without_a_verdict_says_on_which_release() -> None:
    with pytest.raises(LossbenchError, match="no verdict on b against a"):
        list(search(line(3), lambda base, candidate: [row("inconclusive")], WORDS))


def test_releases_are_one_of_each_code_in_order() -> None:
    found = releases_between(CATALOGUE, "liger@0.5.0", "liger@0.6.5")
    twins = CATALOGUE.kernels["liger"].twins
    versions = [each.version or "" for each in found]
    assert versions[0] == "0.5.0"
    assert versions[-1] == "0.6.5"
    codes = [twins.get(version, version) for version in versions]
    assert len(set(codes)) == len(codes) > 5
    assert "0.5.2" not in versions, "the same code as 0.5.0"


@pytest.mark.parametrize(
    ("good", "bad", "said"),
    [
        ("liger@0.6.5", "liger@0.5.0", "name the earlier release first"),
        ("liger@0.5.0", "cce@25.1.1", "two releases of one kernel"),
        ("liger@0.5.0", "liger@0.5.2", "run the same code"),
        ("liger@0.5.0[", "liger@0.5.2", "is not a contender"),
        ("liger@9.9", "liger@0.5.2", "9.9"),
    ],
)
def test_ends_that_cannot_be_are_refused(good: str, bad: str, said: str) -> None:
    with pytest.raises(InvalidRequestError, match=said):
        releases_between(CATALOGUE, good, bad)
