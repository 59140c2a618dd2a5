"""`lossbench claims`: what was said of these kernels, and what the stored results say to it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..contract.claim import ClaimVerdict
from ..contract.claim_evidence import Evidence
from ..contract.errors import InvalidRequestError
from ..plots import text
from ..plots.claims import SIGNS, evidence_value, figure
from .output import console, print_json, print_table

if TYPE_CHECKING:
    from ..api.claim_records import ClaimDetail, ClaimView
    from ..client import LossbenchClient


def register(app: typer.Typer) -> None:
    """Add the command of this file."""
    app.command()(claims)


def claims(
    claim_id: Annotated[
        str | None, typer.Argument(metavar="CLAIM", help="Id of one claim; without it all.")
    ] = None,
    verdict: Annotated[
        list[ClaimVerdict] | None, typer.Option(help="Only these verdicts; may be repeated.")
    ] = None,
    run: Annotated[
        bool, typer.Option("--run", help="Measure: submit the job of each claim listed.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --run: only say what the jobs would do.")
    ] = False,
    url: Annotated[str | None, typer.Option(help="Address of the service.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the claims with their verdicts, one claim with its evidence, or measure them.

    Example: `lossbench claims cast-saves-a-logits-chunk --run`
    """
    from .following import client_for

    if dry_run and not run:
        raise InvalidRequestError("--dry-run goes with --run: add it, or leave both out")
    if claim_id is not None and verdict:
        raise InvalidRequestError("--verdict chooses among all claims: leave out the id or it")
    with client_for(url) as client:
        if claim_id is None:
            words = [each.value for each in verdict] if verdict else None
            shown = list(client.claims(verdict=words))
            details = [client.claim(each.id) for each in shown] if run else []
        else:
            details = [client.claim(claim_id)]
            shown = []
        if run:
            _run(client, details, dry_run, as_json)
        elif claim_id is None:
            _list(shown, as_json)
        else:
            _show(details[0], client.url, as_json)


def _list(shown: "Sequence[ClaimView]", as_json: bool) -> None:
    if as_json:
        print_json([claim.model_dump(mode="json") for claim in shown])
        return
    rows = (
        (_told(claim.verdict), claim.id, figure(claim), _day(claim), claim.title) for claim in shown
    )
    print_table("Claims", ("verdict", "claim", "here", "measured", "title"), rows)


def _told(verdict: ClaimVerdict) -> str:
    return f"{SIGNS[verdict]} {verdict}"


def _day(claim: "ClaimView") -> str:
    return claim.measured_at.date().isoformat() if claim.measured_at else "not measured"


def _show(claim: "ClaimDetail", url: str, as_json: bool) -> None:
    if as_json:
        print_json(claim.model_dump(mode="json", by_alias=True))
        return
    console.print(f"{_told(claim.verdict)}: {claim.title}", style="bold")
    console.print(claim.statement)
    console.print(f"here: {claim.reason}")
    console.print(f"there: {claim.original.figure} ({claim.original.environment})")
    console.print(f"source: {claim.source}")
    console.print(f"page: {url}/claims/{claim.id}")
    for finding in claim.findings:
        console.print(f"\n{_told(finding.verdict)}: {finding.rule}")
        if finding.reason != claim.reason:
            console.print(finding.reason)
        if finding.evidence:
            columns = ("contender", "case", "value", "outcome", "result or job")
            print_table("", columns, map(_row, finding.evidence))
    console.print(f"\nmeasure it: {claim.command}")


def _row(evidence: Evidence) -> tuple[str, ...]:
    told = evidence.result_id or evidence.job_id or text.NONE
    said = evidence_value(evidence)
    return evidence.contender, evidence.case, said, evidence.outcome, told


def _run(
    client: "LossbenchClient", claims: "Sequence[ClaimDetail]", dry_run: bool, as_json: bool
) -> None:
    """Say what each job would do and, unless that is all, submit it."""
    lines: list[dict[str, Any]] = []
    for claim in claims:
        line: dict[str, Any] = {"claim": claim.id}
        if claim.cannot_run:
            line["cannot_run"] = claim.cannot_run
        else:
            plan = client.submit(claim.job, dry_run=True)
            line |= {
                "cells_total": plan.cells_total,
                "cells_to_run": plan.cells_to_run,
                "cells_known": plan.cells_known,
                "cells_refused": plan.cells_refused,
                "estimated_minutes": plan.estimated_minutes,
            }
            if not dry_run:
                line["job"] = client.submit(claim.job).id
        lines.append(line)
        if not as_json:
            console.print(_said(line, client.url), soft_wrap=True)
    minutes = sum(line.get("estimated_minutes", 0.0) for line in lines)
    if as_json:
        print_json(lines)
    elif len(lines) > 1:
        console.print(f"{len(lines)} claims, about {minutes:.1f} minutes in all")


def _said(line: dict[str, Any], url: str) -> str:
    if "cannot_run" in line:
        return f"{line['claim']}: cannot run here: {line['cannot_run']}"
    job = f"  {line['job']}  {url}/jobs/{line['job']}" if "job" in line else ""
    return (
        f"{line['claim']}: {line['cells_total']} cells: {line['cells_to_run']} to run, "
        f"{line['cells_known']} known, {line['cells_refused']} refused; about "
        f"{line['estimated_minutes']:.1f} minutes{job}"
    )
