"""Prints the table of `service/statistics/change_points_table.py`; about ten minutes on one core.

`python -P tests/benchmarks/detection_calibration.py`: for each number of points the strength that a
share of 0.01 and of 0.001 of clean series reaches, in the worst of the kinds of noise in
`detection_series.py`. In short series ten times as many may of noise that lingers. Seeded, so that
it prints the same numbers again.
"""

import sys
import zlib
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parent))

from detection_series import KINDS, Series, lingering

from lossbench.service.statistics.change_points_drift import strongest
from lossbench.service.statistics.change_points_table import SHARES

COUNTS = (10, 12, 15, 20, 25, 30, 40, 60, 100, 200, 400, 1000)
SEED = 20261130
SHORT = 100
POINTS = 10_000_000
MOST_SERIES = 40_000
PART = 1_000


def strengths(kind: str, count: int) -> list[float]:
    """Strength of the strongest step or drift of each clean series of `count` points."""
    rng = np.random.default_rng([SEED, count, zlib.crc32(kind.encode())])
    parts = min(MOST_SERIES, POINTS // count) // PART
    drawn = (KINDS[kind](rng, PART, count) for _ in range(parts))
    return [strongest(row) for rows in drawn for row in rows]


def shares(kind: str, count: int) -> Series:
    """Of clean series that may reach the strengths of the table."""
    lenient = KINDS[kind] is lingering and count < SHORT
    return np.array(SHARES) * (10 if lenient else 1)


def main() -> None:
    """Print a line for each number of points (or those given), and the kinds it is the worst of."""
    for count in [int(given) for given in sys.argv[1:]] or COUNTS:
        by_kind = {
            kind: np.quantile(strengths(kind, count), 1 - shares(kind, count)) for kind in KINDS
        }
        worst = np.max(list(by_kind.values()), axis=0)
        line = ", ".join(f"{value:.2f}" for value in worst)
        kinds = "; ".join(f"{kind} {np.round(values, 2)}" for kind, values in by_kind.items())
        sys.stdout.write(f"    ({count}, {line}),  # {kinds}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
