"""From files and flags to a JobRequest: one clear line for whatever is wrong with either."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from ..api.faults import faults_of
from ..contract.budget import Budget, Budgets
from ..contract.errors import InvalidRequestError
from ..contract.job import JobRequest
from ..contract.versions import begins_range


def read_job_file(path: Path) -> dict[str, Any]:
    """The job in a JSON or YAML file, its budgets left out. Raises as `read_file` does."""
    body = read_file(path)
    body.pop("budgets", None)
    return body


def read_budgets(path: Path) -> list[Budget]:
    """The budgets of a suite file. Raises InvalidRequestError."""
    body = read_file(path)
    try:
        return Budgets.model_validate({"budgets": body.get("budgets") or []}).budgets
    except ValidationError as error:
        raise InvalidRequestError(faults_of(error.errors(), Budgets)) from error


def read_file(path: Path) -> dict[str, Any]:
    """A JSON or YAML mapping. Raises InvalidRequestError naming file, line and column."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidRequestError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidRequestError(f"{path}: not a UTF-8 text file") from error
    try:
        body = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    except RecursionError as error:
        raise InvalidRequestError(f"{path}: nested too deeply for a job") from error
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise InvalidRequestError(f"{path}: not JSON: {error.msg} ({where})") from error
    except yaml.YAMLError as error:
        raise InvalidRequestError(f"{path}: not YAML: {_fault_of(error)}") from error
    if not isinstance(body, dict):
        raise InvalidRequestError(f"{path}: a job is a mapping with contenders and shapes")
    return body


def _fault_of(error: yaml.YAMLError) -> str:
    """What is wrong, in one line, with its place where it is known."""
    if not isinstance(error, yaml.MarkedYAMLError):
        return " ".join(str(error).split())
    mark = error.problem_mark
    where = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
    return f"{error.problem}{where}"


def split_contenders(values: Sequence[str]) -> list[str]:
    """Contender texts from repeated flags; a comma outside brackets and ranges separates two."""
    found: list[str] = []
    for value in values:
        texts: list[str] = []
        for piece in _pieces(value):
            # `<0.7` is no contender: it belongs to the range that began before it
            if texts and begins_range(piece):
                texts[-1] += f",{piece}"
            elif piece:
                texts.append(piece)
        found += texts
    return found


def _pieces(value: str) -> Iterator[str]:
    depth, start = 0, 0
    for index, letter in enumerate(value):
        depth += {"[": 1, "]": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            yield value[start:index].strip()
            start = index + 1
    yield value[start:].strip()


def parse_shape(text: str) -> dict[str, Any]:
    """`8192x4096x128256` or `llama-3-8b:8192`. Raises InvalidRequestError."""
    model, colon, tokens = text.rpartition(":")
    try:
        if colon:
            return {"model": model, "tokens": int(tokens)}
        n, h, v = (int(part) for part in text.lower().split("x"))
    except ValueError as error:
        raise InvalidRequestError(
            f"shape {text!r} is not TOKENSxHIDDENxVOCAB (8192x4096x128256) or MODEL:TOKENS "
            "(llama-3-8b:8192)"
        ) from error
    return {"tokens": n, "hidden": h, "vocab": v}


def parse_options(values: Sequence[str]) -> dict[str, Any]:
    """`key=value` pairs of `--option`; values are read as YAML scalars. Raises on a bad pair."""
    options: dict[str, Any] = {}
    for value in values:
        key, equals, text = value.partition("=")
        if not equals:
            raise InvalidRequestError(f"option {value!r} is not key=value, such as softcap=30")
        try:
            options[key.strip()] = yaml.safe_load(text)
        except (yaml.YAMLError, RecursionError) as error:
            message = f"option {value[:80]!r}: {text[:60]!r} is no value"
            raise InvalidRequestError(message) from error
    return options


def validated(body: dict[str, Any]) -> JobRequest:
    """The request. Raises InvalidRequestError with every fault."""
    try:
        return JobRequest.model_validate(body)
    except ValidationError as error:
        raise InvalidRequestError(faults_of(error.errors(), JobRequest)) from error
