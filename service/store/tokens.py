"""Tokens: made once, stored hashed, checked by hash, revoked but not deleted."""

import hashlib
import secrets
from collections.abc import Sequence
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.orm import Session

from ..contract.errors import NotFoundError
from ..contract.ids import new_id
from ..contract.words import Scope
from .events import now
from .models import TokenRow

_PREFIX = "lb_"


def _hashed(secret: str) -> str:
    # 256 random bits need no slow hash: there is nothing to guess
    return hashlib.sha256(secret.encode()).hexdigest()


def create_token(
    session: Session, name: str, scopes: Sequence[Scope], expires_at: datetime | None = None
) -> tuple[TokenRow, str]:
    """Make a token; the secret is returned this once and never again."""
    secret = _PREFIX + secrets.token_urlsafe(32)
    row = TokenRow(
        id=new_id("tok"),
        name=name,
        prefix=secret[:8],
        secret_hash=_hashed(secret),
        scopes=[scope.value for scope in scopes],
        created_at=now(),
        expires_at=expires_at,
    )
    session.add(row)
    return row, secret


def find_token(session: Session, secret: str) -> TokenRow | None:
    """The valid token behind a secret; None when unknown, revoked or expired."""
    row = session.scalar(sa.select(TokenRow).where(TokenRow.secret_hash == _hashed(secret)))
    if row is None or row.revoked_at is not None:
        return None
    if row.expires_at is not None and row.expires_at <= now():
        return None
    return row


def list_tokens(session: Session) -> list[TokenRow]:
    """All tokens, newest first."""
    return list(session.scalars(sa.select(TokenRow).order_by(TokenRow.id.desc())))


def revoke_token(session: Session, token_id: str) -> TokenRow:
    """Make a token useless. Raises NotFoundError."""
    row = session.get(TokenRow, token_id)
    if row is None:
        raise NotFoundError(f"there is no token {token_id!r}")
    row.revoked_at = row.revoked_at or now()
    return row
