"""A clock that only the timed calls move: what is tested with it does not depend on the machine."""

from collections.abc import Callable

from lossbench.worker.timing import Timed


class FakeDevice:
    """Clock and stopwatch in one: each call takes what `seconds` says, and no other time passes."""

    def __init__(self, seconds: Callable[[int], float] = lambda _: 0.0) -> None:
        """`seconds`: of the call of this number, beside what the arm itself takes."""
        self._seconds, self.time_s, self.calls = seconds, 50.0, 0

    def clock(self) -> float:
        """Seconds, from an arbitrary moment."""
        return self.time_s

    def time(self, arm: Timed) -> tuple[float, float]:
        """Run `arm`; milliseconds it took, and as host time the number of calls so far / 1e3."""
        arm.before()
        began = self.time_s
        arm.call()
        self.time_s += self._seconds(self.calls)
        self.calls += 1
        return (self.time_s - began) * 1e3, self.calls / 1e3


class TakesTime:
    """An arm whose calls take so many seconds of a device's clock."""

    def __init__(self, device: FakeDevice, seconds: Callable[[], float]) -> None:
        self._device, self._seconds = device, seconds

    def before(self) -> None:
        """Nothing to make ready."""

    def call(self) -> None:
        """The time passes."""
        self._device.time_s += self._seconds()


def steady(seconds: float) -> FakeDevice:
    """A device on which every call takes the same time."""
    return FakeDevice(lambda _: seconds)
