"""`lossbench export`: results in the forms of other tools."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from ..contract.errors import InvalidRequestError
from .output import console

app = typer.Typer(help="Results in the forms of other tools.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Keep `export` a group while it has one command."""


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
