"""`lossbench compare`: two contenders in turns until a verdict; also a gate for CI."""

import sys
from pathlib import Path
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
from .requests import read_budgets

if TYPE_CHECKING:
    from ..client import LossbenchClient
    from ..plots.verdicts import Compared

FAIL_WORDS = (
    Verdict.SLOWER.value,
    Verdict.INCONCLUSIVE.value,
    "memory",
    "error",
    "no_baseline",
    *(outcome.value for outcome in Outcome if outcome is not Outcome.OK),
)
"""What `--fail-on` takes: verdicts, the candidate's outcomes, more memory, a worse error grade, and
cases where the base has no result."""

Suite = Annotated[
    Path | None, typer.Option(help="Job file whose cases are compared, with `budgets` or without.")
]
FirstProcesses = Annotated[
    int | None,
    typer.Option("--processes", "-p", help="Processes before the first look at the verdict."),
]
MaxProcesses = Annotated[
    int | None,
    typer.Option(
        help="Processes at which it ends without one.", min=FEWEST_COMPARED, max=MOST_COMPARED
    ),
]
FailOn = Annotated[
    str | None,
    typer.Option(help=f"Exit 1 for any of these, with commas: {', '.join(FAIL_WORDS)}."),
]


def register(app: typer.Typer) -> None:
    """Add the command of this file."""
    app.command()(compare)


def compare(
    base: Annotated[str, typer.Argument(help="Contender A, which ratios divide by.")],
    candidate: Annotated[str, typer.Argument(help="Contender B.")],
    suite: Suite = None,
    shape: Shapes = None,
    dtype: Dtypes = None,
    pass_: Passes = None,
    option: Options = None,
    processes: FirstProcesses = None,
    max_processes: MaxProcesses = None,
    fail_on: FailOn = None,
    reuse: Annotated[
        bool,
        typer.Option("--reuse", help="Take stored verdicts where a shape has all of them."),
    ] = False,
    local: Annotated[bool, typer.Option("--local", help="Without a service, here.")] = False,
    gpu: Annotated[int | None, typer.Option(help="Index of the GPU, with --local.", min=0)] = None,
    output_format: Annotated[
        str, typer.Option("--format", help="table, markdown or json.")
    ] = "table",
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Measure two contenders in turns until there is a verdict: slower, faster, no difference.

    Exit 1 if a cell is wrong, failed, timed out or cancelled, for what --fail-on names, and if a
    budget of the suite is broken. Exit 2 where nothing could be compared.

    Example: `lossbench compare liger@0.8.0 liger@0.8.5 --suite suites/first.yaml --fail-on slower`
    """
    from .gate import Gate, require_a_baseline

    gate = Gate(fail_words(fail_on), read_budgets(suite) if suite else [])
    style = _style(output_format, as_json)
    more = more_fields(dtype, pass_, option, processes)
    more |= {"kind": JobKind.COMPARE.value, "max_processes": max_processes}
    request = make_request(suite, [base, candidate], shape, more)
    if reuse and local:
        raise InvalidRequestError("--reuse needs a service: with --local nothing is stored")
    rows = rows_here(request, gpu) if local else rows_of(request, url, reuse, style == "table")
    gate.show(rows, style)
    if not gate.passes(rows):
        sys.exit(1)
    require_a_baseline(rows)


def rows_here(request: JobRequest, gpu: int | None) -> "list[Compared]":
    """Measure on this machine, without a service."""
    from ..plots.verdicts import compared

    measured = measure_here(request, gpu)
    return compared(measured.pairs, measured.comparisons)


def rows_of(request: JobRequest, url: str | None, reuse: bool, name_it: bool) -> "list[Compared]":
    """Stored verdicts where they are asked for and there, and a job for the rest."""
    from .following import client_for
    from .reusing import stored_rows

    known: list[Compared] = []
    with client_for(url) as client:
        if reuse:
            known, request = stored_rows(client, request)
        return [*known, *(_measured(client, request, name_it) if request.shapes else [])]


def _measured(client: "LossbenchClient", request: JobRequest, name_it: bool) -> "list[Compared]":
    """Send the job, follow it to its end, and read its verdicts."""
    from ..plots.verdicts import compared
    from .following import follow_events, job_report, newest_comparisons

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


def fail_words(text: str | None) -> frozenset[str] | None:
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
