"""`lossbench submit`, `watch`, `run`: measure through a service, or without one."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from ..contract.comparison import ComparisonView
from ..contract.errors import InvalidRequestError
from ..contract.job import JobRequest
from ..contract.machine import Machine
from ..contract.plan import PlannedCell, plan_job
from ..contract.result import CellView, Result
from ..contract.words import FAILURES, CellState
from ..settings import Settings
from .output import console, errors, mebibytes, print_json, print_table
from .requests import parse_options, parse_shape, read_job_file, split_contenders, validated

if TYPE_CHECKING:
    from lossbench.worker.order import CellResult

    from ..api.records import DryRun

File = Annotated[Path | None, typer.Argument(help="Job file (YAML or JSON).", show_default=False)]
Contenders = Annotated[
    list[str] | None,
    typer.Option(
        "--contender",
        "-c",
        help="kernel@version[key=value]; repeat or use commas. A version may be a range in quotes.",
    ),
]
Shapes = Annotated[
    list[str] | None,
    typer.Option("--shape", "-s", help="TOKENSxHIDDENxVOCAB or MODEL:TOKENS; may be repeated."),
]
Dtypes = Annotated[list[str] | None, typer.Option("--dtype", help="bfloat16, float16, float32.")]
Passes = Annotated[list[str] | None, typer.Option("--pass", help="forward, backward, ...")]
Options = Annotated[list[str] | None, typer.Option("--option", "-o", help="key=value.")]
Processes = Annotated[int | None, typer.Option("--processes", "-p", help="Processes to replicate.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Url = Annotated[str | None, typer.Option(help="Address of the service.")]


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command()(submit)
    app.command()(watch)
    app.command()(run)


def make_request(
    file: Path | None,
    contenders: list[str] | None,
    shapes: list[str] | None,
    more: dict[str, Any],
) -> JobRequest:
    """The job of a file, whose fields the flags replace. Raises InvalidRequestError."""
    body = read_job_file(file) if file else {}
    if contenders:
        body["contenders"] = split_contenders(contenders)
    if shapes:
        body["shapes"] = [parse_shape(shape) for shape in shapes]
    body |= {key: value for key, value in more.items() if value not in (None, [], {})}
    needed = ("contenders",) if body.get("kind") == "train" else ("contenders", "shapes")
    if not all(body.get(name) for name in needed):
        raise InvalidRequestError(
            "nothing to measure: give a job file, or --contender and --shape "
            "(lossbench run -c flce -c torch-naive -s 1024x512x16384)"
        )
    return validated(body)


def more_fields(
    dtype: list[str] | None,
    pass_: list[str] | None,
    option: list[str] | None,
    processes: int | None,
) -> dict[str, Any]:
    """Fields of the request that flags name one by one."""
    return {
        "dtypes": dtype,
        "passes": pass_,
        "options": parse_options(option or []),
        "processes": processes,
    }


def submit(
    file: File = None,
    contender: Contenders = None,
    shape: Shapes = None,
    dtype: Dtypes = None,
    pass_: Passes = None,
    option: Options = None,
    processes: Processes = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what it would do.")] = False,
    follow: Annotated[bool, typer.Option("--watch", help="Follow it to its end.")] = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Send a job to the service.

    Example: `lossbench submit -c flce -c liger@0.8.5 -s llama-3-8b:8192 --watch`
    """
    from .following import client_for, follow_job

    request = make_request(file, contender, shape, more_fields(dtype, pass_, option, processes))
    with client_for(url) as client:
        if dry_run:
            plan = client.submit(request, dry_run=True)
            if as_json:
                print_json(plan.model_dump(mode="json", by_alias=True))
            else:
                _print_plan(plan)
            return
        job = client.submit(request)
        if not follow:
            if as_json:
                print_json(job.model_dump(mode="json"))
            else:
                console.print(f"{job.id}  {client.url}/jobs/{job.id}")
            return
        sys.exit(follow_job(client, job.id, as_json))


def _print_plan(plan: "DryRun") -> None:
    most = plan.longest_minutes
    longest = "" if most is None else f", at most {most:.1f} until every verdict,"
    console.print(
        f"{plan.cells_total} cells: {plan.cells_to_run} to run, {plan.cells_known} known, "
        f"{plan.cells_refused} refused; about {plan.estimated_minutes:.1f} minutes{longest} on "
        f"queue {plan.queue}, peak {mebibytes(plan.estimated_peak_bytes)}"
    )
    if plan.queue not in plan.queues_live:
        live = f"live queues: {', '.join(plan.queues_live)}" if plan.queues_live else "none is live"
        console.print(f"no live worker takes queue {plan.queue}; {live}", style="yellow")
    refused = [cell for cell in plan.cells if cell.outcome]
    if refused:
        rows = ((cell.contender, cell.case, cell.outcome, cell.reason) for cell in refused)
        print_table("Refused", ("contender", "case", "outcome", "reason"), rows)


def watch(
    job_id: Annotated[str, typer.Argument(metavar="JOB", help="Id of the job.")],
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Follow a job to its end; exit 1 if a cell is wrong, failed, timed out or cancelled.

    Example: `lossbench watch job-01jz4k2m8q3w5x7y`
    """
    from .following import client_for, follow_job

    with client_for(url) as client:
        sys.exit(follow_job(client, job_id, as_json))


def run(
    file: File = None,
    contender: Contenders = None,
    shape: Shapes = None,
    dtype: Dtypes = None,
    pass_: Passes = None,
    option: Options = None,
    processes: Processes = None,
    gpu: Annotated[int | None, typer.Option(help="Index of the GPU.", min=0)] = None,
    as_json: AsJson = False,
) -> None:
    """Measure without a server, for a kernel author's inner loop; nothing is stored.

    Example: `lossbench run -c flce -c torch-naive -s 512x256x8192 --dtype float32 -p 1`
    """
    request = make_request(file, contender, shape, more_fields(dtype, pass_, option, processes))
    measured = measure_here(request, gpu)
    if request.is_comparison:
        from .verdicts import print_compared

        print_compared(measured.pairs, measured.comparisons, as_json)
    else:
        _print_run(measured, as_json)
    if any(result.outcome in FAILURES for _, result in measured.results):
        sys.exit(1)


class MeasuredHere(NamedTuple):
    """What a job without a server came to."""

    results: "Sequence[tuple[PlannedCell, CellResult]]"
    comparisons: Sequence[ComparisonView]

    @property
    def pairs(self) -> list[tuple[CellView, Result | None]]:
        """The cells as the job pages see them."""
        return [_viewed(planned, result) for planned, result in self.results]


def measure_here(request: JobRequest, gpu: int | None) -> MeasuredHere:
    """Measure a job in this process's own children, with a progress bar."""
    from lossbench.worker.known_contenders import register_known
    from lossbench.worker.local import LocalRunner

    from ..store.comparisons import unstored_comparison
    from .economy import print_wall_time
    from .progress import cell_progress

    settings = Settings()
    known = register_known(settings)
    for fault in known.faults:
        errors.print(f"not used: {fault}", style="yellow")
    catalogue = known.catalogue()
    plan_job(request, catalogue)
    with errors.status("looking at the device"):
        local = LocalRunner(settings, gpu, known)
    with local as runner:
        environment = runner.environment
        machine = Machine(
            device_type=environment.device_type,
            device_name=environment.device_name,
            memory_bytes=environment.memory_bytes,
            gemm_tflops=float(environment.facts.get("gemm_tflops") or 0.05),
        )
        plan = plan_job(request.model_copy(update={"accelerator": "any"}), catalogue, [machine])
        results = []
        with cell_progress(plan) as progress:
            for planned, result in runner.run(plan, progress.visits, progress.say):
                progress.done(result.number, result.outcome)
                results.append((planned, result))
        print_wall_time(result.record for _, result in results)
        return MeasuredHere(results, [unstored_comparison(each) for each in runner.comparisons])


def _print_run(measured: MeasuredHere, as_json: bool) -> None:
    if as_json:
        print_json([_plain_result(planned, result) for planned, result in measured.results])
        return
    from .reports import print_report

    print_report(measured.pairs)


def _plain_result(planned: "PlannedCell", result: "CellResult") -> dict[str, Any]:
    record = result.record
    return {
        "cell": planned.cell.key,
        "outcome": result.outcome,
        "reason": result.reason,
        "record": record.model_dump(mode="json", by_alias=True) if record else None,
    }


def _viewed(planned: "PlannedCell", result: "CellResult") -> "tuple[CellView, Result | None]":
    """A local result as the job pages see it."""
    from ..store.results import unstored_run
    from ..store.views import result_view

    stored = result_view(unstored_run(result.record)) if result.record else None
    cell = CellView.model_validate(
        {
            "position": result.number,
            "contender": planned.cell.contender.text,
            "case": planned.cell.case.text,
            "pass": planned.cell.pass_,
            "state": CellState.DONE,
            "outcome": result.outcome,
            "reason": result.reason,
            "reused": False,
            "attempt": 1,
            "visits_done": 0,
            "visits_total": 0,
            "result_id": stored.id if stored else None,
            "started_at": None,
            "ended_at": None,
        }
    )
    return cell, stored
