"""Device proofs: what a device showed that it can tell apart, stored as it was found."""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from ..contract.ids import new_id
from ..contract.run import Environment
from .events import now
from .models import DeviceProofRow, EnvironmentRow
from .results import finite_json, insert_environment


class ProofKind(StrEnum):
    """Where a proof comes from."""

    SELF_TEST = "self_test"
    DOCTOR = "doctor"
    POOL = "pool"


def insert_proof(
    session: Session,
    kind: ProofKind,
    environment: Environment,
    passed: bool,
    record: Mapping[str, Any],
    measured_at: datetime | None = None,
) -> str:
    """Store a proof with the environment that it holds for; returns its id."""
    row = DeviceProofRow(
        id=new_id("prf"),
        kind=kind.value,
        device_name=environment.device_name,
        device_uuid_hash=environment.device_uuid_hash,
        environment_id=insert_environment(session, environment),
        passed=passed,
        measured_at=measured_at or now(),
        record=finite_json(dict(record)),
    )
    session.add(row)
    session.flush()
    return row.id


def proofs_page(
    session: Session,
    kind: ProofKind | None = None,
    hardware_fingerprint: str | None = None,
    before: str | None = None,
    limit: int = 100,
) -> list[DeviceProofRow]:
    """Proofs, newest first."""
    query = sa.select(DeviceProofRow).order_by(DeviceProofRow.id.desc()).limit(limit)
    if kind is not None:
        query = query.where(DeviceProofRow.kind == kind.value)
    if hardware_fingerprint is not None:
        query = query.join(EnvironmentRow).where(
            EnvironmentRow.hardware_fingerprint == hardware_fingerprint
        )
    if before is not None:
        query = query.where(DeviceProofRow.id < before)
    return list(session.scalars(query))
