"""What the commands print: tables for people, JSON for programs, one line for errors."""

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

# without markup: params and user text hold brackets
console = Console(markup=False)
errors = Console(stderr=True, markup=False)


def print_json(data: Any) -> None:
    """Data on standard output as JSON."""
    sys.stdout.write(json.dumps(data, indent=2, default=str) + "\n")


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table on standard output; empty tables say so."""
    table = Table(
        title=title or None,
        title_justify="left",
        header_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    # names and remarks may fold; a number broken over two lines cannot be read
    for index, column in enumerate(columns):
        table.add_column(column, overflow="fold", no_wrap=0 < index < len(columns) - 1)
    count = 0
    for row in rows:
        table.add_row(*("" if cell is None else _plain(cell) for cell in row))
        count += 1
    if count:
        console.print(table)
    else:
        console.print(f"{title}: none")


def _plain(cell: object) -> Text:
    return cell if isinstance(cell, Text) else Text(str(cell))


def fail(message: str) -> None:
    """One clear line on standard error."""
    line = Text.assemble(("error: ", "bold red"), message)
    errors.print(line, highlight=False, soft_wrap=True)


def mebibytes(value: int | None) -> str:
    """Bytes as MiB or GiB."""
    if value is None:
        return "–"
    return f"{value / 2**30:.2f} GiB" if value >= 2**30 else f"{value / 2**20:.1f} MiB"
