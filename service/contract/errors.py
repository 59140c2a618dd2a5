"""Every error that lossbench raises on purpose.

    LossbenchError
    ├── InvalidRequestError          the request cannot be served as written
    │   ├── UnknownNameError         a kernel, version, model ... that does not exist
    │   └── JobTooLargeError         more cells or GPU minutes than one job may have
    ├── NotFoundError                no such job, result, machine
    ├── ConflictError                the thing is in a state that forbids this
    ├── NotAuthenticatedError        a token is needed
    ├── NotAllowedError              the token, host or origin may not do this
    ├── TooManyRequestsError         a rate limit, or the stream limit
    ├── SetupError                   this machine or configuration cannot run it
    │   ├── DataDirectoryError
    │   ├── PortInUseError
    │   ├── SchemaTooNewError
    │   ├── DatabaseError
    │   └── MissingPackageError
    └── WorkerError                  measuring itself failed
        ├── ChildDiedError
        ├── ChildTimeoutError
        ├── LotLostError             cancelled, or taken over by another attempt
        └── InstallError             a contender's package cannot be installed

The class docstring is the default message, safe to show a user. Facts are attributes. Domain
errors know no HTTP: `service/api/problems.py` maps classes to status codes in one table.
"""

from collections.abc import Sequence
from typing import NamedTuple


class Fault(NamedTuple):
    """One thing that is wrong with a request: where (JSON pointer), a code, and a sentence."""

    pointer: str
    code: str
    message: str


class LossbenchError(Exception):
    """Something went wrong in lossbench."""

    def __init__(self, message: str | None = None, **facts: object) -> None:
        self.message = message or (type(self).__doc__ or "").strip().splitlines()[0]
        self.facts = facts
        super().__init__(self.message)


class InvalidRequestError(LossbenchError):
    """The request cannot be served as written."""

    def __init__(self, faults: Sequence[Fault] | str) -> None:
        if isinstance(faults, str):
            faults = [Fault("", "invalid", faults)]
        self.faults = tuple(faults)
        super().__init__("; ".join(_one_line(fault) for fault in self.faults))


def _one_line(fault: Fault) -> str:
    return f"{fault.pointer}: {fault.message}" if fault.pointer else fault.message


class UnknownNameError(InvalidRequestError):
    """A name in the request does not exist."""


class JobTooLargeError(InvalidRequestError):
    """The job has more cells, or needs more GPU minutes, than one job may have."""


class NotFoundError(LossbenchError):
    """There is no such thing here."""


class ConflictError(LossbenchError):
    """The state of the thing forbids this."""


class NotAuthenticatedError(LossbenchError):
    """This needs a token: send `Authorization: Bearer <token>`."""


class NotAllowedError(LossbenchError):
    """This token, host or origin may not do that."""


class TooManyRequestsError(LossbenchError):
    """Too many requests; try again later."""

    def __init__(self, message: str | None = None, retry_after_s: int = 5) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(message)


class SetupError(LossbenchError):
    """This machine or configuration cannot run it."""


class DataDirectoryError(SetupError):
    """The data directory cannot be written; set LOSSBENCH_DATA_DIR to one that can."""


class PortInUseError(SetupError):
    """The port is in use; choose another with --port."""


class SchemaTooNewError(SetupError):
    """The database was made by a newer lossbench; upgrade this installation."""


class DatabaseError(SetupError):
    """The database cannot be reached; check LOSSBENCH_DATABASE_URL."""


class MissingPackageError(SetupError):
    """A package that this needs is not installed."""


class WorkerError(LossbenchError):
    """Measuring failed."""


class ChildDiedError(WorkerError):
    """The measuring process ended by itself."""


class ChildTimeoutError(WorkerError):
    """The measuring process did not answer in time and was ended."""


class LotLostError(WorkerError):
    """The lot was cancelled or taken over by another attempt."""


class InstallError(WorkerError):
    """The contender's package could not be installed."""
