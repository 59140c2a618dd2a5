"""Workers as the service sees them: register, beat, list, and where a job can go."""

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session, selectinload

from ..contract.errors import NotFoundError
from ..contract.machine import Machine
from ..contract.run import Environment
from ..contract.words import LotState
from .database import Database
from .events import now
from .jobs import UNROUTED
from .models import LotRow, WorkerRow
from .results import insert_environment

LIVE = ("idle", "busy")
STOPPED = "stopped"
"""Note of a worker that left because it was told to."""


def register_worker(
    database: Database,
    worker_id: str,
    name: str,
    queues: Sequence[str],
    environment: Environment,
    kernels: Mapping[str, Any] | None = None,
) -> None:
    """Make the worker known with its device. It takes no lots before this.

    `kernels`: catalogue rows by name of what it offers beyond the shipped catalogue.
    """
    with database.transaction() as session:
        session.add(
            WorkerRow(
                id=worker_id,
                name=name,
                queues=list(queues),
                state="idle",
                beat=0,
                beat_at=now(),
                started_at=now(),
                environment_id=insert_environment(session, environment),
                vitals={},
                kernels=dict(kernels or {}),
            )
        )


def beat(
    database: Database,
    worker_id: str,
    state: str,
    lot_id: str | None = None,
    vitals: dict[str, Any] | None = None,
) -> None:
    """Say that the worker lives, what it does, and how its device is."""
    values: dict[str, Any] = {
        "beat": WorkerRow.beat + 1,
        "beat_at": now(),
        "state": state,
        "lot_id": lot_id,
    }
    if vitals is not None:
        values["vitals"] = vitals
    with database.transaction() as session:
        session.execute(sa.update(WorkerRow).where(WorkerRow.id == worker_id).values(**values))


def set_worker_state(session: Session, worker_id: str, state: str, note: str | None) -> None:
    """Mark a worker as gone or unhealthy, with the reason."""
    session.execute(
        sa.update(WorkerRow)
        .where(WorkerRow.id == worker_id)
        .values(state=state, note=note, lot_id=None)
    )


def list_workers(session: Session, live_only: bool = False) -> list[WorkerRow]:
    """Workers, live ones before those that are gone, the newest first, with their environment."""
    # one that is started again and again leaves more rows than are listed
    query = sa.select(WorkerRow).order_by(WorkerRow.state == "gone", WorkerRow.id.desc())
    if live_only:
        query = query.where(WorkerRow.state.in_(LIVE))
    return list(session.scalars(query.limit(500).options(selectinload(WorkerRow.environment))))


def offered_kernels(session: Session) -> list[dict[str, Any]]:
    """What each live worker offers beyond the shipped catalogue, the latest started last."""
    return [kernels for (kernels,) in session.connection().execute(_OFFERS) if kernels]


_OFFERS = sa.select(WorkerRow.kernels).where(WorkerRow.state.in_(LIVE)).order_by(WorkerRow.id)
"""Put together once: every request asks."""


def get_worker(session: Session, worker_id: str) -> WorkerRow:
    """One worker. Raises NotFoundError."""
    worker = session.scalar(
        sa.select(WorkerRow)
        .where(WorkerRow.id == worker_id)
        .options(selectinload(WorkerRow.environment))
    )
    if worker is None:
        raise NotFoundError(f"there is no machine {worker_id!r}")
    return worker


def machine_of(worker: WorkerRow) -> Machine | None:
    """What planning needs to know of the worker's device."""
    environment = worker.environment
    if environment is None:
        return None
    return Machine(
        device_type="cuda" if environment.device_type == "cuda" else "cpu",
        device_name=environment.device_name,
        memory_bytes=environment.memory_bytes,
        gemm_tflops=float(environment.facts.get("gemm_tflops") or 0.05),
        hardware_fingerprint=environment.hardware_fingerprint,
        software_fingerprint=environment.software_fingerprint,
        queues=tuple(worker.queues),
    )


def live_machines(session: Session) -> list[Machine]:
    """Devices of the workers that take lots now, GPUs first."""
    machines = [machine_of(worker) for worker in list_workers(session, live_only=True)]
    found = [machine for machine in machines if machine is not None]
    return sorted(found, key=lambda machine: machine.device_type != "cuda")


def live_queues(session: Session) -> set[str]:
    """Queues that a live worker takes lots from."""
    lists = session.scalars(sa.select(WorkerRow.queues).where(WorkerRow.state.in_(LIVE)))
    return {queue for queues in lists for queue in queues}


def unserved_queues(session: Session, job_ids: Sequence[str]) -> dict[str, str]:
    """Of these jobs, those whose lots wait on queues of which no live worker takes any: one."""
    if not job_ids:
        return {}
    found: dict[str, set[str]] = {}
    lots = sa.select(LotRow.job_id, LotRow.queue).where(
        LotRow.job_id.in_(job_ids), LotRow.state == LotState.QUEUED.value
    )
    for job_id, queue in session.execute(lots.distinct()):
        found.setdefault(job_id, set()).add(queue)
    served = live_queues(session)
    return {job_id: min(queues) for job_id, queues in found.items() if not queues & served}


def route(machines: Sequence[Machine], accelerator: str) -> str:
    """Queue for a job: its accelerator's; for `any` that of the first live machine, GPUs first."""
    if accelerator != UNROUTED:
        return accelerator
    return next((queue for machine in machines for queue in machine.queues), UNROUTED)
