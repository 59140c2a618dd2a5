"""From pydantic's errors to faults: one JSON pointer each, one readable sentence each."""

import re
import types
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel

from ..contract.errors import Fault
from ..contract.plan import nearest

MOST_FAULTS = 100
LONGEST_MESSAGE = 600

_KINDS = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "a text",
    "list_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
    "none_required": "null",
}
_LABEL = re.compile(r"'([^']+)'")

Location = tuple[int | str, ...]


def pointer(parts: Iterable[int | str]) -> str:
    """JSON pointer (RFC 6901) of a path."""
    escaped = (str(part).replace("~", "~0").replace("/", "~1") for part in parts)
    return "".join(f"/{part}" for part in escaped)


def _alternatives(annotation: Any) -> list[Any]:
    """The plain types that an annotation allows."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _alternatives(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return [plain for arg in get_args(annotation) for plain in _alternatives(arg)]
    return [annotation]


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _below(annotation: Any, part: int | str) -> Any | None:
    """Annotation of the member `part`; None when `part` is only pydantic's name of a branch."""
    for plain in _alternatives(annotation):
        if _is_model(plain):
            for name, info in plain.model_fields.items():
                if part in (name, info.alias):
                    return info.annotation
        origin, args = get_origin(plain), get_args(plain)
        if origin is dict and not (isinstance(part, str) and part == "[key]"):
            return args[1]
        if origin in (list, tuple, Sequence) and isinstance(part, int):
            return args[0]
    return None


def _field_names(annotation: Any) -> list[str]:
    return [
        info.alias or name
        for plain in _alternatives(annotation)
        if _is_model(plain)
        for name, info in plain.model_fields.items()
    ]


def _placed(model: type[BaseModel], error: Mapping[str, Any]) -> tuple[Location, Any]:
    """Where an error lies, without branch names, and the annotation of that place's parent."""
    here: Any = model
    parent: Any = model
    kept: list[int | str] = []
    parts: Location = error["loc"]
    for index, part in enumerate(parts):
        below = _below(here, part)
        if below is not None:
            kept.append(part)
            parent, here = here, below
        elif error["type"] == "extra_forbidden" and index == len(parts) - 1:
            kept.append(part)
            parent = here
    return tuple(kept), parent


def _message(error: Mapping[str, Any], parent: Any) -> str:
    kind = str(error["type"])
    if kind == "missing":
        return "this field is required"
    if kind == "extra_forbidden":
        name, known = str(error["loc"][-1]), _field_names(parent)
        return f"there is no field {name!r}{nearest(name, known)}. Known: {', '.join(known)}"
    text = str(error["msg"]).removeprefix("Value error, ")
    if kind in ("enum", "literal_error"):
        expected = _LABEL.findall(str(error.get("ctx", {}).get("expected", "")))
        text += nearest(str(error.get("input")), expected)
    return text


def _joined(errors: Sequence[tuple[Mapping[str, Any], Any]]) -> tuple[str, str]:
    """(code, message) for all errors of one place."""
    plain = [(error, parent) for error, parent in errors if error["type"] not in _KINDS]
    if plain:
        error, parent = plain[0]
        return str(error["type"]), _message(error, parent)
    kinds = dict.fromkeys(_KINDS[error["type"]] for error, _ in errors)
    return str(errors[0][0]["type"]), "must be " + " or ".join(kinds)


def faults_of(
    errors: Iterable[Mapping[str, Any]], model: type[BaseModel] | None = None, root: str = ""
) -> list[Fault]:
    """Faults of one validation. With `model` the names of union branches are left out.

    `root` is put before each pointer, such as `/query`.
    """
    groups: dict[Location, list[tuple[Mapping[str, Any], Any]]] = {}
    for error in errors:
        place, parent = _placed(model, error) if model else (tuple(error["loc"]), None)
        groups.setdefault(place, []).append((error, parent))
    faults = []
    for place, found in groups.items():
        deeper = any(other[: len(place)] == place and other != place for other in groups)
        if deeper and all(error["type"] in _KINDS for error, _ in found):
            # another branch of the union fits the value and says more precisely what is wrong
            continue
        code, message = _joined(found)
        faults.append(Fault(root + pointer(place), code, message[:LONGEST_MESSAGE]))
    return faults[:MOST_FAULTS]
