"""Routes of imports: tables of other benchmarks, as they are."""

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from pydantic import BaseModel, Field
from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import Response

from ..contract.case import MAX_HIDDEN, MAX_TOKENS, MAX_VOCAB
from ..contract.errors import Fault, InvalidRequestError
from ..contract.peer_formats.rows import Given, PeerFormat
from ..contract.peer_formats.tables import read_table
from ..contract.run import Record
from ..contract.words import Dtype, Pass
from ..store.imports import import_table, imported_rows_page
from .dependencies import READING, Context, Submitter
from .errors import UnsupportedMediaTypeError
from .faults import LONGEST_MESSAGE
from .paging import Page, PageQuery, cut_page, decode_cursor, encode_cursor, link_next
from .problems import problem_docs

router = APIRouter(prefix="/api/v1", dependencies=READING, tags=["imports"])

MOST_FAULTS = 20
_TABLES = ("text/csv", "text/plain", "application/csv", "application/octet-stream", "")
_FORM = "multipart/form-data"

Name = Annotated[str | None, Field(min_length=1, max_length=200)]


class ImportQuery(BaseModel):
    """What the table is of, and what it does not say itself."""

    model_config = PageQuery.model_config

    format: Annotated[
        PeerFormat | None, Field(description="Format; told by the header unless given.")
    ] = None
    filename: Annotated[Name, Field(description="Name of the file, kept with its rows.")] = None
    first_line: Annotated[
        int, Field(ge=2, le=10**9, description="Line of the file behind the header, for faults.")
    ] = 2
    gpu: Annotated[Name, Field(description="GPU, where the table names none.")] = None
    version: Annotated[Name, Field(description="Version of the measured package.")] = None
    commit: Annotated[Name, Field(description="Commit that the table is of.")] = None
    dtype: Dtype | None = None
    pass_: Annotated[Pass | None, Field(alias="pass")] = None
    tokens: Annotated[int | None, Field(ge=1, le=MAX_TOKENS)] = None
    hidden: Annotated[int | None, Field(ge=1, le=MAX_HIDDEN)] = None
    vocab: Annotated[int | None, Field(ge=2, le=MAX_VOCAB)] = None

    def given(self) -> Given:
        """The part that the rows are read with."""
        return Given.model_validate(self.model_dump(include=set(Given.model_fields)))


class ImportFault(Record):
    """What is wrong with one line; `column` and `value` are empty where it is the whole line."""

    line: int
    column: str
    value: str
    message: str


class ImportAnswer(Record):
    """What an import did, in rows. A row that was there already is known, and stays as it was."""

    format: PeerFormat
    filename: str | None
    added: int
    known: int
    refused: int
    results_added: int
    without_result: int
    """Added rows that are no results: other operations, or a case that is not known whole."""
    faults: tuple[ImportFault, ...]
    """Of the first refused lines."""


class ImportedRowView(Record):
    """One row of a peer's table as it was written, and the result that was made of it."""

    id: str
    format: PeerFormat
    kernel: str
    provider: str
    version: str | None
    commit: str | None
    gpu: str | None
    measured_at: datetime | None
    filename: str | None
    fields: dict[str, str]
    result_id: str | None
    imported_at: datetime


async def table_of(request: Request) -> tuple[bytes, str | None]:
    """The bytes of the table and the name it came under; async since the socket is read."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == _FORM:
        form = await request.form()
        file = form.get("file")
        if not isinstance(file, UploadFile):
            message = "the form has no file in its field `file`"
            raise InvalidRequestError([Fault("/file", "missing", message)])
        return await file.read(), (file.filename or None)
    if kind not in _TABLES:
        raise UnsupportedMediaTypeError(f"the body is {kind}; send text/csv or {_FORM}")
    return await request.body(), None


def _text(raw: bytes) -> str:
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise InvalidRequestError(f"line {line} is not UTF-8 text") from error


_TABLE_SCHEMA = {"schema": {"type": "string"}}
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "text/csv": _TABLE_SCHEMA,
            _FORM: {
                "schema": {
                    "type": "object",
                    "required": ["file"],
                    "properties": {"file": {"type": "string", "format": "binary"}},
                }
            },
        },
    }
}
_PROBLEMS = problem_docs(413, 415, 429)
_PROBLEMS[415] = {**_PROBLEMS[415], "description": "The body is neither CSV nor a form"}


@router.post("/imports", responses=_PROBLEMS, openapi_extra=_BODY)
def post_import(
    query: Annotated[ImportQuery, Query()],
    context: Context,
    principal: Submitter,
    table: Annotated[tuple[bytes, str | None], Depends(table_of)],
) -> ImportAnswer:
    """Import a table of Liger, TritonBench, CCE or PyTorch's lce_benchmark. Twice is once.

    Rows of a linear cross entropy become results marked `imported`, which no verdict, mean or plot
    takes. Good lines are stored even where others are refused.
    """
    raw, sent_name = table
    filename = query.filename or _kept_name(sent_name)
    given = query.given()
    found = read_table(_text(raw), query.format, given, query.first_line)
    done = import_table(context.database, found, given, filename)
    faults = tuple(
        ImportFault(
            line=fault.line,
            column=fault.column[:60],
            value=fault.value,
            message=fault.message[:LONGEST_MESSAGE],
        )
        for fault in done.faults[:MOST_FAULTS]
    )
    return ImportAnswer(**{**done._asdict(), "filename": filename, "faults": faults})


def _kept_name(sent: str | None) -> str | None:
    """The last part of a file's name, without signs that no database stores."""
    last = (sent or "").replace("\\", "/").rpartition("/")[2][:200]
    return "".join(sign for sign in last if sign.isprintable()) or None


class RowsQuery(PageQuery):
    """Which imported rows to list."""

    format: PeerFormat | None = None
    kernel: Annotated[Name, Field(description="Operation, as the peer names it.")] = None
    provider: Annotated[Name, Field(description="Implementation, as the peer names it.")] = None
    gpu: Name = None


@router.get("/imports", responses=problem_docs())
def get_imports(
    request: Request, response: Response, query: Annotated[RowsQuery, Query()], context: Context
) -> Page[ImportedRowView]:
    """Imported rows as they were written, the newest import first."""
    narrow = query.model_dump(mode="json", exclude={"limit", "cursor"}, exclude_none=True)
    before = _place(query.cursor) if query.cursor else None
    with context.database.reading() as session:
        rows = imported_rows_page(session, narrow, before, query.limit + 1)
        views = [
            ImportedRowView(
                **{name: getattr(row, name) for name in _SAME},
                commit=row.commit_name,
                result_id=row.run_id,
            )
            for row in rows
        ]
    shown, cursor = cut_page(
        views, query.limit, lambda v: encode_cursor("imports", v.imported_at.isoformat(), v.id)
    )
    link_next(request, response, cursor)
    return Page(items=list(shown), next_cursor=cursor)


_SAME = tuple(set(ImportedRowView.model_fields) - {"commit", "result_id"})


def _place(cursor: str) -> tuple[datetime, str]:
    moment, row_id = decode_cursor("imports", cursor, [str, str])
    try:
        return datetime.fromisoformat(moment).astimezone(UTC), row_id
    except (ValueError, OverflowError) as error:
        fault = Fault("/query/cursor", "bad_cursor", "this is not a cursor of this list")
        raise InvalidRequestError([fault]) from error
