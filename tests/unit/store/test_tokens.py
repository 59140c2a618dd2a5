"""Tokens are stored hashed, and useless once revoked or expired."""

from datetime import datetime, timedelta

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import StatementError

from lossbench.service.contract.errors import NotFoundError
from lossbench.service.contract.words import Scope
from lossbench.service.store.database import Database
from lossbench.service.store.events import now
from lossbench.service.store.models import TokenRow
from lossbench.service.store.overviews import valid_token
from lossbench.service.store.tokens import create_token, find_token, list_tokens, revoke_token


def create(database: Database, expires_at: datetime | None = None) -> tuple[str, str]:
    """Id and secret."""
    with database.transaction() as session:
        row, secret = create_token(session, "ci", [Scope.SUBMIT], expires_at)
        return row.id, secret


def found(database: Database, secret: str) -> str | None:
    with database.reading() as session:
        row = find_token(session, secret)
        return row.id if row else None


def test_token_is_found_by_its_secret_only(database: Database) -> None:
    token_id, secret = create(database)
    assert secret.startswith("lb_")
    assert len(secret) >= 40
    assert found(database, secret) == token_id
    for wrong in ("", secret[:-1], secret + "x", secret[:8], token_id):
        assert found(database, wrong) is None


def test_token_secret_is_nowhere_in_the_database(database: Database) -> None:
    _, secret = create(database)
    with database.reading() as session:
        row = session.execute(sa.select(TokenRow.__table__)).one()
    assert secret not in str(tuple(row))
    assert row.prefix == secret[:8]
    assert (len(row.secret_hash), row.scopes) == (64, ["submit"])


def test_token_secrets_differ(database: Database) -> None:
    assert len({create(database)[1] for _ in range(20)}) == 20


@pytest.mark.parametrize(("seconds", "valid"), [(-1, False), (60, True)])
def test_token_expires(database: Database, seconds: int, valid: bool) -> None:
    token_id, secret = create(database, now() + timedelta(seconds=seconds))
    assert (found(database, secret) is not None) is valid
    with database.reading() as session:
        assert (valid_token(session, token_id) is not None) is valid


def test_token_with_a_zone_less_expiry_is_refused(database: Database) -> None:
    with pytest.raises(StatementError, match="without zone"):
        create(database, datetime(2030, 1, 1))


def test_token_revoked_is_useless_but_listed(database: Database) -> None:
    token_id, secret = create(database)
    with database.transaction() as session:
        first = revoke_token(session, token_id).revoked_at
    with database.transaction() as session:
        assert revoke_token(session, token_id).revoked_at == first
    assert found(database, secret) is None
    with database.reading() as session:
        assert [row.id for row in list_tokens(session)] == [token_id]
        assert valid_token(session, token_id) is None


def test_token_that_does_not_exist_cannot_be_revoked(database: Database) -> None:
    with database.transaction() as session, pytest.raises(NotFoundError, match="tok-none"):
        revoke_token(session, "tok-none")
