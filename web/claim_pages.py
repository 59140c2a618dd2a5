"""`/claims` and `/claims/{id}`: what was said of these kernels, and what the results say to it."""

from collections.abc import Sequence
from typing import Any

import yaml
from fastapi import APIRouter, Depends, Request, Response

from lossbench.service.api.claim_records import ClaimDetail, claim_details
from lossbench.service.api.claim_routes import ClaimQuery
from lossbench.service.api.context import ServiceContext
from lossbench.service.api.dependencies import may_read
from lossbench.service.api.paging import MOST_VALUES
from lossbench.service.contract.claim import ClaimVerdict, get_claim, load_claims
from lossbench.service.plots.claims import (
    SIGNS,
    claims_markdown,
    evidence_value,
    figure,
    finding_figure,
    tally,
)

from .address import Given, checked, given_of, query_with
from .exports import exports_of
from .rendering import page

COLOURS = {ClaimVerdict.HOLDS: "faster", ClaimVerdict.FAILS: "slower"}
"""Classes of the style sheet; an untested claim is grey."""


def claim_pages(context: ServiceContext) -> APIRouter:
    """Routes of `/claims`."""
    router = APIRouter(include_in_schema=False, dependencies=[Depends(may_read)])

    @router.get("/claims")
    def show_all(request: Request) -> Response:
        given = given_of(request)
        asked = checked(ClaimQuery, given)
        with context.database.reading() as session:
            every = claim_details(session, list(load_claims().values()))
        shown = [each for each in every if not asked.verdict or each.verdict in asked.verdict]
        return page(
            request,
            "claims.html",
            claims=sorted(shown, key=_decided_first),
            tally=tally(every),
            any_decided=any(each.measured_at for each in every),
            asked=asked,
            verdicts=list(ClaimVerdict),
            link=lambda **changed: f"/claims?{query_with(given, **changed)}",
            exports=exports_of(request, ("/claims", query_with(given)), {}, claims_markdown(shown)),
            **_words(),
        )

    @router.get("/claims/{claim_id}")
    def show(request: Request, claim_id: str) -> Response:
        claim = get_claim(claim_id)
        with context.database.reading() as session:
            (detail,) = claim_details(session, [claim])
        return page(
            request,
            "claim.html",
            claim=detail,
            job=yaml.safe_dump(detail.job, sort_keys=False, default_flow_style=None, width=100),
            exports=exports_of(
                request, (f"/claims/{claim_id}", ""), _results_of(detail), claims_markdown([detail])
            ),
            **_words(),
        )

    return router


def _words() -> dict[str, Any]:
    return {
        "verdict_signs": SIGNS,
        "verdict_colours": COLOURS,
        "figure": figure,
        "finding_figure": finding_figure,
        "evidence_value": evidence_value,
    }


def _decided_first(claim: ClaimDetail) -> tuple[bool, bool]:
    """What is known first, then what can be measured, then what cannot."""
    untested = claim.verdict is ClaimVerdict.UNTESTED
    return untested, untested and claim.cannot_run is not None


def _results_of(claim: ClaimDetail) -> Given:
    """Filters of the results that its verdict rests on."""
    found = [each for finding in claim.findings for each in finding.evidence]
    return {
        "contender": _each([e.contender for e in found]),
        "case": _each([e.case for e in found]),
    }


def _each(names: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(names))[:MOST_VALUES]
