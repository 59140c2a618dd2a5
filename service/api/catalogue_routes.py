"""Routes of kernels and machines."""

from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from ..contract.catalogue import KernelRow
from ..contract.errors import NotFoundError
from ..contract.plan import nearest
from ..store.models import WorkerRow
from ..store.overviews import measured_versions, workers_page
from ..store.workers import get_worker
from .dependencies import READING, Context
from .paging import Page, PageQuery, cut_page, decode_cursor, encode_cursor, link_next
from .problems import problem_docs
from .records import KernelDetail, KernelView, MachineView, MeasuredVersionView

router = APIRouter(prefix="/api/v1", dependencies=READING, tags=["kernels and machines"])


def _kernel_view(row: KernelRow) -> KernelView:
    fields = set(KernelView.model_fields) - {"latest"}
    return KernelView(latest=row.latest, **{name: getattr(row, name) for name in fields})


@router.get("/kernels", responses=problem_docs())
def get_kernels(
    request: Request, response: Response, query: Annotated[PageQuery, Query()], context: Context
) -> Page[KernelView]:
    """Kernels of the catalogue and of live workers, by name: versions, params, options."""
    after = decode_cursor("kernels", query.cursor, [str])[0] if query.cursor else ""
    rows = [row for name, row in sorted(context.catalogue.kernels.items()) if name > after]
    shown, cursor = cut_page(rows, query.limit, lambda row: encode_cursor("kernels", row.name))
    link_next(request, response, cursor)
    return Page(items=[_kernel_view(row) for row in shown], next_cursor=cursor)


@router.get("/kernels/{name}", responses=problem_docs(404))
def get_kernel(name: Annotated[str, Path(max_length=64)], context: Context) -> KernelDetail:
    """One kernel with what was measured of it, by version and outcome."""
    kernels = context.catalogue.kernels
    row = kernels.get(name)
    if row is None:
        known = sorted(kernels)
        listed = ", ".join(known)
        raise NotFoundError(f"there is no kernel {name!r}{nearest(name, known)}. Known: {listed}")
    with context.database.reading() as session:
        measured = measured_versions(session, name)
    views = tuple(
        MeasuredVersionView.model_validate(entry, from_attributes=True) for entry in measured
    )
    return KernelDetail(**dict(_kernel_view(row)), measured=views)


def _machine_view(worker: WorkerRow, waiting: dict[str, int]) -> MachineView:
    environment = worker.environment
    return MachineView(
        id=worker.id,
        name=worker.name,
        state=worker.state,
        note=worker.note,
        queues=tuple(worker.queues),
        lots_waiting=sum(waiting.get(queue, 0) for queue in worker.queues),
        lot_id=worker.lot_id,
        started_at=worker.started_at,
        beat_at=worker.beat_at,
        environment_id=worker.environment_id,
        device_type=environment.device_type if environment else None,
        device_name=environment.device_name if environment else None,
        memory_bytes=environment.memory_bytes if environment else None,
        facts=environment.facts if environment else {},
        vitals=worker.vitals,
    )


@router.get("/machines", responses=problem_docs())
def get_machines(
    request: Request, response: Response, query: Annotated[PageQuery, Query()], context: Context
) -> Page[MachineView]:
    """Workers with their devices, newest first: state, heartbeat, queue, health."""
    before = decode_cursor("machines", query.cursor, [str])[0] if query.cursor else None
    waiting = context.queue.depth()
    with context.database.reading() as session:
        rows = workers_page(session, before, query.limit + 1)
    shown, cursor = cut_page(rows, query.limit, lambda row: encode_cursor("machines", row.id))
    link_next(request, response, cursor)
    return Page(items=[_machine_view(row, waiting) for row in shown], next_cursor=cursor)


@router.get("/machines/{machine_id}", responses=problem_docs(404))
def get_machine(machine_id: Annotated[str, Path(max_length=128)], context: Context) -> MachineView:
    """One worker with its device."""
    with context.database.reading() as session:
        worker = get_worker(session, machine_id)
    return _machine_view(worker, context.queue.depth())
