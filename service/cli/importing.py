"""`lossbench import`: tables of other benchmarks, sent to the service in pieces that it takes."""

import io
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from ..contract.errors import InvalidRequestError
from ..contract.peer_formats.rows import LineFault, PeerFormat
from ..contract.peer_formats.tables import detect_format
from ..contract.words import Dtype, Pass
from .output import console, errors, print_json

PIECE_BYTES = 800_000
"""Lines of one request, in bytes: below the service's limit of 1 MiB."""
COUNTS = ("added", "known", "refused", "results_added", "without_result")
MOST_FAULTS = 20

FormatFlag = Annotated[
    PeerFormat | None, typer.Option("--format", help="Format; told by the header unless given.")
]
GpuFlag = Annotated[str | None, typer.Option(help="GPU, where the table names none.")]
VersionFlag = Annotated[
    str | None, typer.Option(help="Version of the measured package, where it names none.")
]
CommitFlag = Annotated[str | None, typer.Option(help="Commit that the table is of.")]
DtypeFlag = Annotated[Dtype | None, typer.Option(help="Dtype, where the table names none.")]
PassFlag = Annotated[Pass | None, typer.Option("--pass", help="Pass, where the table names none.")]
ShapeFlag = Annotated[
    str | None, typer.Option(help="Tokens x hidden x vocab, where the table names none.")
]


def register(app: typer.Typer) -> None:
    """Add the command of this file."""
    app.command("import")(import_file)


def pieces(text: str, most_bytes: int = PIECE_BYTES) -> Iterator[tuple[int, bytes]]:
    """(line of the file behind the header, table): the table cut between lines, header repeated.

    Cells with line breaks are not cut apart only in a file that fits one piece; no format has them.
    """
    header, *lines = io.StringIO(text).readlines()
    first, held, size = 2, [header], 0
    for number, line in enumerate(lines, start=2):
        length = len(line.encode())
        if size and size + length > most_bytes:
            yield first, "".join(held).encode()
            first, held, size = number, [header], 0
        held.append(line)
        size += length
    yield first, "".join(held).encode()


def import_file(
    file: Annotated[Path, typer.Argument(help="Table of another benchmark.")],
    format_: FormatFlag = None,
    gpu: GpuFlag = None,
    package_version: VersionFlag = None,
    commit: CommitFlag = None,
    dtype: DtypeFlag = None,
    pass_: PassFlag = None,
    shape: ShapeFlag = None,
    url: Annotated[str | None, typer.Option(help="Address of the service.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Import a table of Liger, TritonBench, CCE or PyTorch's lce_benchmark; twice is once.

    Rows of a linear cross entropy become results marked imported, which no verdict, mean or plot
    takes. Exit 1 when a line is refused; the good ones are stored all the same.

    Example: `lossbench import all_benchmark_data.csv`
    """
    from .following import client_for

    text = _read(file)
    try:
        known_format = format_ or detect_format(text)
    except InvalidRequestError as error:
        raise InvalidRequestError(f"{file}: {error.message}") from error
    query: dict[str, Any] = {
        "format": known_format.value,
        "filename": file.name[:200],
        "gpu": gpu,
        "version": package_version,
        "commit": commit,
        "dtype": dtype.value if dtype else None,
        "pass": pass_.value if pass_ else None,
        **_sizes(shape),
    }
    counts: Counter[str] = Counter()
    faults: list[LineFault] = []
    with client_for(url) as client:
        for first_line, table in pieces(text):
            answer = client.import_table(table, {**query, "first_line": first_line})
            counts.update({name: int(answer[name]) for name in COUNTS})
            faults += [LineFault.model_validate(fault) for fault in answer["faults"]]
    _report(file, known_format, counts, faults[:MOST_FAULTS], as_json)
    if counts["refused"]:
        raise typer.Exit(1)


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InvalidRequestError(f"{file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidRequestError(f"{file}: not a UTF-8 text file") from error


def _sizes(shape: str | None) -> dict[str, int]:
    if shape is None:
        return {}
    parts = shape.lower().split("x")
    if len(parts) != 3 or not all(part.isdecimal() and part.isascii() for part in parts):
        raise InvalidRequestError(f"shape {shape!r} is not such as 8192x4096x128256")
    return dict(zip(("tokens", "hidden", "vocab"), map(int, parts), strict=True))


def _report(
    file: Path, format_: PeerFormat, counts: Counter[str], faults: list[LineFault], as_json: bool
) -> None:
    if as_json:
        listed = [fault.model_dump() for fault in faults]
        found = {"format": format_.value, **{name: counts[name] for name in COUNTS}}
        print_json({**found, "faults": listed})
        return
    for fault in faults:
        errors.print(f"{file.name}: {fault.text}", highlight=False, soft_wrap=True)
    if counts["refused"] > len(faults):
        errors.print(f"... and {counts['refused'] - len(faults)} more lines", highlight=False)
    line = f"{format_.value}: {counts['added']} rows added, {counts['known']} known, "
    line += f"{counts['refused']} refused; {counts['results_added']} results added"
    if counts["without_result"]:
        line += f", {counts['without_result']} rows kept that are no results"
    console.print(line)
