"""Bodies of requests: JSON or YAML text to one of the contract's models."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar

import yaml
from fastapi import Depends
from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from ..contract.errors import Fault, InvalidRequestError
from .errors import UnsupportedMediaTypeError
from .faults import faults_of

DEEPEST = 40
_YAML_TYPES = {"application/yaml", "application/x-yaml", "text/yaml"}
_YAML_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True)
class Body(Generic[M]):
    """A parsed body and a digest of what it says, whatever its spacing and key order."""

    value: M
    digest: str


def parse_document(raw: bytes, media_type: str) -> Any:
    """Plain data of a JSON or YAML text. Raises InvalidRequestError, UnsupportedMediaTypeError."""
    kind = media_type.partition(";")[0].strip().lower()
    if kind in _YAML_TYPES:
        data = _parse_yaml(raw)
    elif kind in ("", "application/json") or kind.endswith("+json"):
        data = _parse_json(raw)
    else:
        raise UnsupportedMediaTypeError(
            f"the body is {kind}; send application/json or application/yaml"
        )
    _refuse_odd_text(data)
    return data


def _syntax(kind: str, message: str) -> InvalidRequestError:
    # the parsers' own messages span several lines
    return InvalidRequestError([Fault("", f"{kind}_syntax", " ".join(message.split()))])


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _parse_json(raw: bytes) -> Any:
    if not raw.strip():
        raise _syntax("json", "the body is empty; send a JSON object")
    try:
        return json.loads(raw, parse_constant=_no_constant)
    except RecursionError as error:
        raise _syntax("json", "the body is nested too deeply") from error
    except ValueError as error:
        raise _syntax("json", f"the body is not JSON: {error}") from error


def _parse_yaml(raw: bytes) -> Any:
    try:
        depth = 0
        for event in yaml.parse(raw, Loader=_YAML_LOADER):
            if isinstance(event, yaml.AliasEvent):
                # a few nested aliases name billions of values
                raise _syntax("yaml", "aliases (*name) are not taken; write the values out")
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > DEEPEST:
                raise _syntax("yaml", "the body is nested too deeply")
        return yaml.load(raw, Loader=_YAML_LOADER)
    except (yaml.YAMLError, ValueError) as error:
        raise _syntax("yaml", f"the body is not YAML: {error}") from error


def _refuse_odd_text(data: Any) -> None:
    """Refuse what no database stores: NUL characters and halves of surrogate pairs."""
    waiting = [data]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            waiting += [*item.keys(), *item.values()]
        elif isinstance(item, list):
            waiting += item
        elif isinstance(item, str) and any(c == "\0" or "\ud800" <= c <= "\udfff" for c in item):
            message = "a text holds a NUL character or half a surrogate pair"
            raise InvalidRequestError([Fault("", "odd_character", message)])


def read_model(model: type[M], data: Any) -> M:
    """The model that plain data describes. Raises InvalidRequestError with every fault."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise InvalidRequestError(faults_of(error.errors(include_url=False), model)) from error


async def raw_body(request: Request) -> bytes:
    """The body's bytes; async since only reading the socket is."""
    return await request.body()


def body_of(model: type[M]) -> Callable[..., Body[M]]:
    """A dependency that reads the body as `model`, in a worker thread."""

    def read(request: Request, raw: Annotated[bytes, Depends(raw_body)]) -> Body[M]:
        data = parse_document(raw, request.headers.get("content-type", ""))
        said = json.dumps(data, sort_keys=True, default=str).encode()
        return Body(read_model(model, data), hashlib.sha256(said).hexdigest())

    return read


def body_docs(model: type[BaseModel], yaml_too: bool = False) -> dict[str, Any]:
    """OpenAPI's description of a body that `body_of` reads."""
    schema = {"schema": {"$ref": f"#/components/schemas/{model.__name__}"}}
    content = {"application/json": schema}
    if yaml_too:
        content["application/yaml"] = schema
    return {"requestBody": {"required": True, "content": content}}
