"""How many writes a minute one token or address may make: a token bucket each."""

import math
import threading
import time
from collections.abc import Callable

from ..contract.errors import TooManyRequestsError

MOST_BUCKETS = 10_000


class RateLimiter:
    """`take` one write of a key's budget, which refills evenly over a minute."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._capacity = float(per_minute)
        self._per_second = per_minute / 60.0
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}
        self._lock = threading.Lock()

    def take(self, key: str) -> None:
        """Count one write. Raises TooManyRequestsError when the minute's budget is used up."""
        moment = self._clock()
        with self._lock:
            left, since = self._buckets.get(key, (self._capacity, moment))
            left = min(self._capacity, left + (moment - since) * self._per_second)
            if left < 1.0:
                wait = math.ceil((1.0 - left) / self._per_second)
                raise TooManyRequestsError(
                    f"more than {self._capacity:g} writes in a minute; try again in {wait} s", wait
                )
            self._buckets[key] = (left - 1.0, moment)
            if len(self._buckets) > MOST_BUCKETS:
                self._drop_full(moment)

    def _drop_full(self, moment: float) -> None:
        refill_s = self._capacity / self._per_second
        kept = {k: v for k, v in self._buckets.items() if moment - v[1] < refill_s}
        self._buckets = dict(list(kept.items())[-MOST_BUCKETS // 2 :])
