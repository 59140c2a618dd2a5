"""From a problem document back to the error that it stands for."""

from collections.abc import Mapping
from typing import Any

from ..contract import errors
from ..contract.errors import Fault, InvalidRequestError, LossbenchError
from .errors import problem_name

USUAL_WAIT_S = 5


def error_of_problem(problem: Any, headers: Mapping[str, str]) -> LossbenchError | None:
    """The error; None for what is no problem document of this service."""
    try:
        name = str(problem["type"]).rpartition("#")[2]
        detail = str(problem["detail"])
        faults = [Fault(f["pointer"], f["code"], f["message"]) for f in problem.get("errors", ())]
    except (ValueError, KeyError, TypeError):
        return None
    kind = _error_classes().get(name, LossbenchError)
    if issubclass(kind, InvalidRequestError):
        return kind(faults or detail)
    if issubclass(kind, errors.TooManyRequestsError):
        wait = headers.get("retry-after", "")
        return kind(detail, int(wait) if wait.isdigit() else USUAL_WAIT_S)
    return kind(detail)


def _error_classes() -> dict[str, type[LossbenchError]]:
    found: dict[str, type[LossbenchError]] = {}
    waiting: list[type[LossbenchError]] = [LossbenchError]
    while waiting:
        error = waiting.pop()
        found[problem_name(error)] = error
        waiting += error.__subclasses__()
    return found
