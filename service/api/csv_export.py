"""Rows as CSV text that a spreadsheet opens without running any of it."""

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE | re.ASCII)


def safe_text(text: str) -> str:
    """Text with an apostrophe before what a spreadsheet would take for a formula.

    A number keeps its sign: `-5` is no formula.
    """
    begins = text[:1] in _FORMULA or text.lstrip()[:1] in _FORMULA[:4]
    if text and begins and not _NUMBER.fullmatch(text):
        return f"'{text}"
    return text


def csv_cell(value: Any) -> str:
    """One value as text: empty for None, times in UTC, numbers as Python writes them."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return safe_text(value) if isinstance(value, str) else repr(value)


def csv_chunks(
    columns: Sequence[str], batches: Iterable[Sequence[Sequence[Any]]]
) -> Iterator[bytes]:
    """The header, then each batch, as UTF-8 bytes."""
    yield _lines([columns])
    for rows in batches:
        yield _lines([[csv_cell(value) for value in row] for row in rows])


def _lines(rows: Iterable[Sequence[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerows(rows)
    return text.getvalue().encode()
