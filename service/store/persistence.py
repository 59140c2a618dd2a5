"""A transaction that outlives a database which is away for a while.

A server that restarts, a cut connection, a full disk and a lock that somebody holds for long are no
reason to throw away what was measured: the same call is made again until the database answers.
"""

import time
from collections.abc import Callable
from typing import TypeVar

import sqlalchemy as sa
import structlog

GIVE_UP_AFTER_S = 600.0
FIRST_WAIT_S = 0.2
LONGEST_WAIT_S = 2.0

Result = TypeVar("Result")

log = structlog.get_logger("lossbench.store")


def passes_by_itself(error: BaseException) -> bool:
    """Whether the same transaction may succeed later: its connection, disk or lock failed.

    A row that breaks a constraint, or a statement that is wrong, stays wrong.
    """
    if not isinstance(error, sa.exc.SQLAlchemyError):
        return False
    if isinstance(error, sa.exc.TimeoutError):
        return True  # no connection of the pool was free
    if not isinstance(error, sa.exc.DBAPIError):
        return False
    # InternalError: PostgreSQL ended a session that sat in its transaction for too long
    passing = sa.exc.OperationalError | sa.exc.InterfaceError | sa.exc.InternalError
    return error.connection_invalidated or isinstance(error, passing)


def persistently(
    call: Callable[[bool], Result],
    what: str,
    give_up_after_s: float = GIVE_UP_AFTER_S,
    sleep: Callable[[float], None] = time.sleep,
) -> Result:
    """What `call` returns; it is made again while the database is away.

    `call` learns whether a try before it failed: that one may have been committed, its answer lost.
    Raises the last error after `give_up_after_s`, and any other error at once.
    """
    began, wait_s, failed = time.monotonic(), FIRST_WAIT_S, False
    while True:
        try:
            result = call(failed)
        except sa.exc.SQLAlchemyError as error:
            if not passes_by_itself(error) or time.monotonic() - began > give_up_after_s:
                raise
            if not failed:
                log.warning("database away; trying again", what=what, error=first_line(error))
            failed = True
            sleep(wait_s)
            wait_s = min(2 * wait_s, LONGEST_WAIT_S)
        else:
            if failed:
                away_s = round(time.monotonic() - began, 1)
                log.warning("database is back", what=what, away_s=away_s)
            return result


def first_line(error: BaseException) -> str:
    """What the driver said, in one line: SQLAlchemy adds hints, the statement and parameters."""
    cause = getattr(error, "orig", None) or error
    text = next(iter(str(cause).splitlines()), "")
    return f"{type(cause).__name__}: {text}"
