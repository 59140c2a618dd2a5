"""A contender: kernel + version + params, and its one text form `kernel[@version][key=value,...]`.

Examples: `flce`, `liger@0.8.5`, `torch-compile-chunked[chunk_rows=1024,dynamic=true]`.
Keys are sorted; values are whole numbers, decimals, true, false, null, or lower-case words.
In a request the version may stand for several releases: `liger@>=0.5,<0.7`, `liger@all`.
"""

import math
import re
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from .versions import begins_range, tidy_range

ParamValue = bool | int | float | str | None

_NAME = r"[a-z][a-z0-9_-]*"
_TEXT = re.compile(rf"(?P<kernel>{_NAME})(@(?P<version>[^\[\]]+))?(\[(?P<params>[^\[\]]*)\])?")
_WORD = re.compile(r"[a-z][a-z0-9_.\-]*")
_NUMBER = re.compile(
    r"[+-]?((?P<whole>\d+)|(\d+\.\d*|\.?\d+)(e[+-]?\d+)?)", re.ASCII | re.IGNORECASE
)
_RESERVED = {"true": True, "false": False, "null": None}
_NOT_FINITE = frozenset({"nan", "inf", "infinity"})
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+!_\-]*")
MOST_VERSION_SIGNS = 64


def format_value(value: ParamValue) -> str:
    """Text of one param or option value, as `parse_value` reads it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, float) else str(value)


def parse_value(text: str) -> ParamValue:
    """Value of a text: number, true, false, null, or a lower-case word.

    Raises ValueError for anything else.
    """
    if text in _RESERVED:
        return _RESERVED[text]
    if number := _NUMBER.fullmatch(text):
        if number["whole"]:
            return int(text)
        if math.isfinite(decimal := float(text)):
            return decimal
    if not _WORD.fullmatch(text) or text in _NOT_FINITE:
        raise ValueError(f"{text!r} is not a number, true, false, null or a lower-case word")
    return text


def _checked_param(value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value!r} is not a finite number")
    if isinstance(value, str) and not isinstance(parse_value(value), str):
        raise ValueError(f"{value!r} is not a lower-case word (letters, digits, _ . -)")
    return value


def _checked_version(value: object) -> object:
    if not isinstance(value, str) or len(value) > MOST_VERSION_SIGNS:
        return value
    if begins_range(value):
        return tidy_range(value)
    if not _VERSION.fullmatch(value):
        raise ValueError(
            f"{value!r} is not a version, such as 0.8.5 or latest, nor a range such as >=0.5,<0.7"
        )
    return value


class TextForm(BaseModel):
    """A frozen record with cached text forms that a changed copy must not inherit."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy, with some fields changed; its text forms are made anew."""
        copied = super().model_copy(update=update, deep=deep)
        for name in [name for name in copied.__dict__ if name not in type(self).model_fields]:
            del copied.__dict__[name]
        return copied


class Contender(TextForm):
    """One line in a plot: a kernel at a version with its params.

    `version` is None for "the newest known", and may be a range or `all`, until the job is planned;
    a planned or stored contender names one version, unless the kernel carries torch's version.
    """

    kernel: Annotated[str, Field(pattern=rf"^{_NAME}$", max_length=64)]
    version: Annotated[
        str | None,
        Field(
            max_length=MOST_VERSION_SIGNS,
            description=(
                "A release, or `latest` (the default). In the contenders of a job also a PEP 440 "
                "range such as `>=0.5,<0.7`, or `all`: these stand for several releases, of those "
                "that run the same code only the first."
            ),
        ),
        BeforeValidator(_checked_version),
    ] = None
    params: dict[
        Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=64)],
        Annotated[ParamValue, BeforeValidator(_checked_param)],
    ] = {}

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, data: Any) -> Any:
        return cls._parts(data) if isinstance(data, str) else data

    @staticmethod
    def _parts(text: str) -> dict[str, Any]:
        found = _TEXT.fullmatch(text)
        if not found and begins_range(text):
            raise ValueError(
                f"{text!r} is the second half of a range: put the whole contender in quotes, "
                'such as "liger@>=0.5,<0.7"'
            )
        if not found:
            raise ValueError(
                f"{text!r} is not a contender; write kernel, kernel@version or "
                "kernel@version[key=value,...]"
            )
        params: dict[str, ParamValue] = {}
        for item in filter(None, (found["params"] or "").split(",")):
            key, equals, value = item.partition("=")
            if not equals:
                raise ValueError(f"param {item!r} is not key=value")
            if key in params:
                raise ValueError(f"param {key!r} is given twice")
            params[key] = parse_value(value)
        return {"kernel": found["kernel"], "version": found["version"], "params": params}

    @classmethod
    def parse(cls, text: str) -> Self:
        """The contender that a text form names. Raises ValueError."""
        return cls.model_validate(text)

    @cached_property
    def params_text(self) -> str:
        """`key=value,...` with sorted keys; empty without params."""
        return ",".join(f"{key}={format_value(self.params[key])}" for key in sorted(self.params))

    @cached_property
    def text(self) -> str:
        """The text form; `parse(text)` gives an equal contender."""
        version = f"@{self.version}" if self.version else ""
        params = f"[{self.params_text}]" if self.params else ""
        return f"{self.kernel}{version}{params}"

    def __str__(self) -> str:
        return self.text

    def __hash__(self) -> int:
        return hash(self.text)
