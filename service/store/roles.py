"""PostgreSQL roles: what the service and the workers may do, and no more.

Three roles share a database. One owns the tables and runs migrations. The service reads and writes
every row and changes no table. A worker reads jobs and writes results; it sees neither tokens nor
stored answers to requests, deletes nothing but steps that it trains again, and changes no table.
"""

import sqlalchemy as sa

from ..contract.errors import DatabaseError, NotFoundError
from .base import Base
from .database import Database
from .queue import QUEUE_SCHEMA

SERVICE_ROLE, WORKER_ROLE = "lossbench_service", "lossbench_worker"

_WORKER_MAY: dict[str, str] = {
    "alembic_version": "SELECT",
    "cell_logs": "SELECT, INSERT, UPDATE",
    "comparisons": "SELECT, INSERT",
    "device_proofs": "SELECT, INSERT",
    "environments": "SELECT, INSERT",
    "events": "SELECT, INSERT",
    "job_cells": "SELECT, UPDATE",
    "jobs": "SELECT, UPDATE (state, reason, started_at, ended_at)",
    "lots": "SELECT, UPDATE (state, worker_id, claimed_at)",
    "output_errors": "SELECT, INSERT",
    "run_tallies": "SELECT, INSERT, UPDATE",
    "runs": "SELECT, INSERT",
    "samples": "SELECT, INSERT",
    # steps behind the checkpoint that a training goes on at are trained again
    "training_points": "SELECT, INSERT, UPDATE, DELETE",
    "training_runs": "SELECT, INSERT, UPDATE",
    "workers": "SELECT, INSERT, UPDATE",
}
"""What a worker may do, table by table; nothing with any other table."""
_ROWS = "SELECT, INSERT, UPDATE, DELETE"


def grants(service: str, worker: str) -> list[str]:
    """SQL statements that give both roles what they need, and take away what they had beyond."""
    made = []
    for role in (service, worker):
        made += [
            f"REVOKE ALL ON ALL TABLES IN SCHEMA public FROM {role}",
            f"REVOKE ALL ON ALL SEQUENCES IN SCHEMA public FROM {role}",
            f"GRANT USAGE ON SCHEMA public, {QUEUE_SCHEMA} TO {role}",
            # the queue's own tables hold workflows, which both sides change
            f"GRANT {_ROWS} ON ALL TABLES IN SCHEMA {QUEUE_SCHEMA} TO {role}",
            f"GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA {QUEUE_SCHEMA} TO {role}",
            f"GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA {QUEUE_SCHEMA} TO {role}",
            f"GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO {role}",
        ]
    made += [f"GRANT {_ROWS} ON {table.name} TO {service}" for table in Base.metadata.sorted_tables]
    made.append(f"GRANT SELECT ON alembic_version TO {service}")
    made += [f"GRANT {may} ON {table} TO {worker}" for table, may in _WORKER_MAY.items()]
    # PostgreSQL 14 and older let everybody make tables
    made.append("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    return made


def grant_roles(database: Database, service: str, worker: str) -> list[str]:
    """Run `grants` as the owner of the tables; returns the statements. All or none.

    Raises DatabaseError on SQLite, or where this user may not grant; NotFoundError for a role that
    does not exist.
    """
    if database.is_sqlite:
        raise DatabaseError("SQLite has no roles; they are for PostgreSQL")
    quote = database.engine.dialect.identifier_preparer.quote
    statements = grants(quote(service), quote(worker))
    with database.transaction() as session:
        for role in (service, worker):
            known = sa.text("SELECT 1 FROM pg_roles WHERE rolname = :role")
            if session.scalar(known, {"role": role}) is None:
                raise NotFoundError(
                    f"there is no role {role!r}; make it first: "
                    f"CREATE ROLE {quote(role)} LOGIN PASSWORD '...'"
                )
        try:
            for statement in statements:
                session.execute(sa.text(statement))
        except sa.exc.ProgrammingError as error:
            raise DatabaseError(
                f"the roles were not changed ({error.orig}); run this as the owner of the tables, "
                "behind `lossbench db upgrade`"
            ) from error
    return statements
