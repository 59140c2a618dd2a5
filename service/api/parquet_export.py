"""Rows as a Parquet file, row group after row group. The only place that loads pyarrow.

A service that nobody asks for Parquet never loads it: it is large, and an extra of its own.
"""

import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from types import ModuleType
from typing import Any

from ..contract.errors import MissingPackageError

GROUP_ROWS = 10_000
"""Rows of one row group, which is held whole; the footer is held too and grows with each."""

Batches = Iterable[Sequence[Sequence[Any]]]


def parquet_writer() -> Callable[[Mapping[str, type], Batches], Iterator[bytes]]:
    """What writes Parquet: (columns with types, batches of rows) -> bytes of the file in order.

    Raises MissingPackageError where pyarrow is not installed.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        raise MissingPackageError(
            "Parquet needs the package pyarrow where the service runs: "
            "pip install 'lossbench[parquet]'; results.csv needs nothing"
        ) from error

    def write(columns: Mapping[str, type], batches: Batches) -> Iterator[bytes]:
        return _chunks(pyarrow, columns, batches)

    return write


def _schema(arrow: ModuleType, columns: Mapping[str, type]) -> Any:
    kinds = {
        str: arrow.string(),
        int: arrow.int64(),
        float: arrow.float64(),
        bool: arrow.bool_(),
        datetime: arrow.timestamp("us", tz="UTC"),
    }
    return arrow.schema([(name, kinds[kind]) for name, kind in columns.items()])


def _chunks(arrow: ModuleType, columns: Mapping[str, type], batches: Batches) -> Iterator[bytes]:
    schema, sink = _schema(arrow, columns), _Sink()
    with arrow.parquet.ParquetWriter(arrow.PythonFile(sink, mode="w"), schema) as writer:
        waiting: list[Any] = []
        for rows in batches:
            values = [list(column) for column in zip(*rows, strict=True)]
            arrays = [
                arrow.array(some, type=kind.type) for some, kind in zip(values, schema, strict=True)
            ]
            waiting.append(arrow.RecordBatch.from_arrays(arrays, schema=schema))
            if sum(batch.num_rows for batch in waiting) >= GROUP_ROWS:
                writer.write_table(arrow.Table.from_batches(waiting))
                waiting = []
                yield sink.taken()
        if waiting:
            writer.write_table(arrow.Table.from_batches(waiting))
    yield sink.taken()


class _Sink(io.RawIOBase):
    """Keeps what is written until it is taken."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._written = 0

    def writable(self) -> bool:
        """A file is written to it."""
        return True

    def write(self, data: Any) -> int:
        """Hold some bytes."""
        size = len(memoryview(data).cast("B"))
        self._held += data
        self._written += size
        return size

    def tell(self) -> int:
        """Bytes written so far, taken or not."""
        return self._written

    def close(self) -> None:
        """What is held stays there to be taken."""

    def taken(self) -> bytes:
        """The bytes held, which are then let go."""
        data, self._held = bytes(self._held), bytearray()
        return data
