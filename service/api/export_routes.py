"""Routes that write results to files: CSV and Parquet, streamed."""

from collections.abc import Iterator
from itertools import chain
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import StreamingResponse

from ..store.exports import COLUMNS, Row, result_batches
from .csv_export import csv_chunks
from .dependencies import READING, Context
from .parquet_export import parquet_writer
from .problems import problem_docs
from .result_routes import Filters, OnlyImported

router = APIRouter(prefix="/api/v1", dependencies=READING, tags=["export"])

CSV = "text/csv; charset=utf-8"
PARQUET = "application/vnd.apache.parquet"


class ExportQuery(Filters):
    """Which results to write; without filters every one."""

    imported: OnlyImported = None


def _answer(chunks: Iterator[bytes], media_type: str, name: str) -> StreamingResponse:
    headers = {
        "Content-Disposition": f'attachment; filename="{name}"',
        "Cache-Control": "private, no-store",
    }
    return StreamingResponse(chunks, media_type=media_type, headers=headers)


def _batches(context: Context, query: ExportQuery) -> Iterator[list[Row]]:
    """The results; the first batch is read at once, so that a database that is away is a 503."""
    found = result_batches(context.database, query.wanted())
    first = next(found, None)
    return iter(()) if first is None else chain([first], found)


@router.get(
    "/export/results.csv",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/csv": {}}, "description": "CSV"}, **problem_docs()},
)
def export_csv(query: Annotated[ExportQuery, Query()], context: Context) -> StreamingResponse:
    """Every result that matches, newest first, as CSV with a header, units in the names.

    A text that a spreadsheet would run as a formula has an apostrophe before it.
    """
    chunks = csv_chunks(list(COLUMNS), _batches(context, query))
    return _answer(chunks, CSV, "results.csv")


@router.get(
    "/export/results.parquet",
    response_class=StreamingResponse,
    responses={200: {"content": {PARQUET: {}}, "description": "Parquet"}, **problem_docs()},
)
def export_parquet(query: Annotated[ExportQuery, Query()], context: Context) -> StreamingResponse:
    """The same as Parquet, with types. Needs pyarrow where the service runs."""
    write = parquet_writer()
    return _answer(write(COLUMNS, _batches(context, query)), PARQUET, "results.parquet")
