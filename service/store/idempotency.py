"""Answers to POSTs that carried an `Idempotency-Key`, scoped to who sent them.

A row without status is a request under way; its `answer` already names the id it will create, so a
request that died after its commit is answered with what it made.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from ..contract.errors import ConflictError, Fault, InvalidRequestError
from .database import Database
from .events import now
from .models import IdempotencyRow

IN_FLIGHT = timedelta(seconds=60)
"""A request under way for longer is taken for dead."""


@dataclass(frozen=True)
class StoredAnswer:
    """A finished request: status and body; `resource` is the id that it created."""

    status: int
    body: dict[str, Any]


@dataclass(frozen=True)
class Abandoned:
    """A request that never answered; `resource` is the id that it was to create."""

    resource: str


class IdempotencyKeys:
    """Keys of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def begin(
        self, owner: str, key: str, body_hash: str, resource: str
    ) -> StoredAnswer | Abandoned | None:
        """Claim a key; None means: go on and create `resource`.

        Raises InvalidRequestError when the key came with another body, ConflictError while the
        first request is under way.
        """
        row = IdempotencyRow(
            owner=owner,
            key=key,
            body_hash=body_hash,
            status=None,
            answer={"resource": resource},
            created_at=now(),
        )
        try:
            with self._database.transaction() as session:
                session.add(row)
        except IntegrityError:
            return self._existing(owner, key, body_hash)
        return None

    def _existing(self, owner: str, key: str, body_hash: str) -> StoredAnswer | Abandoned:
        with self._database.transaction() as session:
            row = session.get(IdempotencyRow, (owner, key), with_for_update=True)
            if row is None:
                raise ConflictError("the first request with this Idempotency-Key just failed")
            if row.body_hash != body_hash:
                message = "this Idempotency-Key was sent before with another body"
                raise InvalidRequestError(
                    [Fault("/header/Idempotency-Key", "idempotency_key_reused", message)]
                )
            answer = row.answer or {}
            if row.status is not None:
                return StoredAnswer(row.status, answer["body"])
            if now() - row.created_at < IN_FLIGHT:
                raise ConflictError("the first request with this Idempotency-Key is still running")
            row.created_at = now()
            return Abandoned(str(answer["resource"]))

    def abandon_all(self) -> None:
        """Say that no request is under way, as when the one service process begins: those that the
        process before it left open were never answered, and need not be waited for.
        """
        with self._database.transaction() as session:
            session.execute(
                sa.update(IdempotencyRow)
                .where(IdempotencyRow.status.is_(None))
                .values(created_at=now() - IN_FLIGHT)
            )

    def finish(self, owner: str, key: str, answer: StoredAnswer) -> None:
        """Keep the answer for later requests with the same key."""
        with self._database.transaction() as session:
            session.execute(
                sa.update(IdempotencyRow)
                .where(IdempotencyRow.owner == owner, IdempotencyRow.key == key)
                .values(status=answer.status, answer={"body": answer.body})
            )

    def forget(self, owner: str, key: str) -> None:
        """Free a key whose request failed, so that a corrected one may use it."""
        with self._database.transaction() as session:
            session.execute(
                sa.delete(IdempotencyRow).where(
                    IdempotencyRow.owner == owner,
                    IdempotencyRow.key == key,
                    IdempotencyRow.status.is_(None),
                )
            )
