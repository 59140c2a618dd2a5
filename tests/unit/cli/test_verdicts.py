"""Which words of `--fail-on` hold of a comparison, and how its rows read."""

import pytest

from lossbench.service.cli.verdicts import plain_row, print_rows, regressions
from lossbench.service.contract.words import Outcome, Verdict
from lossbench.service.plots.verdicts import Compared, verdict_rows

from .rows import CASE, MIB, row


@pytest.mark.parametrize(
    ("found", "words", "expected"),
    [
        (row("slower"), {"slower"}, ["slower"]),
        (row("slower"), {"wrong", "failed"}, []),
        (row("faster"), {"slower"}, []),
        (row("inconclusive"), {"inconclusive"}, ["inconclusive"]),
        (row("inconclusive", "wrong"), {"slower", "wrong"}, ["wrong"]),
        (row("inconclusive", "wrong"), {"slower"}, []),
        (row("inconclusive", "failed"), {"failed"}, ["failed"]),
        (row(None, "unsupported"), {"unsupported"}, ["unsupported"]),
        (row(None, "unsupported"), {"inconclusive"}, ["inconclusive"]),
        (row(workspace_bytes=402 * MIB), {"memory"}, []),
        (row(workspace_bytes=402 * MIB + 1), {"memory"}, ["memory"]),
        (row(workspace_bytes=1 * MIB), {"memory"}, []),
        (row(grade="fair"), {"error"}, ["error"]),
        (row(grade="exact"), {"error"}, []),
        (row(grade=None), {"error"}, []),
    ],
)
def test_regression_is_what_the_words_name(
    found: Compared, words: set[str], expected: list[str]
) -> None:
    assert regressions(found, frozenset(words)) == expected


@pytest.mark.parametrize(
    ("outcome", "fails"),
    [("ok", False), ("unsupported", False), ("out_of_memory", False), ("wrong", True),
     ("failed", True), ("timed_out", True), ("cancelled", True)],
)  # fmt: skip
def test_without_words_only_outcomes_fail(outcome: str, fails: bool) -> None:
    assert bool(regressions(row("slower", outcome), None)) is fails


def test_row_has_the_digits_that_half_a_per_cent_needs(capsys: pytest.CaptureFixture[str]) -> None:
    (text,) = verdict_rows([row("slower")])
    assert (text.words, text.ratio, text.interval) == ("slower", "1.004×", "1.002 – 1.006")
    assert (text.detectable, text.processes) == ("0.53 %", "8")
    assert text.workspaces == ("400 MiB", "400 MiB")
    print_rows([row("slower")], "markdown")
    line = capsys.readouterr().out.splitlines()[-1]
    assert line.startswith(f"| `{CASE}`, forward | slower | 1.004× (1.002 – 1.006) | 0.53 % | 8 |")


def test_refused_row_says_why_and_has_no_verdict() -> None:
    found = row(None, "unsupported")
    (text,) = verdict_rows([found])
    assert (text.verdict, text.words, text.reason) == ("not_measured", "not measured", "because")
    plain = plain_row(found)
    assert (plain["verdict"], plain["comparison"], plain["reason"]) == (None, None, "because")
    assert plain["candidate"]["outcome"] is Outcome.UNSUPPORTED
    assert plain_row(row("faster"))["verdict"] is Verdict.FASTER
