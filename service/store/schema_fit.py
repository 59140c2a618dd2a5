"""Whether this lossbench and the database's schema belong together, and if not, what to do."""

import sqlalchemy as sa
from alembic.script import ScriptDirectory
from alembic.util import CommandError

from ..contract.errors import DatabaseError, SchemaTooNewError
from .database import Database, alembic_config, schema_revision


def require_current_schema(database: Database) -> str:
    """The revision, when it is this lossbench's own: workers of other versions are refused.

    Raises SchemaTooNewError where a newer lossbench upgraded the database, DatabaseError where it
    is older, empty or out of reach.
    """
    script = ScriptDirectory.from_config(alembic_config(database.engine))
    head = script.get_current_head()
    try:
        revision = schema_revision(database.engine)
    except sa.exc.DBAPIError as error:
        raise DatabaseError(f"the database cannot be reached: {error.orig}") from error
    if revision is None:
        raise DatabaseError(
            "the database has no schema yet; start the service once, or run `lossbench db upgrade`"
        )
    if revision == head:
        return revision
    try:
        script.get_revision(revision)
    except CommandError as error:
        raise SchemaTooNewError(
            f"the database is at schema {revision} and this lossbench knows schemas up to {head}: "
            "its service is newer; upgrade lossbench here to the service's version"
        ) from error
    raise DatabaseError(
        f"the database is at schema {revision} and this lossbench needs {head}: its service is "
        "older; upgrade the service first, or run `lossbench db upgrade`"
    )
