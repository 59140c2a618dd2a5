"""Errors that only a web service has. They hang in the tree of `contract/errors.py`.

LossbenchError
├── BodyTooLargeError
├── MethodNotAllowedError
├── UnsupportedMediaTypeError
├── NotReadyError
├── InternalError
└── TooManyRequestsError
    └── TooManyStreamsError
"""

import re

from ..contract.errors import LossbenchError, TooManyRequestsError


class BodyTooLargeError(LossbenchError):
    """The request body is larger than this service takes."""


class MethodNotAllowedError(LossbenchError):
    """This address does not know that method."""


class UnsupportedMediaTypeError(LossbenchError):
    """The body must be application/json or application/yaml."""


class NotReadyError(LossbenchError):
    """The service runs but cannot serve yet."""


class InternalError(LossbenchError):
    """Something went wrong inside the service; its log has the details under this request id."""


class TooManyStreamsError(TooManyRequestsError):
    """All event streams are taken; poll with `GET /api/v1/jobs/{id}?wait=20`, or try again."""


def problem_name(error: type[LossbenchError]) -> str:
    """Stable kebab-case name: fragment of `type`, heading in docs/reference/errors.md."""
    words = re.findall(r"[A-Z][a-z0-9]*", error.__name__.removesuffix("Error"))
    return "-".join(words).lower()
