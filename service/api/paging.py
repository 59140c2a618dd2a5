"""Keyset paging: `limit`, an opaque `cursor`, `{"items": [], "next_cursor": null}` and `Link`."""

import base64
import binascii
import json
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Generic, TypeVar
from urllib.parse import urlencode

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from ..contract.errors import Fault, InvalidRequestError

T = TypeVar("T")
V = TypeVar("V")
CursorPart = str | int | float | None

MOST_VALUES = 50
"""Values that one repeatable filter may have."""


class PageQuery(BaseModel):
    """How much of a list to answer with, and from where."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    limit: Annotated[int, Field(ge=1, le=1000, description="Most items of one page.")] = 100
    cursor: Annotated[
        str | None, Field(max_length=2000, description="`next_cursor` of the page before.")
    ] = None


class Page(BaseModel, Generic[T]):
    """Part of a list; `next_cursor` is null at its end."""

    items: list[T]
    next_cursor: str | None = None


def encode_cursor(kind: str, *parts: CursorPart) -> str:
    """Opaque text of a place in a list."""
    text = json.dumps([kind, *parts], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode_cursor(kind: str, cursor: str, types: Sequence[type | tuple[type, ...]]) -> list[Any]:
    """Parts of a cursor made for this list. Raises InvalidRequestError for any other text."""
    fault = Fault("/query/cursor", "bad_cursor", "this is not a cursor of this list")
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        parts = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, RecursionError) as error:
        raise InvalidRequestError([fault]) from error
    if not isinstance(parts, list) or parts[:1] != [kind] or len(parts) != len(types) + 1:
        raise InvalidRequestError([fault])
    for part, expected in zip(parts[1:], types, strict=True):
        small = not isinstance(part, int) or abs(part) < 2**53
        if isinstance(part, bool) or not isinstance(part, expected) or not small:
            raise InvalidRequestError([fault])
        if isinstance(part, str) and "\0" in part:
            raise InvalidRequestError([fault])
    return parts[1:]


def next_link(request: Request, cursor: str) -> str:
    """Value of `Link` for the page behind this one."""
    pairs = [(name, value) for name, value in request.query_params.multi_items()]
    kept = [(name, value) for name, value in pairs if name != "cursor"]
    return f'<{request.url.path}?{urlencode([*kept, ("cursor", cursor)])}>; rel="next"'


def cut_page(
    rows: Sequence[V], limit: int, place: Callable[[V], str]
) -> tuple[Sequence[V], str | None]:
    """One page of `limit + 1` rows read: its rows and the cursor of what follows."""
    if len(rows) <= limit:
        return rows, None
    shown = rows[:limit]
    return shown, place(shown[-1])


def link_next(request: Request, response: Response, cursor: str | None) -> None:
    """Add the `Link` header where more follows."""
    if cursor is not None:
        response.headers["Link"] = next_link(request, cursor)
