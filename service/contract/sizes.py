"""Sizes in bytes, as people write them."""

import re
from typing import Annotated

from pydantic import BeforeValidator, Field

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(|B|KiB|MiB|GiB|TiB)", re.IGNORECASE)
_UNITS = {"": 1, "b": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}


def parse_size(value: object) -> object:
    """Bytes of `2147483648` or `2GiB`; what is no text is left alone. Raises ValueError."""
    if not isinstance(value, str):
        return value
    found = _SIZE.fullmatch(value.strip())
    if found is None:
        raise ValueError(f"{value[:40]!r} is not a size such as 2GiB or 2147483648")
    return int(float(found[1]) * _UNITS[found[2].lower()])


Size = Annotated[int, BeforeValidator(parse_size), Field(ge=0, le=2**53)]
