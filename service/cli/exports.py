"""`lossbench export`: results as files, and in the forms of other tools."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from ..contract.errors import InvalidRequestError
from .output import console

ENDINGS = ("csv", "parquet")

app = typer.Typer(help="Results as files, and in the forms of other tools.", no_args_is_help=True)


@app.command()
def nvbench(
    result_id: Annotated[str, typer.Argument(metavar="RESULT", help="Id of the result.")],
    output: Annotated[Path | None, typer.Option(help="File to write; else printed.")] = None,
    url: Annotated[str | None, typer.Option(help="Address of the service.")] = None,
) -> None:
    """Write a result as NVBench's `--json` would, times in seconds.

    Example: `lossbench export nvbench run-01jz4k2m8q3w5x7y --output flce.json`
    """
    from .following import client_for

    with client_for(url) as client:
        text = json.dumps(client.nvbench(result_id), indent=2) + "\n"
    if output is None:
        sys.stdout.write(text)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidRequestError(f"{output}: {error.strerror}") from error
    console.print(f"wrote {output}")


@app.command()
def results(
    file: Annotated[Path, typer.Argument(help="File to write, NAME.csv or NAME.parquet.")],
    narrow: Annotated[
        list[str] | None,
        typer.Option("--filter", help="A filter of results, name=value; may be repeated."),
    ] = None,
    url: Annotated[str | None, typer.Option(help="Address of the service.")] = None,
) -> None:
    """Write every result that matches to a file; the filters are those of GET /results.

    Parquet needs pyarrow where the service runs. In CSV a text that a spreadsheet would run as a
    formula has an apostrophe before it.

    Example: `lossbench export results h200.csv --filter "gpu=NVIDIA H200" --filter outcome=ok`
    """
    from .following import client_for

    ending = file.suffix.removeprefix(".")
    if ending not in ENDINGS:
        raise InvalidRequestError(f"{file}: the file is called NAME.csv or NAME.parquet")
    query: dict[str, list[str]] = {}
    for pair in narrow or []:
        name, equals, value = pair.partition("=")
        if not equals:
            raise InvalidRequestError(f"filter {pair!r} is not name=value, such as kernel=flce")
        query.setdefault(name, []).append(value)
    partial = file.with_name(file.name + ".partial")
    try:
        with client_for(url) as client, partial.open("wb") as target:
            for chunk in client.exported(ending, query):
                target.write(chunk)
        partial.replace(file)
    except OSError as error:
        raise InvalidRequestError(f"{file}: {error.strerror}") from error
    finally:
        partial.unlink(missing_ok=True)
    console.print(f"wrote {file} ({file.stat().st_size / 1024:.0f} KiB)")
