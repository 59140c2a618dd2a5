"""Quantiles and tails of Student's t, so that the service needs no scipy.

The tail comes from the regularised incomplete beta function by its continued fraction (Lentz's
method; Numerical Recipes, 3rd edition, section 6.4), the quantile from bisection on it. Tests
compare both with scipy to 1e-9, up to 1,000 degrees of freedom.
"""

import math
from functools import lru_cache

_TINY = 1e-300
_STEPS = 400
_ENOUGH = 1e-15


def _beta_fraction(a: float, b: float, x: float) -> float:
    c, d = 1.0, 1.0 - (a + b) * x / (a + 1.0)
    d = 1.0 / (d if abs(d) > _TINY else _TINY)
    value = d
    for m in range(1, _STEPS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1.0 + term * d
            c = 1.0 + term / c
            d = 1.0 / (d if abs(d) > _TINY else _TINY)
            c = c if abs(c) > _TINY else _TINY
            step = d * c
            value *= step
        if abs(step - 1.0) < _ENOUGH:
            break
    return value


def _regularised_beta(a: float, b: float, x: float, rest: float) -> float:
    """`rest` is 1 - x, handed over because the subtraction would lose its digits near x = 1."""
    if x <= 0.0 or rest <= 0.0:
        return 0.0 if x <= 0.0 else 1.0
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    log_x = math.log(x) if x < 0.5 else math.log1p(-rest)
    front = math.exp(log_front + a * log_x + b * math.log(rest))
    if x < (a + 1.0) / (a + b + 2.0):
        return front * _beta_fraction(a, b, x) / a
    return 1.0 - front * _beta_fraction(b, a, rest) / b


def upper_tail(t: float, degrees: float) -> float:
    """P(T > t) for Student's t with `degrees` > 0 degrees of freedom. Raises ValueError."""
    if degrees <= 0:
        raise ValueError(f"degrees of freedom must be > 0, got {degrees}")
    whole = degrees + t * t
    tail = 0.5 * _regularised_beta(degrees / 2.0, 0.5, degrees / whole, t * t / whole)
    return tail if t >= 0 else 1.0 - tail


@lru_cache(maxsize=1024)
def quantile(probability: float, degrees: float) -> float:
    """t with P(T <= t) = probability, for 0 < probability < 1. Raises ValueError."""
    if not 0.0 < probability < 1.0:
        raise ValueError(f"probability must lie inside (0, 1), got {probability}")
    if probability < 0.5:
        return -quantile(1.0 - probability, degrees)
    low, high = 0.0, 1.0
    while upper_tail(high, degrees) > 1.0 - probability:
        high *= 2.0
    while high - low > 1e-13 * max(1.0, high):
        middle = 0.5 * (low + high)
        if upper_tail(middle, degrees) > 1.0 - probability:
            low = middle
        else:
            high = middle
    return 0.5 * (low + high)
