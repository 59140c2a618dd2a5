"""Curves of millions of steps: thinned for the eye, packed for the store, averaged in windows."""

import math
import zlib
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .training_verdict import WINDOWS

BLOCK = 10_000
"""Steps of one stored block."""
BUCKET = 100
"""Steps of one entry of a block's summary."""
LEAST_POINTS = 4
_ENTRY = np.dtype([("low", "<f4"), ("high", "<f4"), ("low_at", "<u2"), ("high_at", "<u2")])


class Curve(NamedTuple):
    """Steps, from 1 and rising, with a value each; NaN where a value is not finite."""

    steps: NDArray[np.int64]
    values: NDArray[np.float64]


def thinned(curve: Curve, max_points: int) -> Curve:
    """At most `max_points` points of a curve: its first, its last, and what stands out between.

    The steps between are cut into equal parts, and of each the least and the greatest value stay,
    so no spike is lost. A value that is not finite stays only as the first or the last. Raises
    ValueError for fewer than 4 points.
    """
    if max_points < LEAST_POINTS:
        raise ValueError(f"max_points={max_points}: must be >= {LEAST_POINTS}")
    count = len(curve.steps)
    if count <= max_points:
        return curve
    inner = curve.values[1:-1]
    width = math.ceil(len(inner) / ((max_points - 2) // 2))
    low, high = _extremes(inner, width)
    kept = np.unique(np.concatenate(([0], low + 1, high + 1, [count - 1])))
    return Curve(curve.steps[kept], curve.values[kept])


def _extremes(values: NDArray[np.float64], width: int) -> tuple[NDArray[np.int64], ...]:
    """Places of the least and of the greatest finite value of each `width` values."""
    parts = math.ceil(len(values) / width)
    starts = np.arange(parts) * width
    found = []
    for missing, pick in ((np.inf, np.argmin), (-np.inf, np.argmax)):
        padded = np.full(parts * width, missing)
        padded[: len(values)] = np.where(np.isfinite(values), values, missing)
        places = starts + pick(padded.reshape(parts, width), axis=1)
        found.append(places[np.isfinite(padded[places])].astype(np.int64))
    return tuple(found)


def pack(values: ArrayLike) -> bytes:
    """float32, the first bytes of all of them, then the second ...; zlib."""
    plain = np.ascontiguousarray(values, dtype="<f4").view(np.uint8).reshape(-1, 4)
    return zlib.compress(plain.T.tobytes(), 1)


def unpack(data: bytes) -> NDArray[np.float32]:
    """Inverse of `pack`."""
    plain = np.frombuffer(zlib.decompress(data), np.uint8).reshape(4, -1)
    return np.ascontiguousarray(plain.T).view("<f4").ravel()


def summary_of(values: ArrayLike) -> bytes:
    """Least and greatest value of each 100 steps of a block, with their places in the block.

    A hundred without a finite value has NaN for both.
    """
    block = np.asarray(values, dtype=np.float32)
    found = np.zeros(math.ceil(len(block) / BUCKET), _ENTRY)
    for number in range(len(found)):
        part = block[number * BUCKET : (number + 1) * BUCKET]
        finite = np.isfinite(part)
        low, high = (
            int(np.where(finite, part, np.inf).argmin()),
            int(np.where(finite, part, -np.inf).argmax()),
        )
        least, most = (part[low], part[high]) if finite.any() else (np.nan, np.nan)
        start = number * BUCKET
        found[number] = (least, most, start + low, start + high)
    return zlib.compress(found.tobytes(), 1)


def points_of(summary: bytes, first_step: int) -> Curve:
    """The points that a summary keeps, of a block that begins at a step; not in order."""
    found = np.frombuffer(zlib.decompress(summary), _ENTRY)
    places = np.concatenate((found["low_at"], found["high_at"])).astype(np.int64)
    values = np.concatenate((found["low"], found["high"])).astype(np.float64)
    finite = np.isfinite(values)
    return Curve(first_step + places[finite], values[finite])


def window_width(steps: int) -> int:
    """Steps of a window of a run of so many steps; as `compare_curves` takes it."""
    return max(1, math.ceil(steps / WINDOWS))


def window_means(losses: ArrayLike, steps: int) -> list[float]:
    """Mean loss of every window of a run of `steps` steps; NaN where a step is missing."""
    whole = np.full(steps, np.nan)
    known = np.asarray(losses, dtype=np.float64)[:steps]
    whole[: len(known)] = known
    width = window_width(steps)
    return [float(whole[at : at + width].mean()) for at in range(0, steps, width)]
