"""`lossbench recommend`: which contender to train with, and what that rests on."""

import sys
from typing import Annotated, Any

import typer

from ..contract.errors import InvalidRequestError
from ..plots import text
from .output import console, mebibytes, print_json, print_table
from .requests import parse_options, parse_shape

COLUMNS = ("contender", "× baseline", "95 %", "time ms", "workspace", "error", "result")


def register(app: typer.Typer) -> None:
    """Add the command of this file."""
    app.command()(recommend)


def recommend(
    shape: Annotated[
        str | None, typer.Option("--shape", "-s", help="TOKENSxHIDDENxVOCAB or MODEL:TOKENS.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Model preset, with --tokens.")] = None,
    tokens: Annotated[int | None, typer.Option(help="Batch x sequence.", min=1)] = None,
    gpu: Annotated[str | None, typer.Option(help="Device, or a part of its name.")] = None,
    max_workspace: Annotated[
        str | None, typer.Option(help="Most workspace, such as 2GiB or bytes.")
    ] = None,
    max_error_grade: Annotated[
        str, typer.Option(help="Worst error grade taken: exact, fair, coarse or poor.")
    ] = "fair",
    dtype: Annotated[str | None, typer.Option(help="bfloat16, float16, float32.")] = None,
    pass_: Annotated[str | None, typer.Option("--pass", help="forward, backward, ...")] = None,
    option: Annotated[
        list[str] | None, typer.Option("--option", "-o", help="Option of the loss, key=value.")
    ] = None,
    url: Annotated[str | None, typer.Option(help="Address of the service.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Name the contender to train with, the runner-up, why, and the lines that call it.

    Exit 1 where nothing measured fits. A shape that was not measured is answered with the nearest
    one that was, and says so.

    Example: `lossbench recommend --model llama-3-8b --tokens 8192 --gpu h200 --max-workspace 2GiB`
    """
    from .following import client_for

    query: dict[str, Any] = _shape(shape, model, tokens)
    query |= parse_options(option or [])
    query |= {
        "gpu": gpu,
        "max_workspace": max_workspace,
        "max_error_grade": max_error_grade,
        "dtype": dtype,
        "pass": pass_,
    }
    with client_for(url) as client:
        found = client.recommend(**query)
    if as_json:
        print_json(found.model_dump(mode="json", by_alias=True))
    else:
        _print(found)
    sys.exit(0 if found.use else 1)


def _shape(shape: str | None, model: str | None, tokens: int | None) -> dict[str, Any]:
    """Query of the shape. Raises InvalidRequestError."""
    if shape is not None:
        if model is not None or tokens is not None:
            raise InvalidRequestError("give either --shape, or --model and --tokens")
        return parse_shape(shape)
    if model is None or tokens is None:
        raise InvalidRequestError(
            "give --shape (llama-3-8b:8192, 8192x4096x128256), or --model and --tokens"
        )
    return {"model": model, "tokens": tokens}


def _print(found: Any) -> None:
    console.print(found.sentence, style="bold", soft_wrap=True)
    if found.comparison_id:
        console.print(f"decided head to head: {found.comparison_id}")
    if found.use is not None:
        console.print(found.use.snippet, highlight=False)
        print_table(f"Evidence, {found.case}", COLUMNS, [_row(each) for each in found.evidence])
    if found.left_out:
        print_table(
            "Left out",
            ("contender", "outcome", "why"),
            [(each.contender, each.outcome, each.reason) for each in found.left_out],
        )
    if found.not_measured:
        print_table(
            "Not measured",
            ("contender", "why"),
            [(each.contender, each.reason) for each in found.not_measured],
        )
    if found.measure_command:
        console.print(found.measure_command, soft_wrap=True, highlight=False)


def _row(each: Any) -> tuple[str, ...]:
    return (
        each.contender,
        text.digits(each.ratio_to_baseline),
        text.interval(each.ratio_low, each.ratio_high),
        text.digits(each.latency_ms),
        mebibytes(each.workspace_bytes),
        each.grade,
        each.result_id,
    )
