"""Clean series of one level, in the kinds of noise that the change detector is held to.

Every kind gives `count` series of `length` points as rows, of deviation 1 (outliers apart).
"""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Series = NDArray[np.float64]
Kind = Callable[[np.random.Generator, int, int], Series]

OUTLIER_SHARE = 0.01
OUTLIERS = (5.0, 20.0)
"""Distance of outliers in deviations, uniform; three of four are slower."""
CORRELATION = 0.5
_RUN_IN = 40
PROCESSES = 3
"""Of a point: the default of a job."""
FITTED = Path(__file__).parents[1] / "simulation" / "process_noise.json"


def white(rng: np.random.Generator, count: int, length: int) -> Series:
    """Independent and normal."""
    return rng.standard_normal((count, length))


def with_outliers(rng: np.random.Generator, count: int, length: int) -> Series:
    """The same with 1 % outliers."""
    size = (count, length)
    far = rng.uniform(*OUTLIERS, size) * np.where(rng.random(size) < 0.25, -1.0, 1.0)
    return rng.standard_normal(size) + far * (rng.random(size) < OUTLIER_SHARE)


def lingering(rng: np.random.Generator, count: int, length: int) -> Series:
    """AR(1) of correlation 0.5."""
    fresh = rng.standard_normal((count, length + _RUN_IN)) * np.sqrt(1 - CORRELATION**2)
    for i in range(1, length + _RUN_IN):
        fresh[:, i] += CORRELATION * fresh[:, i - 1]
    return fresh[:, _RUN_IN:]


def heavy_tailed(rng: np.random.Generator, count: int, length: int) -> Series:
    """Student's t with 3 degrees of freedom, of deviation 1."""
    return rng.standard_t(3, (count, length)) / np.sqrt(3.0)


def two_modes(rng: np.random.Generator, count: int, length: int) -> Series:
    """Two configurations four deviations apart, drawn anew for each point: 3 of 10 are slower."""
    size = (count, length)
    return 4.0 * (rng.random(size) < 0.3) + 0.2 * rng.standard_normal(size)


KINDS: dict[str, Kind] = {
    "white": white,
    "1 % outliers": with_outliers,
    "AR(1) of 0.5": lingering,
}
"""What thresholds are calibrated on: the worst of these."""
BEYOND: dict[str, Kind] = {"Student's t, 3 degrees": heavy_tailed, "two modes": two_modes}
"""Shown, not calibrated on."""


def _measured(shape: dict[str, Any], rng: np.random.Generator, count: int, length: int) -> Series:
    """Log ratios of the same code on an H200, each the mean over three processes of five blocks."""
    size = (count, length, PROCESSES)
    ratios = shape["process_mean_sd"] / 100 * rng.standard_normal(size)
    if outlier := shape["outlier"]:
        struck = rng.random(size) < outlier["share"]
        # either arm may be the one that was struck
        by = np.where(rng.random(size) < 0.5, 1, -1) * outlier["by"] / 100 / len(shape["profile"])
        ratios += by * struck
    return ratios.mean(axis=2)


def measured_kinds() -> dict[str, Kind]:
    """Fitted to A/A measurements (tests/simulation/process_noise.json); log ratios, not scaled."""
    shapes = json.loads(FITTED.read_text(encoding="utf-8"))["shapes"]
    return {f"H200, {name}": partial(_measured, shape) for name, shape in shapes.items()}
