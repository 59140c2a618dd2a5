"""Follow a job of a service to its end, with a progress bar, and print its report."""

from collections.abc import Iterable

from ..client import LossbenchClient
from ..contract.comparison import ComparisonView
from ..contract.result import CellView, JobView, Result
from ..contract.words import FAILURES, JobKind, JobState
from ..settings import Settings
from .output import console, print_json
from .progress import CellProgress, progress_bar
from .reports import print_report
from .verdicts import print_compared


def client_for(url: str | None) -> LossbenchClient:
    """A client for the given address, the setting, or the default one of this machine."""
    settings = Settings()
    address = url or settings.url or f"http://{settings.host}:{settings.port}"
    return LossbenchClient(address, settings.token)


def follow_job(client: LossbenchClient, job_id: str, as_json: bool = False) -> int:
    """Show progress until the job ends, then its report; returns the exit code."""
    follow_events(client, client.job(job_id))
    job, pairs = job_report(client, job_id)
    if job.kind is JobKind.COMPARE:
        print_compared(pairs, newest_comparisons(client, job_id), as_json)
        if not as_json:
            _print_end(client, job)
        return exit_code(job)
    if as_json:
        print_json(
            {
                "job": job.model_dump(mode="json"),
                "cells": [cell.model_dump(mode="json", by_alias=True) for cell, _ in pairs],
                "results": [
                    result.model_dump(mode="json", by_alias=True) for _, result in pairs if result
                ],
            }
        )
    else:
        print_report(pairs)
        _print_end(client, job)
    return exit_code(job)


def _print_end(client: LossbenchClient, job: JobView) -> None:
    counts = ", ".join(f"{count} {outcome}" for outcome, count in job.outcomes.items())
    reason = f" ({job.reason})" if job.reason else ""
    console.print(f"{job.id} {job.state}{reason}: {counts}  {client.url}/jobs/{job.id}")


def newest_comparisons(client: LossbenchClient, job_id: str) -> list[ComparisonView]:
    """The newest comparison of each case and pass of a job: a retry makes new ones."""
    found: dict[tuple[str, str], ComparisonView] = {}
    for each in client.comparisons(job=job_id):
        found.setdefault((each.case, each.pass_), each)
    return list(found.values())


def exit_code(job: JobView) -> int:
    """0 when the job is done and no cell is wrong, failed, timed out or cancelled; else 1."""
    bad = any(outcome in FAILURES for outcome in job.outcomes)
    return 0 if job.state is JobState.DONE and not bad else 1


def follow_events(client: LossbenchClient, job: JobView) -> None:
    """Draw the progress bar from the job's events until it ends."""
    with progress_bar(job.cells_total, job.id) as progress:
        for event in client.watch(job.id):
            if event.kind == "cell":
                _draw(progress, event.data)
            elif event.kind == "log":
                progress.say(str(event.data.get("line", "")))


def _draw(progress: CellProgress, cell: dict[str, object]) -> None:
    number = int(str(cell["position"]))
    if cell["outcome"]:
        progress.done(number, f"{cell['contender']} {cell['outcome']}")
    else:
        done, total = int(str(cell["visits_done"])), int(str(cell["visits_total"]))
        progress.visits({number: (done, total)})


def job_report(
    client: LossbenchClient, job_id: str
) -> tuple[JobView, list[tuple[CellView, Result | None]]]:
    """The job with all its cells and their results."""
    results: Iterable[Result] = client.results(job=job_id, include_invalid=True)
    by_id = {result.id: result for result in results}
    cells = client.cells(job_id)
    return client.job(job_id), [(cell, by_id.get(cell.result_id or "")) for cell in cells]
