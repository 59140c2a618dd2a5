"""`lossbench kernels`: what the catalogue holds."""

from typing import Annotated, Any

import typer

from ..contract.catalogue import KernelRow, load_catalogue
from ..contract.errors import Fault, UnknownNameError
from ..contract.plan import nearest
from .output import console, print_json, print_table

app = typer.Typer(help="Kernels, versions, params, model shapes.", no_args_is_help=True)
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """List the kernels of the catalogue.

    Example: `lossbench kernels list`
    """
    rows = load_catalogue().kernels.values()
    if as_json:
        print_json([_facts(row) for row in rows])
        return
    print_table(
        "Kernels",
        ("kernel", "newest", "params", "what it is"),
        (
            (row.name, row.latest or "torch's", ", ".join(p.name for p in row.params), row.summary)
            for row in rows
        ),
    )


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="A kernel of the catalogue.")], as_json: AsJson = False
) -> None:
    """Show one kernel: versions, params, options, dtypes.

    Example: `lossbench kernels show liger`
    """
    catalogue = load_catalogue()
    row = catalogue.kernels.get(name)
    if row is None:
        hint = nearest(name, catalogue.kernels)
        message = f"there is no kernel {name!r}{hint}; `lossbench kernels list` shows all"
        raise UnknownNameError([Fault("", "unknown_kernel", message)])
    if as_json:
        print_json(_facts(row))
        return
    console.print(row.name, style="bold", end="  ")
    console.print(row.summary)
    console.print("versions: " + (", ".join(row.versions) or "carries torch's version"))
    console.print("dtypes:   " + ", ".join(row.dtypes))
    console.print("options:  " + ", ".join(_option(row, option) for option in row.options))
    print_table(
        "Params",
        ("param", "type", "default", "since", "what it does"),
        ((p.name, p.kind, p.default, p.since, p.help) for p in row.params),
    )


@app.command()
def shapes(as_json: AsJson = False) -> None:
    """List the model presets: hidden size, vocabulary, options, and where the numbers are from.

    Example: `lossbench kernels shapes`
    """
    presets = load_catalogue().presets.values()
    if as_json:
        print_json([preset.model_dump() for preset in presets])
        return
    print_table(
        "Models",
        ("model", "hidden", "vocab", "options", "source"),
        (
            (
                p.name,
                p.hidden,
                p.vocab,
                ", ".join(f"{k}={v}" for k, v in p.options.items()),
                p.source,
            )
            for p in presets
        ),
    )


def _pairs(options: dict[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in options.items())


def _option(row: KernelRow, option: str) -> str:
    since = row.option_since.get(option)
    return f"{option} (since {since})" if since else option


def _facts(row: KernelRow) -> dict[str, Any]:
    return row.model_dump(exclude={"memory"})
