"""The overview, the search, and how many results came since a page was drawn."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response

from lossbench.service.api.context import ServiceContext
from lossbench.service.api.dependencies import may_read
from lossbench.service.plots import text
from lossbench.service.plots.markdown import markdown_table
from lossbench.service.store.permalinks import highest_result_id

from .changes import Change, lately
from .exports import exports_of
from .machine_queries import Device, measured_on
from .queries import newer_results, overview
from .rendering import page
from .search import found_at

FRESH = timedelta(days=7)
"""A device that measured nothing for longer is said to be quiet."""


def plain_pages(context: ServiceContext) -> APIRouter:
    """Routes of the pages that only read."""
    router = APIRouter(include_in_schema=False, dependencies=[Depends(may_read)])

    @router.get("/")
    def show_overview(request: Request) -> Response:
        with context.database.reading() as session:
            changed = lately(session)
            return page(
                request,
                "overview.html",
                overview=overview(session),
                lately=changed,
                devices=_devices(measured_on(session)),
                newest=highest_result_id(session),
                exports=exports_of(request, ("/series", ""), {}, _markdown(changed.changes)),
            )

    @router.get("/newer")
    def count_newer(after: Annotated[str, Query(max_length=64)]) -> dict[str, int]:
        with context.database.reading() as session:
            return {"newer": newer_results(session, after)}

    @router.get("/search")
    def search(request: Request, q: Annotated[str, Query(max_length=400)] = "") -> Response:
        with context.database.reading() as session:
            return found_at(request, session, context.catalogue, q.strip())

    return router


def _devices(found: Sequence[Device]) -> list[dict[str, Any]]:
    """Each device by name, once, with the time of its newest result."""
    since = datetime.now(UTC) - FRESH
    by_name: dict[str, Device] = {}
    for device in found:
        by_name.setdefault(device.device_name, device)
    return [{"device": device, "quiet": device.newest_at < since} for device in by_name.values()]


def _markdown(changes: Sequence[Change]) -> str:
    rows = [
        [
            f"`{change.kernel}{f'[{change.params}]' if change.params else ''}`",
            f"{change.before} → {change.after}",
            f"`{change.case}`, {change.pass_}, {change.device_name}",
            f"{change.way} {change.time}".strip() or text.NONE,
            change.memory or "same",
            change.error or "same",
        ]
        for change in changes
    ]
    headings = ("kernel", "versions", "case", "time / baseline", "workspace", "error grade")
    return markdown_table(headings, rows)
