"""Numbers as people read them: 3 significant digits, units, intervals. No statistics."""

import math
from datetime import datetime

NONE = "–"
"""Shown where there is nothing to show."""


def digits(value: float | None, significant: int = 3) -> str:
    """A number at 3 significant digits: `41.6`, `152`, `1,230`, `0.940`, `1.67e-3`."""
    if value is None or not math.isfinite(value):
        return NONE
    rounded = float(f"{value:.{significant}g}")
    if rounded == 0:
        return "0"
    exponent = math.floor(math.log10(abs(rounded)))
    if exponent < -2:
        mantissa, _, power = f"{rounded:.{significant - 1}e}".partition("e")
        return f"{mantissa}e{int(power)}"
    return f"{rounded:,.{max(0, significant - 1 - exponent)}f}"


def milliseconds(value: float | None) -> str:
    """`41.6 ms`."""
    return NONE if value is None else f"{digits(value)} ms"


def interval(low: float | None, high: float | None) -> str:
    """`41.5 – 42.1`; both ends get the digits that tell them apart, at most 4."""
    if low is None or high is None:
        return NONE
    left, right = digits(low), digits(high)
    if left == right and low != high:
        left, right = digits(low, 4), digits(high, 4)
    return f"{left} – {right}"


def ratio(value: float | None) -> str:
    """`0.940×`."""
    return NONE if value is None else f"{digits(value)}×"


def byte_unit(largest: float) -> tuple[str, int]:
    """Unit and divisor for amounts up to `largest` bytes: KiB, MiB or GiB."""
    for unit, size in (("GiB", 2**30), ("MiB", 2**20)):
        if largest >= size:
            return unit, size
    return "KiB", 2**10


def in_bytes(value: int | None) -> str:
    """`1.10 GiB`, `37.4 MiB`, `0 B`."""
    if value is None:
        return NONE
    if abs(value) < 1024:
        return f"{value} B"
    unit, size = byte_unit(abs(value))
    return f"{digits(value / size)} {unit}"


def duration(seconds: float | None) -> str:
    """`8 s`, `4 min 10 s`, `2 h 05 min`."""
    if seconds is None:
        return NONE
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def moment(value: datetime | None) -> str:
    """`2026-11-30 12:52 UTC`."""
    return NONE if value is None else value.strftime("%Y-%m-%d %H:%M UTC")


def plural(number: int, one: str, many: str | None = None) -> str:
    """`1 cell`, `2 cells`, `1,200 cells`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
