"""The state of a view, which is its address: read, checked, written again with changes."""

from collections.abc import Mapping, Sequence
from typing import TypeVar
from urllib.parse import urlencode

from fastapi import Request
from pydantic import BaseModel, ValidationError

from lossbench.service.api.faults import faults_of
from lossbench.service.contract.errors import Fault, InvalidRequestError

Q = TypeVar("Q", bound=BaseModel)
Given = Mapping[str, Sequence[str]]


def given_of(request: Request) -> dict[str, list[str]]:
    """Parameters of the address; empty fields of a form are left out."""
    found: dict[str, list[str]] = {}
    for name, value in request.query_params.multi_items():
        if value.strip():
            found.setdefault(name, []).append(value.strip())
    return found


def checked(model: type[Q], given: Given) -> Q:
    """The parameters as a model. Raises InvalidRequestError with every fault."""
    many = {
        field.alias or name
        for name, field in model.model_fields.items()
        if "list" in str(field.annotation)
    }
    data: dict[str, str | list[str]] = {}
    for name, values in given.items():
        if name not in many and len(values) != 1:
            fault = Fault(f"/query/{name[:60]}", "one_value", f"{name[:60]} takes one value")
            raise InvalidRequestError([fault])
        data[name] = list(values) if name in many else values[0]
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise InvalidRequestError(
            faults_of(error.errors(include_url=False), model, "/query")
        ) from error


def kept_fields(given: Given, own: Sequence[str]) -> list[tuple[str, str]]:
    """What a form carries on unseen: every parameter that none of its `own` fields sets."""
    return [(name, value) for name, values in given.items() if name not in own for value in values]


def query_with(
    given: Given, without: Sequence[str] = (), **changed: str | Sequence[str] | None
) -> str:
    """The query with some parameters replaced, or left out where they are None or no values.

    `pass_` stands for `pass`, which Python keeps for itself.
    """
    fresh = {name.rstrip("_"): value for name, value in changed.items()}
    kept = {n: list(v) for n, v in given.items() if n not in without and n not in fresh}
    kept |= {
        name: [value] if isinstance(value, str) else list(value)
        for name, value in fresh.items()
        if value is not None
    }
    return urlencode(kept, doseq=True)
