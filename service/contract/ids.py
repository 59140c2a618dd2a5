"""Identifiers: short, sortable by time, readable aloud."""

import secrets
import time

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_TIME_DIGITS = 8
_RANDOM_DIGITS = 8


def _digits(number: int, length: int) -> str:
    text = ""
    for _ in range(length):
        number, digit = divmod(number, 32)
        text = _ALPHABET[digit] + text
    return text


def new_id(prefix: str) -> str:
    """A new id such as `job-01jz4k2m8q3w5x7y`; later ids sort behind earlier ones (to 1/1000 s)."""
    milliseconds = time.time_ns() // 1_000_000
    # 8 base-32 digits hold 2^40 ms = 34 years; counted from 2020 they last until 2054
    since_2020 = milliseconds - 1_577_836_800_000
    unique = _digits(secrets.randbits(40), _RANDOM_DIGITS)
    return f"{prefix}-{_digits(since_2020, _TIME_DIGITS)}{unique}"
