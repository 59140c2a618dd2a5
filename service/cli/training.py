"""`lossbench train`: does a model train as well with this loss?"""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from pydantic import ValidationError
from rich import progress as rich_progress

from ..contract.catalogue import Catalogue
from ..contract.contender import Contender
from ..contract.errors import Fault, InvalidRequestError, SetupError
from ..contract.plan import resolve_contender
from ..settings import Settings
from .output import console, errors, print_json, print_table
from .requests import split_contenders

if TYPE_CHECKING:
    from lossbench.kernels.training.record import TrainingSettings
    from lossbench.worker.training import Progress, TrainedArm, TrainingPlan
    from lossbench.worker.training_summary import ArmSummary

Contenders = Annotated[
    list[str],
    typer.Option("--contender", "-c", help="kernel@version[key=value]; the first: the reference."),
]
Out = Annotated[Path, typer.Option(help="Folder of the results; given again, goes on with them.")]
Size = Annotated[str, typer.Option(help="Model: 1m, 10m, 40m, 120m or 370m.")]
Vocab = Annotated[str, typer.Option(help="bytes (V = 256), or V: words hashed to so many ids.")]
Texts = Annotated[
    list[str] | None,
    typer.Option(help="shakespeare (the default), stdlib, or a file; may be repeated."),
]
Steps = Annotated[int, typer.Option(help="Optimiser steps of a run.", min=1)]
Seeds = Annotated[int, typer.Option(help="Runs of each contender.", min=1, max=1000)]
Batch = Annotated[int, typer.Option(help="Sequences a step.", min=1)]
Sequence_ = Annotated[int, typer.Option("--seq", help="Tokens a sequence.", min=2)]
Dtype = Annotated[
    str | None, typer.Option(help="float32, or bfloat16 by autocast (the default on a GPU).")
]
Cast = Annotated[str, typer.Option(help="Where the head's weight is cast: inside the loss or not.")]
Tied = Annotated[bool, typer.Option("--tied/--untied", help="Whether the head is the embedding.")]
Rate = Annotated[float, typer.Option("--learning-rate", help="Highest rate of AdamW.")]
Control = Annotated[
    bool,
    typer.Option(
        "--control/--no-control",
        help="Train the reference again with its rows reordered: the band of rounding.",
    ),
]
Every = Annotated[int, typer.Option("--checkpoint-every", help="In steps.", min=1)]
Validated = Annotated[
    int, typer.Option("--validation-tokens", help="Most tokens that are validated on.", min=1)
]
Threads = Annotated[int | None, typer.Option(help="CPU threads; all by default.", min=1)]
Gpu = Annotated[int | None, typer.Option(help="Index of the GPU.", min=0)]
AsMarkdown = Annotated[bool, typer.Option("--markdown", help="Print Markdown.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def register(app: typer.Typer) -> None:
    """Add the command of this file."""
    app.command()(train)


def train(
    contender: Contenders,
    out: Out,
    size: Size = "1m",
    vocab: Vocab = "bytes",
    text: Texts = None,
    steps: Steps = 500,
    seeds: Seeds = 5,
    batch: Batch = 8,
    sequence: Sequence_ = 256,
    dtype: Dtype = None,
    cast: Cast = "outside",
    tied: Tied = True,
    rate: Rate = 1e-3,
    control: Control = True,
    every: Every = 100,
    validated: Validated = 65_536,
    threads: Threads = None,
    gpu: Gpu = None,
    as_markdown: AsMarkdown = False,
    as_json: AsJson = False,
) -> None:
    """Train a small language model with each contender, over several seeds, and compare.

    Needs no service. All contenders of a seed begin with the same bits and see the same data. Exit
    1 where one is worse or could not be trained.

    Example: `lossbench train -c torch-naive -c flce --steps 200 --seeds 3 --out runs`
    """
    fields = {
        "size": size,
        "vocab": _vocab(vocab),
        "text": tuple(text or ["shakespeare"]),
        "steps": steps,
        "batch": batch,
        "sequence": sequence,
        "cast": cast,
        "tied": tied,
        "learning_rate": rate,
        "checkpoint_every": every,
        "validation_tokens": validated,
        "threads": threads or len(os.sched_getaffinity(0)),
    }
    asked = _Asked(split_contenders(contender), control, seeds, dtype is None, gpu, out)
    rows, report = _measure(_checked({**fields, "dtype": dtype or "float32"}), asked)
    _show(rows, report if as_markdown else None, as_json)
    if any(row.lost or row.is_worse for row in rows):
        sys.exit(1)


class _Asked(NamedTuple):
    """What the flags say beside the settings that all runs share."""

    contenders: list[str]
    control: bool
    seeds: int
    any_dtype: bool
    gpu: int | None
    out: Path


def _vocab(text: str) -> int:
    from lossbench.kernels.training.record import BYTES

    if text == "bytes":
        return BYTES
    if not text.isdecimal():
        raise InvalidRequestError(f"--vocab {text!r}: must be bytes, or a number such as 32768")
    return int(text)


def _checked(fields: dict[str, Any]) -> "TrainingSettings":
    """Settings of a training. Raises InvalidRequestError naming what is wrong."""
    from lossbench.kernels.training.record import TEXTS, TrainingSettings

    for text in fields["text"]:
        if text not in TEXTS and not Path(text).expanduser().is_file():
            raise InvalidRequestError(f"--text {text}: no such file; or {' or '.join(TEXTS)}")
    try:
        return TrainingSettings(**fields)
    except ValueError as error:
        raise InvalidRequestError(str(error)) from error


def _arms(asked: _Asked, catalogue: Catalogue) -> "tuple[TrainedArm, ...]":
    """The reference, its control, then the others. Raises InvalidRequestError with every fault."""
    from lossbench.worker.training import TrainedArm

    contenders: list[Contender] = []
    faults: list[Fault] = []
    for number, text in enumerate(asked.contenders):
        pointer = f"/contenders/{number}"
        try:
            contender, wrong = resolve_contender(Contender.parse(text), catalogue, pointer)
        except ValueError as error:
            message = str(error).splitlines()[0]
            if isinstance(error, ValidationError):
                message = error.errors()[0]["msg"].removeprefix("Value error, ")
            faults.append(Fault(pointer, "invalid", f"{text!r}: {message}"))
            continue
        faults += wrong
        if contender in contenders:
            faults.append(Fault(pointer, "twice", f"{contender} is given twice"))
        contenders.append(contender)
    if faults:
        raise InvalidRequestError(faults)
    reference = TrainedArm(contenders[0])
    control = [replace(reference, reordered=True)] if asked.control else []
    return (reference, *control, *(TrainedArm(each) for each in contenders[1:]))


def _measure(settings: "TrainingSettings", asked: _Asked) -> "tuple[list[ArmSummary], str]":
    """Train, write the folder's summary; the rows and the report as Markdown."""
    from lossbench.worker.device import probe_device
    from lossbench.worker.environments import Environments
    from lossbench.worker.install import Installer
    from lossbench.worker.known_contenders import register_known
    from lossbench.worker.locks import take_device_lock
    from lossbench.worker.training import Training, TrainingPlan
    from lossbench.worker.training_files import REPORT, RESULTS, take_folder, write_whole
    from lossbench.worker.training_summary import markdown, result_lines, summarise

    own = Settings()
    known = register_known(own)
    for unused in known.faults:
        errors.print(f"not used: {unused}", style="yellow")
    arms = _arms(asked, known.catalogue())
    # kept open: the lock lasts as long as the process
    take_folder(asked.out)
    data_dir = own.prepared_data_dir()
    with errors.status("looking at the device"):
        device, fault = probe_device(asked.gpu, quick=True)
    if fault is not None:
        raise SetupError(f"the device computes wrongly: {fault}")
    take_device_lock(data_dir, device.device_uuid_hash)
    if asked.any_dtype and device.device_type == "cuda":
        settings = replace(settings, dtype="bfloat16")
    plan = TrainingPlan(settings, arms, tuple(range(asked.seeds)), asked.out)
    environments = Environments(Installer(data_dir, own.wheel_dir), device.device_type, known)
    with (
        _progress(plan) as progress,
        Training(plan, environments, device, asked.gpu, progress) as training,
    ):
        outcome = training.run()
    rows = summarise(plan, outcome)
    facts = (
        f"{device.device_name}, torch {device.facts.get('torch')}, CPU threads: {settings.threads}"
    )
    report = markdown(settings, rows, facts)
    write_whole(asked.out / RESULTS, result_lines(asked.out, outcome))
    write_whole(asked.out / REPORT, report)
    return rows, report


@contextmanager
def _progress(plan: "TrainingPlan") -> "Iterator[Progress]":
    """A bar over the steps of all runs, on standard error."""
    bar = rich_progress.Progress(
        rich_progress.TextColumn("training", markup=False),
        rich_progress.BarColumn(),
        rich_progress.TextColumn("{task.completed:.0f} of {task.total:.0f} steps"),
        rich_progress.TimeElapsedColumn(),
        rich_progress.TimeRemainingColumn(),
        rich_progress.TextColumn("{task.fields[last]}", markup=False),
        console=errors,
    )
    reached: dict[tuple[str, int], int] = {}
    with bar:
        total = plan.settings.steps * len(plan.arms) * len(plan.seeds)
        task = bar.add_task("training", total=total, last="")

        def show(arm: str, seed: int, step: int, loss: float | None) -> None:
            reached[arm, seed] = step
            last = f"{arm}, seed {seed}" + ("" if loss is None else f", loss {loss:.3f}")
            bar.update(task, completed=sum(reached.values()), last=last)

        yield show


def _show(rows: "Sequence[ArmSummary]", report: str | None, as_json: bool) -> None:
    """On standard output: JSON, or the Markdown report where there is one, or a table."""
    from lossbench.worker.training_summary import COLUMNS, cells, low_share, remarks

    if as_json:
        print_json([row.as_json() for row in rows])
        return
    if report is not None:
        sys.stdout.write(report)
        return
    print_table("Training", COLUMNS, [cells(row) for row in rows])
    for line in remarks(rows):
        console.print(line, soft_wrap=True, highlight=False)
    if warning := low_share(rows):
        console.print(warning, style="yellow", soft_wrap=True)
