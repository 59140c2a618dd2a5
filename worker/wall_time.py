"""Where the wall time of a case went: how much of it was timed work, and what the rest was."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

KINDS = {
    "prepare": "inputs",
    "arm": "compile",
    "floor": "compile",
    "warm": "warm_up",
    "visit": "visits",
    "check": "checks",
    "grid": "checks",
}
"""Command of the line protocol -> part of the wall time; anything else is `housekeeping`."""
PARTS = (
    "child_start",
    "inputs",
    "compile",
    "warm_up",
    "visits",
    "checks",
    "housekeeping",
    "idle",
)


class WallTime:
    """Seconds by part since it was made; what is in no part is `idle`."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock, self._began = clock, clock()
        self._spent: dict[str, float] = {}
        self._timed_s = 0.0

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Charge what is done inside to a part."""
        began = self._clock()
        try:
            yield
        finally:
            self._spent[name] = self._spent.get(name, 0.0) + self._clock() - began

    def command(self, do: str) -> str:
        """The part that a command of the line protocol belongs to."""
        return KINDS.get(do, "housekeeping")

    def timed(self, latency_ms: Sequence[float]) -> None:
        """Add samples: the part of the visits that is in the result."""
        self._timed_s += sum(latency_ms) / 1e3

    def so_far(self) -> dict[str, float]:
        """Seconds by part, `total`, and `timed`: the calls whose time is in the result."""
        total = self._clock() - self._began
        spent = {name: self._spent.get(name, 0.0) for name in PARTS[:-1]}
        spent["idle"] = max(0.0, total - sum(spent.values()))
        return {"total": total, "timed": self._timed_s, **spent}


def added(walls: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Sum of several cases."""
    names = ("total", "timed", *PARTS)
    return {name: sum(wall.get(name, 0.0) for wall in walls) for name in names}


def wall_line(wall: Mapping[str, float]) -> str:
    """One line for people: the total, the timed share, and the parts, largest first."""
    total = wall.get("total", 0.0)
    if total <= 0:
        return "no wall time"
    parts = sorted(((wall.get(name, 0.0), name) for name in PARTS), reverse=True)
    shown = ", ".join(
        f"{name.replace('_', ' ')} {seconds:.1f} s" for seconds, name in parts if seconds >= 0.05
    )
    return f"{total:.1f} s, {wall.get('timed', 0.0) / total:.0%} of it timed calls: {shown}"
