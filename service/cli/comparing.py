"""`lossbench compare`: two contenders in turns until a verdict; also a gate for CI."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from ..contract.errors import InvalidRequestError
from ..contract.job import FEWEST_COMPARED, MOST_COMPARED, JobRequest
from ..contract.plan import nearest
from ..contract.words import JobKind, Outcome, Verdict
from .measuring import (
    AsJson,
    Dtypes,
    Options,
    Passes,
    Shapes,
    Url,
    make_request,
    measure_here,
    more_fields,
)
from .output import console

if TYPE_CHECKING:
    from ..plots.verdicts import Compared

FAIL_WORDS = (
    Verdict.SLOWER.value,
    Verdict.INCONCLUSIVE.value,
    "memory",
    "error",
    *(outcome.value for outcome in Outcome if outcome is not Outcome.OK),
)
"""What `--fail-on` takes: verdicts, outcomes of the candidate, more memory, a worse error grade."""


def register(app: typer.Typer) -> None:
    """Add the command of this file."""
    app.command()(compare)


def compare(
    base: Annotated[str, typer.Argument(help="Contender A, which ratios divide by.")],
    candidate: Annotated[str, typer.Argument(help="Contender B.")],
    shape: Shapes = None,
    dtype: Dtypes = None,
    pass_: Passes = None,
    option: Options = None,
    processes: Annotated[
        int | None,
        typer.Option("--processes", "-p", help="Processes before the first look at the verdict."),
    ] = None,
    max_processes: Annotated[
        int | None,
        typer.Option(
            help="Processes at which it ends without one.", min=FEWEST_COMPARED, max=MOST_COMPARED
        ),
    ] = None,
    fail_on: Annotated[
        str | None,
        typer.Option(help=f"Exit 1 for any of these, with commas: {', '.join(FAIL_WORDS)}."),
    ] = None,
    local: Annotated[bool, typer.Option("--local", help="Without a service, here.")] = False,
    gpu: Annotated[int | None, typer.Option(help="Index of the GPU, with --local.", min=0)] = None,
    output_format: Annotated[
        str, typer.Option("--format", help="table, markdown or json.")
    ] = "table",
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Measure two contenders in turns until there is a verdict: slower, faster, no difference.

    Exit 1 if a cell is wrong, failed, timed out or cancelled; with --fail-on, for what it names.

    Example: `lossbench compare liger@0.8.0 liger@0.8.5 -s llama-3-8b:8192 --fail-on slower,wrong`
    """
    from ..plots.verdicts import compared
    from .verdicts import print_rows, regressions

    words = _fail_words(fail_on)
    style = _style(output_format, as_json)
    more = more_fields(dtype, pass_, option, processes)
    more |= {"kind": JobKind.COMPARE.value, "max_processes": max_processes}
    request = make_request(None, [base, candidate], shape, more)
    if local:
        measured = measure_here(request, gpu)
        rows = compared(measured.pairs, measured.comparisons)
    else:
        rows = _through_service(request, url, style == "table")
    print_rows(rows, style)
    sys.exit(1 if any(regressions(row, words) for row in rows) else 0)


def _through_service(request: JobRequest, url: str | None, name_it: bool) -> "list[Compared]":
    """Send the job, follow it to its end, and read its verdicts."""
    from ..plots.verdicts import compared
    from .following import client_for, follow_events, job_report, newest_comparisons

    with client_for(url) as client:
        job_id = client.submit(request).id
        follow_events(client, client.job(job_id))
        job, pairs = job_report(client, job_id)
        if name_it:
            console.print(f"{job.id} {job.state}  {client.url}/jobs/{job.id}")
        return compared(pairs, newest_comparisons(client, job_id))


def _style(output_format: str, as_json: bool) -> str:
    """`table`, `markdown` or `json`. Raises InvalidRequestError."""
    style = "json" if as_json else output_format
    if style not in ("table", "markdown", "json"):
        raise InvalidRequestError(f"format {style!r} is not table, markdown or json")
    return style


def _fail_words(text: str | None) -> frozenset[str] | None:
    """The words of `--fail-on`, None where it is not given. Raises InvalidRequestError."""
    if text is None:
        return None
    words = [word.strip() for word in text.split(",") if word.strip()]
    for word in words:
        if word not in FAIL_WORDS:
            hint = nearest(word, FAIL_WORDS)
            known = ", ".join(FAIL_WORDS)
            raise InvalidRequestError(f"--fail-on has no {word!r}{hint}; known: {known}")
    return frozenset(words)
