"""Which engines a file of tests runs on: SQLite always, PostgreSQL in the full suite.

A file says `database_url = engines.database_url` where the engine is hardly in question.
"""

import pytest

from .conftest import PostgresServer


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def database_url(request: pytest.FixtureRequest) -> str:
    """URL of a fresh database with the current schema."""
    if request.param == "sqlite":
        return str(request.getfixturevalue("sqlite_url"))
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return server.fresh_url()
