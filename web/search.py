"""Where a search leads: straight to the page of a name, else to a list of what resembles it."""

from urllib.parse import quote, urlencode

from fastapi import Request, Response
from fastapi.responses import RedirectResponse
from sqlalchemy.orm import Session

from lossbench.service.contract.case import Case
from lossbench.service.contract.catalogue import Catalogue
from lossbench.service.contract.lineage import current_name
from lossbench.service.store.aggregates import device_names
from lossbench.service.store.models import PermalinkRow
from lossbench.service.store.workers import list_workers

from .rendering import page

BY_PREFIX = {"job-": "/jobs/", "run-": "/results/", "wrk-": "/machines/"}
MOST_NAMED = 20


def found_at(request: Request, session: Session, catalogue: Catalogue, wanted: str) -> Response:
    """Goes to what the words name exactly, or shows what resembles them."""
    target = _target(session, catalogue, wanted)
    if target is not None:
        return RedirectResponse(target, 303)
    word = wanted.lower()
    kernels = [
        row
        for name, row in sorted(catalogue.kernels.items())
        if word in f"{name} {row.package or ''} {row.summary}".lower()
    ]
    return page(
        request,
        "search.html",
        wanted=wanted,
        kernels=kernels,
        presets=[name for name in sorted(catalogue.presets) if word in name.lower()],
        devices=[name for name in device_names(session) if word in name.lower()],
        machines=[
            worker
            for worker in list_workers(session)
            if word in f"{worker.name} {worker.id}".lower()
        ][:MOST_NAMED],
    )


def _target(session: Session, catalogue: Catalogue, wanted: str) -> str | None:
    """The page of the one thing that is named so."""
    if not wanted:
        return "/kernels"
    for prefix, path in BY_PREFIX.items():
        if wanted.startswith(prefix):
            return path + quote(wanted[:80], safe="")
    name, at, version = wanted.partition("@")
    if current_name(name, catalogue) in catalogue.kernels:
        shown = version.partition("[")[0]
        return f"/kernels/{quote(name)}" + (f"@{quote(shown, safe='')}" if at and shown else "")
    if wanted in catalogue.presets:
        return f"/shapes?{urlencode({'model': wanted, 'need_tokens': 8192})}#recommend"
    if _is_case(wanted):
        return f"/history?{urlencode({'case': wanted})}"
    short = wanted.removeprefix("/v/")
    return f"/v/{short}" if session.get(PermalinkRow, short) is not None else None


def _is_case(wanted: str) -> bool:
    try:
        Case.parse(wanted)
    except ValueError:
        return False
    return True
