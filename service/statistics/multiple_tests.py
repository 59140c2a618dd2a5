"""Many tests at once: Benjamini and Hochberg's adjusted p-values.

Accepting every test whose adjusted p-value is at most q keeps the expected share of false ones
among those accepted at q, for independent tests and for those that move together (Benjamini and
Hochberg 1995; Benjamini and Yekutieli 2001). The cases of one kernel move together.
"""

from collections.abc import Hashable, Sequence
from typing import TypeVar

import numpy as np

FALSE_SHARE = 0.05
"""q of a batch of confirmations (docs/measuring.md)."""

Group = TypeVar("Group", bound=Hashable)


def adjusted_p_values(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values, each at its own place: min over j >= i of p(j) n / j, at most 1.

    Raises ValueError for a p-value outside of 0 to 1.
    """
    given = np.asarray(p_values, dtype=np.float64)
    if not bool(np.all((given >= 0.0) & (given <= 1.0))):
        raise ValueError(f"p-values must lie in 0 to 1, got {list(p_values)}")
    order = np.argsort(given, kind="stable")
    ranks = np.arange(1, len(given) + 1)
    scaled = given[order] * len(given) / ranks
    adjusted = np.empty_like(given)
    adjusted[order] = np.minimum(np.minimum.accumulate(scaled[::-1])[::-1], 1.0)
    return [float(value) for value in adjusted]


def adjusted_by_group(groups: Sequence[Group], p_values: Sequence[float]) -> dict[Group, float]:
    """The smallest adjusted p-value of each group, adjusted over the whole batch.

    For alerts that tell a kernel and version once for all its cases: the batch is still every test.
    Raises ValueError for lengths that differ, or a p-value outside of 0 to 1.
    """
    if len(groups) != len(p_values):
        raise ValueError(
            f"groups must be as many as p-values, got {len(groups)} and {len(p_values)}"
        )
    smallest: dict[Group, float] = {}
    for group, adjusted in zip(groups, adjusted_p_values(p_values), strict=True):
        smallest[group] = min(adjusted, smallest.get(group, 1.0))
    return smallest
