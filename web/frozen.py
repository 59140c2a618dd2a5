"""A view as of a moment: what a permalink kept, and how its page says so."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import Request, Response
from sqlalchemy.orm import Session

from lossbench.service.api.answers import tagged_bytes
from lossbench.service.api.context import ServiceContext
from lossbench.service.api.result_routes import Filters
from lossbench.service.api.view_records import ViewStatus

from .address import Given, query_with
from .exports import API, RESULTS


@dataclass(frozen=True)
class Moment:
    """The stored view that a page shows: its status now, and the live page of the same query."""

    status: ViewStatus
    live: str


@dataclass(frozen=True)
class Drawable:
    """A page that can be shown as of a moment: `load` reads, `draw` makes the page of it."""

    path: str
    load: Callable[[Session, ServiceContext, Any], Any]
    draw: Callable[[Request, ServiceContext, Given, Any, Any, Moment | None], Response]


def moment_of(status: ViewStatus) -> Moment:
    """The moment of a stored view."""
    query = query_with(status.query)
    path = f"{API}{RESULTS}" if status.path == RESULTS else status.path  # it has no page of its own
    return Moment(status, f"{path}?{query}" if query else path)


def then(filters: Filters) -> Filters:
    """The filters for a session that sees the past: what was valid then may be invalid now."""
    return filters.model_copy(update={"include_invalid": True})


def tagged_page(request: Request, drawn: Response) -> Response:
    """The page with a strong ETag: a permalink's page changes only when what it says does."""
    headers: Mapping[str, str] = {"Content-Type": "text/html; charset=utf-8"}
    return tagged_bytes(request, bytes(drawn.body), headers=dict(headers))
