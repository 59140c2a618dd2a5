"""What reading sessions of one process keep between them while nothing new is stored.

A comparison over all results reads the newest result of thousands of cases, for each of its sides,
and pages are looked at more often than results come in. What is kept is of one state of the store:
of the counts of all results, valid and invalid ones, which every save and invalidation changes.
"""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

INFO = "kept_runs"
"""Under this name sessions carry it; one that looks at an earlier moment carries none."""
MOST_KEPT = 40_000
"""Results kept in all, about a kilobyte each."""

State = tuple[int, int]
Key = tuple[str, str, int, int]


class KeptRuns:
    """What was read last, the least used given up first. Safe between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._state: State | None = None
        self._found: OrderedDict[Key, Sequence[Any]] = OrderedDict()

    def look_up(self, state: State, key: Key) -> Sequence[Any] | None:
        """What is kept for this state of the store; None where nothing is."""
        with self._lock:
            if state != self._state or key not in self._found:
                return None
            self._found.move_to_end(key)
            return self._found[key]

    def keep(self, state: State, key: Key, runs: Sequence[Any]) -> None:
        """Keep what was read, in place of everything of another state."""
        with self._lock:
            if state != self._state:
                self._state = state
                self._found.clear()
            self._found[key] = runs
            while sum(map(len, self._found.values())) > MOST_KEPT and len(self._found) > 1:
                self._found.popitem(last=False)
