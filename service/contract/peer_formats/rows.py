"""What every peer format is read into: rows as written, and the cell that a row stands for.

A table says less than a result of ours: often no GPU, dtype or vocabulary. What it leaves out may
be `Given` with it; a row whose case stays unknown is kept, and is no result.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from pydantic import ValidationError

from ..case import MAX_HIDDEN, MAX_TOKENS, MAX_VOCAB, Case
from ..contender import Contender
from ..run import Cell, Record
from ..words import Dtype, Outcome, Pass

LONGEST_CELL = 400


class PeerFormat(StrEnum):
    """Tables that can be imported."""

    LIGER = "liger"
    TRITONBENCH = "tritonbench"
    CCE = "cce"
    PYTORCH_LCE = "pytorch-lce"


FORMAT_NAMES: dict[PeerFormat, str] = {
    PeerFormat.LIGER: "Liger's all_benchmark_data.csv",
    PeerFormat.TRITONBENCH: "TritonBench's wide table",
    PeerFormat.CCE: "the table of CCE's `python -m benchmark`",
    PeerFormat.PYTORCH_LCE: "PyTorch's lce_benchmark CSV",
}


class Given(Record):
    """What the sender says of a table that does not say it itself; all of it is part of identity.

    `version` and `commit` are those of the measured package; dimensions in elements.
    """

    gpu: str | None = None
    version: str | None = None
    commit: str | None = None
    dtype: Dtype | None = None
    pass_: Pass | None = None
    tokens: int | None = None
    hidden: int | None = None
    vocab: int | None = None


class LineFault(Record):
    """What is wrong with one line: the line of the file, its column, the value, what is right."""

    line: int
    column: str
    value: str
    message: str

    @property
    def text(self) -> str:
        """The fault as one line."""
        where = f"line {self.line}" + (f", {self.column}" if self.column else "")
        return (
            f"{where}: {self.value!r}: {self.message}" if self.value else f"{where}: {self.message}"
        )


class BadCellError(ValueError):
    """A cell of a table does not hold what its column says."""

    def __init__(self, column: str, value: str, message: str) -> None:
        self.column, self.value, self.message = column, value[:60], message
        super().__init__(message)


@dataclass(frozen=True)
class PeerRow:
    """One measurement of a peer's table.

    `identity` names what was measured, without what was found; `merge_key` is shared by the rows of
    one result (Liger writes time and memory on lines of their own). `cell` is None for an operation
    that is no linear cross entropy, and where the case is not known whole.
    """

    line: int
    kernel: str
    provider: str
    identity: Mapping[str, str]
    merge_key: Mapping[str, str]
    fields: Mapping[str, str]
    gpu: str | None = None
    version: str | None = None
    commit: str | None = None
    measured_at: datetime | None = None
    cell: Cell | None = None
    outcome: Outcome = Outcome.OK
    latency_ms: float | None = None
    numbers: Mapping[str, float] = field(default_factory=dict)
    """More numbers, under the peer's own names with its units."""
    assumed: tuple[str, ...] = ()
    """What the table does not say and was taken to be so, in words."""


Cells = Mapping[str, str]
LineReader = Callable[[int, Cells, Given], list[PeerRow]]
"""From a line to its rows. Raises BadCellError."""


@dataclass(frozen=True)
class Layout:
    """How a format's table is told apart and read."""

    format: PeerFormat
    required: tuple[str, ...]
    read: LineReader
    known: tuple[str, ...] | None = None
    """Every column there may be; None where any may."""


def positive(cells: Cells, column: str, unit: str) -> float:
    """The number above 0 in a column. Raises BadCellError."""
    return positive_number(column, cells[column], unit)


def positive_number(column: str, text: str, unit: str) -> float:
    """A finite number above 0. Raises BadCellError."""
    value = number(column, text, unit)
    if value <= 0:
        raise BadCellError(column, text, f"a number of {unit} above 0 belongs here")
    return value


def number(column: str, text: str, unit: str) -> float:
    """A finite number. Raises BadCellError."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise BadCellError(column, text, f"a number of {unit} belongs here, such as 12.5")
    return value


def word(cells: Cells, column: str) -> str:
    """The text of a column that must hold one. Raises BadCellError."""
    text = cells[column].strip()
    if not text:
        raise BadCellError(column, "", f"{column} is empty")
    return text


def one_of(cells: Cells, column: str, known: Mapping[str, Any]) -> Any:
    """What a closed word stands for. Raises BadCellError listing the words."""
    text = cells[column].strip()
    if text not in known:
        raise BadCellError(column, text, f"one of {', '.join(known)} belongs here")
    return known[text]


def moment(cells: Cells, column: str) -> datetime:
    """A time such as 2024-09-03 15:31:39, or a date; without a zone it is UTC."""
    text = cells[column].strip()
    try:
        found = datetime.fromisoformat(text)
        found = found if found.tzinfo else found.replace(tzinfo=UTC)
        return found.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        message = "a time such as 2024-09-03 15:31:39 belongs here"
        raise BadCellError(column, text, message) from error


def whole(value: object, most: int) -> int | None:
    """A whole number in 1 .. most, or None: a case needs one."""
    text = str(value).strip()
    if not re.fullmatch(r"\d{1,12}", text, re.ASCII):
        return None
    return int(text) if 1 <= int(text) <= most else None


def shape(tokens: object, hidden: object, vocab: object) -> tuple[int, int, int] | None:
    """(N, H, V) where all three are known and in range, else None."""
    found = whole(tokens, MAX_TOKENS), whole(hidden, MAX_HIDDEN), whole(vocab, MAX_VOCAB)
    n, h, v = found
    return None if n is None or h is None or v is None or v < 2 else (n, h, v)


def cell_of(
    kernel: str, version: str | None, params: dict[str, str], case: Case, pass_: Pass
) -> Cell | None:
    """The cell, or None where the peer's names cannot be a contender's."""
    try:
        contender = Contender.model_validate(
            {"kernel": kernel, "version": version, "params": params}
        )
    except ValidationError:
        return None
    return Cell(contender=contender, case=case, pass_=pass_)


def tidy(text: str) -> str:
    """A peer's name as a lower-case word of ours: `CuTe DSL` becomes `cute-dsl`."""
    return re.sub(r"[^a-z0-9_.]+", "-", text.strip().lower()).strip("-")
