"""Tell a peer's table by its header and read it: the rows, and one clear fault a bad line."""

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass

from ..errors import InvalidRequestError
from . import cce, liger, pytorch_lce, tritonbench
from .rows import (
    FORMAT_NAMES,
    LONGEST_CELL,
    BadCellError,
    Given,
    Layout,
    LineFault,
    PeerFormat,
    PeerRow,
)

LAYOUTS: dict[PeerFormat, Layout] = {
    module.LAYOUT.format: module.LAYOUT for module in (liger, tritonbench, cce, pytorch_lce)
}
LONGEST_CONFIG = 20_000
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


@dataclass(frozen=True)
class PeerTable:
    """A table that was read: lines whose rows are good, and the faults of the others."""

    format: PeerFormat
    rows: tuple[PeerRow, ...]
    faults: tuple[LineFault, ...]


def known_formats() -> str:
    """The formats in one line."""
    return "; ".join(f"{name} = {words}" for name, words in FORMAT_NAMES.items())


def detect_format(text: str) -> PeerFormat:
    """The format that the header of a table is of. Raises InvalidRequestError naming them all."""
    columns = _header(text)
    for layout in LAYOUTS.values():
        if layout.required and set(layout.required) <= set(columns):
            return layout.format
    if tritonbench.is_header(columns):
        return PeerFormat.TRITONBENCH
    raise InvalidRequestError(
        f"no format has the header {_shown(columns)}. Known: {known_formats()}"
    )


def read_table(
    text: str, format_: PeerFormat | None, given: Given, first_line: int = 2
) -> PeerTable:
    """Every line of a table; `first_line` is the file's number of the line behind the header.

    Raises InvalidRequestError where the header is not the format's.
    """
    format_ = format_ or detect_format(text)
    layout, columns = LAYOUTS[format_], _header(text)
    _check_header(layout, columns)
    rows: list[PeerRow] = []
    faults: list[LineFault] = []
    for line, cells in _lines(text, first_line):
        try:
            rows += layout.read(line, _named(columns, cells), given)
        except BadCellError as fault:
            faults.append(
                LineFault(line=line, column=fault.column, value=fault.value, message=fault.message)
            )
    return PeerTable(format_, tuple(rows), tuple(faults))


def _separator(text: str) -> str:
    return ";" if ";" in text.partition("\n")[0] else ","


def _header(text: str) -> list[str]:
    if not text.strip():
        raise InvalidRequestError("the table is empty; its first line must be the header")
    try:
        first = next(csv.reader(io.StringIO(text), delimiter=_separator(text)))
    except (csv.Error, StopIteration) as error:
        raise InvalidRequestError(f"the header cannot be read: {error}") from error
    return [name.strip() for name in first]


def _check_header(layout: Layout, columns: list[str]) -> None:
    name = FORMAT_NAMES[layout.format]
    repeated = sorted({column for column in columns if columns.count(column) > 1})
    if repeated:
        raise InvalidRequestError(f"the header has the column {repeated[0]!r} twice")
    missing = [column for column in layout.required if column not in columns]
    if missing:
        raise InvalidRequestError(f"the header lacks {', '.join(missing)}: it is not {name}")
    if layout.format is PeerFormat.TRITONBENCH and not tritonbench.is_header(columns):
        raise InvalidRequestError(f"no column is named implementation-latency: it is not {name}")
    unknown = [c for c in columns if layout.known is not None and c not in layout.known]
    if unknown:
        raise InvalidRequestError(f"the header has {_shown(unknown)}, which {name} has not")


def _lines(text: str, first_line: int) -> Iterator[tuple[int, list[str]]]:
    """(line of the file, its cells) behind the header; empty lines are left out."""
    reader = csv.reader(io.StringIO(text), delimiter=_separator(text))
    next(reader)
    skipped = first_line - reader.line_num - 1
    try:
        begins = reader.line_num + 1
        for cells in reader:
            if any(cell.strip() for cell in cells):
                yield begins + skipped, cells
            begins = reader.line_num + 1
    except csv.Error as error:
        raise InvalidRequestError(f"line {reader.line_num + skipped}: {error}") from error


def _named(columns: list[str], cells: list[str]) -> dict[str, str]:
    if len(cells) != len(columns):
        message = f"{len(cells)} cells; the header has {len(columns)}"
        raise BadCellError("", "", message)
    for column, cell in zip(columns, cells, strict=True):
        longest = LONGEST_CONFIG if column == "extra_benchmark_config_str" else LONGEST_CELL
        if len(cell) > longest:
            raise BadCellError(column, cell, f"longer than {longest} characters")
        if _UNSTORABLE.search(cell):
            raise BadCellError(column, "", "holds a NUL character")
    return dict(zip(columns, cells, strict=True))


def _shown(columns: list[str]) -> str:
    shown = ", ".join(repr(name[:40]) for name in columns[:4])
    return f"{shown}, ..." if len(columns) > 4 else shown
