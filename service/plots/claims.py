"""Claims as pages and commands write them: signs, figures, Markdown. No statistics."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from ..contract.claim import ClaimVerdict, Original
from ..contract.claim_evidence import Evidence, Finding
from . import text
from .markdown import markdown_table

SIGNS: Mapping[str, str] = {
    ClaimVerdict.HOLDS: "✓",
    ClaimVerdict.FAILS: "✗",
    ClaimVerdict.UNTESTED: "?",
}
"""One sign for each verdict, so that none is told by colour alone."""


class Told(Protocol):
    """A claim with its verdict."""

    @property
    def id(self) -> str:
        """Its id."""

    @property
    def title(self) -> str:
        """Its title."""

    @property
    def verdict(self) -> ClaimVerdict:
        """What the stored results say."""

    @property
    def original(self) -> Original:
        """Where it was made, and the figure given there."""

    @property
    def value(self) -> float | None:
        """The number that decides."""

    @property
    def value_low(self) -> float | None:
        """Lower end of its 95 % interval."""

    @property
    def value_high(self) -> float | None:
        """Upper end of its 95 % interval."""

    @property
    def unit(self) -> str:
        """B for bytes, else empty."""


def tally(claims: Sequence[Told]) -> str:
    """`27 claims: 3 hold here, 1 fails here, 23 untested`."""
    counts = {verdict: sum(c.verdict is verdict for c in claims) for verdict in ClaimVerdict}
    words = [
        f"{counts[ClaimVerdict.HOLDS]} {'holds' if counts[ClaimVerdict.HOLDS] == 1 else 'hold'}",
        f"{counts[ClaimVerdict.FAILS]} {'fails' if counts[ClaimVerdict.FAILS] == 1 else 'fail'}",
    ]
    return (
        f"{text.plural(len(claims), 'claim')}: {words[0]} here, {words[1]} here, "
        f"{counts[ClaimVerdict.UNTESTED]} untested"
    )


def number(value: float | None, low: float | None, high: float | None, unit: str) -> str:
    """A ratio with its interval, bytes, or a count; `–` for none."""
    if value is None:
        return text.NONE
    if unit == "B":
        return text.in_bytes(round(value))
    if low is None or high is None or low == high:
        return text.digits(value)
    return f"{text.digits(value)} ({text.interval(low, high)})"


def figure(claim: Told) -> str:
    """The number that decides a claim."""
    return number(claim.value, claim.value_low, claim.value_high, claim.unit)


def finding_figure(finding: Finding) -> str:
    """The number of one part of a rule."""
    return number(finding.value, finding.low, finding.high, finding.unit)


def evidence_value(evidence: Evidence) -> str:
    """What the rule read of a result: `41.7 ms`, `1.10 GiB`, the first digits of its bits."""
    value = evidence.value
    if value is None:
        return text.NONE
    if isinstance(value, str):
        return f"{value[:12]}…" if len(value) > 16 else value.replace("_", " ")
    if evidence.unit == "bytes":
        return text.in_bytes(round(value))
    return f"{text.digits(float(value))} {evidence.unit}"


def claims_markdown(claims: Sequence[Told]) -> str:
    """A table of claims, to be pasted."""
    rows = [
        [
            f"{SIGNS[claim.verdict]} {claim.verdict}",
            claim.title,
            figure(claim),
            f"{claim.original.figure} ({claim.original.environment})",
        ]
        for claim in claims
    ]
    return markdown_table(("verdict", "claim", "here", "there"), rows)
