"""From claims and stored results to what the API and the pages show."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from ..contract.claim import Claim, ClaimVerdict, Original
from ..contract.claim_evidence import Decided, Finding
from ..contract.run import Record
from ..statistics.claims import decide_claim
from ..store.claim_cells import Wanted, found_for


class ClaimView(Record):
    """A claim as it is listed. `value` is of the part of its rule that decides, where one does.

    `reason` is the sentence of why; `value` with its 95 % interval is a ratio without unit, a
    difference in bytes (`unit` B) or a count.
    """

    id: str
    title: str
    statement: str
    source: str
    ours: bool
    original: Original
    accelerator: str
    cannot_run: str | None
    verdict: ClaimVerdict
    reason: str
    value: float | None
    value_low: float | None
    value_high: float | None
    unit: str
    measured_at: datetime | None
    command: str
    """What measures its cells again."""


class ClaimDetail(ClaimView):
    """A claim with its job, its rule as it is stored, and the findings with their evidence."""

    job: dict[str, Any]
    rule: dict[str, Any]
    findings: tuple[Finding, ...]


def claim_details(session: Session, claims: Sequence[Claim]) -> list[ClaimDetail]:
    """The claims, each decided from what is stored now, in a few queries for all."""
    wanted = [Wanted(leaf, claim.accelerator) for claim in claims for leaf in claim.leaves]
    found = found_for(session, wanted)
    return [_detail(claim, decide_claim(claim, found)) for claim in claims]


def claim_view(detail: ClaimDetail) -> ClaimView:
    """The claim as it is listed."""
    return ClaimView(**{name: getattr(detail, name) for name in ClaimView.model_fields})


def _detail(claim: Claim, decided: Decided) -> ClaimDetail:
    shown = _telling(decided)
    return ClaimDetail(
        id=claim.id,
        title=claim.title,
        statement=claim.statement,
        source=str(claim.source),
        ours=claim.ours,
        original=claim.original,
        accelerator=claim.accelerator,
        cannot_run=claim.cannot_run,
        verdict=decided.verdict,
        reason=decided.reason,
        value=shown.value if shown else None,
        value_low=shown.low if shown else None,
        value_high=shown.high if shown else None,
        unit=shown.unit if shown else "",
        measured_at=decided.measured_at,
        command=f"lossbench claims {claim.id} --run",
        job=claim.job,
        rule=claim.rule.model_dump(mode="json", by_alias=True, exclude_none=True),
        findings=decided.findings,
    )


def _telling(decided: Decided) -> Finding | None:
    """The first finding with a number among those that say the same as the claim."""
    same = [each for each in decided.findings if each.verdict is decided.verdict]
    return next((each for each in same if each.value is not None), None)
