"""Routes of device proofs: what a device showed that it can tell apart."""

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from ..store.proofs import ProofKind, proofs_page
from ..store.workers import get_worker
from .dependencies import READING, Context
from .paging import Page, PageQuery, cut_page, decode_cursor, encode_cursor, link_next
from .problems import problem_docs
from .proof_records import ProofView

router = APIRouter(prefix="/api/v1", dependencies=READING, tags=["kernels and machines"])


class ProofQuery(PageQuery):
    """Which proofs to list."""

    kind: Annotated[ProofKind | None, Field(description="Where it comes from.")] = None
    machine: Annotated[str | None, Field(max_length=128, description="Id of a worker.")] = None


@router.get("/proofs", responses=problem_docs(404))
def get_proofs(
    request: Request, response: Response, query: Annotated[ProofQuery, Query()], context: Context
) -> Page[ProofView]:
    """What devices showed that they can tell apart, newest first."""
    before = decode_cursor("proofs", query.cursor, [str])[0] if query.cursor else None
    with context.database.reading() as session:
        hardware = None
        if query.machine is not None:
            environment = get_worker(session, query.machine).environment
            hardware = environment.hardware_fingerprint if environment else ""
        rows = proofs_page(session, query.kind, hardware, before, query.limit + 1)
        views = [ProofView.model_validate(row, from_attributes=True) for row in rows]
    shown, cursor = cut_page(views, query.limit, lambda view: encode_cursor("proofs", view.id))
    link_next(request, response, cursor)
    return Page(items=list(shown), next_cursor=cursor)
