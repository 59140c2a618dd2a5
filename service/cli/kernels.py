"""`lossbench kernels`: what the catalogue holds."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..api.snippets import snippet
from ..contract.case import CaseOptions
from ..contract.catalogue import Catalogue, KernelRow, is_older, load_catalogue
from ..contract.contender import Contender
from ..contract.errors import Fault, InvalidRequestError, UnknownNameError
from ..contract.plan import nearest, refuse, resolve_contender
from ..contract.versions import ALL, begins_range, matching, names_several, tidy_range
from ..contract.words import Dtype
from ..plots.text import plural
from ..settings import Settings
from .output import console, errors, print_json, print_table

if TYPE_CHECKING:
    from lossbench.worker.releases import Release

app = typer.Typer(help="Kernels, versions, params, model shapes.", no_args_is_help=True)
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """List the kernels of the catalogue, this machine's plugins and contenders among them.

    Example: `lossbench kernels list`
    """
    rows = catalogue_here().kernels.values()
    if as_json:
        print_json([_facts(row) for row in rows])
        return
    print_table(
        "Kernels",
        ("kernel", "newest", "params", "what it is"),
        (
            (
                row.name,
                row.latest or _whose(row),
                ", ".join(p.name for p in row.params),
                row.summary,
            )
            for row in rows
        ),
    )


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="A kernel of the catalogue, or NAME@VERSION.")],
    as_json: AsJson = False,
) -> None:
    """Show one kernel: versions, params, options, dtypes; or what one version of it has.

    Example: `lossbench kernels show liger@0.8.5`
    """
    kernel, _, version = name.partition("@")
    row = _row(kernel)
    if version:
        _show_version(row, version, as_json)
        return
    if as_json:
        print_json(_facts(row))
        return
    console.print(row.name, style="bold", end="  ")
    console.print(row.summary)
    console.print("versions: " + (", ".join(row.versions) or f"{_whose(row)} own"))
    console.print("dtypes:   " + ", ".join(row.dtypes))
    console.print("options:  " + ", ".join(_option(row, option) for option in row.options))
    print_table(
        "Params",
        ("param", "type", "default", "since", "what it does"),
        ((p.name, p.kind, p.default, p.since, p.help) for p in row.params),
    )


def _show_version(row: KernelRow, asked: str, as_json: bool) -> None:
    """What one version has. Raises UnknownNameError, InvalidRequestError."""
    try:
        contender = Contender.parse(f"{row.name}@{asked}")
    except ValueError as error:
        raise InvalidRequestError(f"{row.name}@{asked} is not a kernel and its version") from error
    found, faults = resolve_contender(contender, catalogue_here(), "")
    refuse(faults)
    version = found.version
    options = [o for o in row.options if not _is_late(row.option_since.get(o), version)]
    params = [param for param in row.params if not _is_late(param.since, version)]
    facts = {
        "kernel": row.name,
        "version": version,
        "twin_of": row.twins.get(version or ""),
        "options": options,
        "params": [param.model_dump() for param in params],
        "dtypes": row.dtypes,
        "usage": snippet(row, found, CaseOptions(), Dtype.BFLOAT16),
    }
    if as_json:
        print_json(facts)
        return
    console.print(found.text, style="bold", end="  ")
    console.print(row.summary)
    if facts["twin_of"]:
        console.print(f"same code as {row.name}@{facts['twin_of']}")
    console.print("dtypes:   " + ", ".join(row.dtypes))
    console.print("options:  " + ", ".join(options))
    console.print(facts["usage"], highlight=False)
    print_table(
        "Params",
        ("param", "type", "default", "since", "what it does"),
        ((p.name, p.kind, p.default, p.since, p.help) for p in params),
    )


def _is_late(since: str | None, version: str | None) -> bool:
    return bool(since and version and is_older(version, since))


@app.command()
def releases(
    name: Annotated[str, typer.Argument(help="A kernel that is a package.")],
    versions: Annotated[
        str, typer.Option(help="Which: all, one release, or a range such as '>=0.5,<0.7'.")
    ] = ALL,
    as_json: AsJson = False,
) -> None:
    """Show which releases of a package run the same code; exit 1 if the catalogue says otherwise.

    Each release is fetched as the wheel it is and read, never imported.

    Example: `lossbench kernels releases liger --versions '>=0.5,<0.6'`
    """
    from lossbench.kernels.catalogue import spec_of
    from lossbench.worker.install import Installer
    from lossbench.worker.releases import survey

    settings = Settings()
    row = _row(name)
    wanted = _wanted(row, versions)
    installer = Installer(settings.prepared_data_dir(), settings.wheel_dir)
    with errors.status("reading releases") as status:
        found = list(survey(spec_of(name), wanted, installer, status.update))
    if as_json:
        print_json([{**release._asdict(), "agrees": release.agrees} for release in found])
    else:
        _print_releases(name, found)
    if not all(release.agrees for release in found):
        sys.exit(1)


def _wanted(row: KernelRow, text: str) -> list[str]:
    try:
        expression = tidy_range(text) if begins_range(text) else text
    except ValueError as error:
        raise InvalidRequestError(str(error)) from error
    # twins are what is looked for: no release stands for another here
    found = matching(expression, row.versions, {}) if names_several(expression) else [expression]
    if row.versions and not set(found) & set(row.versions):
        raise UnknownNameError(f"{row.name} has no version {text!r}")
    return found


def _print_releases(name: str, found: "Sequence[Release]") -> None:
    codes = {release.code_hash for release in found if release.code_hash}
    print_table(
        f"{name}: {plural(len(found), 'release')}, {plural(len(codes), 'code')}",
        ("version", "code", "same code as", "remark"),
        ((r.version, r.code_hash, r.twin, _remark(r)) for r in found),
    )


def _remark(release: "Release") -> str:
    if release.fault is not None:
        return release.fault
    if release.agrees:
        return ""
    if release.listed_twin is None:
        return "the catalogue has it as a code of its own"
    return f"the catalogue has it as a twin of {release.listed_twin}"


def _whose(row: KernelRow) -> str:
    return "torch's" if row.is_built_in else "the operator's"


def catalogue_here() -> Catalogue:
    """The catalogue with what this machine offers beside it."""
    from lossbench.worker.known_contenders import own_catalogue

    return own_catalogue(Settings())


def _row(name: str) -> KernelRow:
    catalogue = catalogue_here()
    row = catalogue.kernels.get(name)
    if row is None:
        hint = nearest(name, catalogue.kernels)
        message = f"there is no kernel {name!r}{hint}; `lossbench kernels list` shows all"
        raise UnknownNameError([Fault("", "unknown_kernel", message)])
    return row


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
