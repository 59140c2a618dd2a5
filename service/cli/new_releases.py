"""`lossbench kernels new`: releases of the catalogue that a service has no results of."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from ..client import LossbenchClient
from ..contract.contender import Contender
from .measuring import make_request
from .output import console, print_json

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def register(app: typer.Typer) -> None:
    """Add the command of this file."""
    app.command()(new)


def new(
    kernel: Annotated[list[str] | None, typer.Option(help="Only these kernels.")] = None,
    submit: Annotated[
        Path | None,
        typer.Option(help="Job file to measure them with; its own contenders are left out."),
    ] = None,
    url: Annotated[str | None, typer.Option(help="Address of the service.")] = None,
    as_json: AsJson = False,
) -> None:
    """List releases without results, one of each code, newest first; --submit measures them.

    Example: `lossbench kernels new --kernel liger --submit suites/seed.yaml`
    """
    from .following import client_for

    with client_for(url) as client:
        found = [contender.text for contender in unmeasured(client, kernel or [])]
        job_id = None
        if submit is not None and found:
            job_id = client.submit(make_request(submit, found, None, {})).id
        if as_json:
            print_json({"releases": found, "job_id": job_id})
            return
        for text in found:
            console.print(text, highlight=False)
        if job_id is not None:
            console.print(f"{job_id}  {client.url}/jobs/{job_id}")
        if not found:
            console.print("every release of the catalogue has results")


def unmeasured(client: LossbenchClient, only: list[str]) -> Iterator[Contender]:
    """Releases of packages that no result has, nor of their twins, the newest first."""
    names = only or [view.name for view in client.kernels() if view.origin == "package"]
    for name in names:
        row = client.kernel(name)
        code = {version: row.twins.get(version, version) for version in row.versions}
        known = {code.get(seen.version or "", seen.version) for seen in row.measured}
        fresh = [version for version in row.versions if code[version] == version]
        for version in reversed(fresh):
            if version not in known:
                yield Contender(kernel=row.name, version=version)
