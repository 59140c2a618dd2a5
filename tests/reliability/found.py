"""What a fault is, and what one infliction of it gave."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from servers import Server
from stage import Job, Stage, make_stage, remove

ENGINES = ("sqlite", "postgresql")


@dataclass
class Found:
    """One infliction: the jobs it hit, how long nothing went on, and what the log said."""

    jobs: list[Job]
    recovered_s: float | None
    said: str
    expected: int | None = None
    """Results that the job should have, where not all of its cells are meant to."""
    wrong: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Site:
    """What the faults of one engine run on."""

    engine: str
    server: Server | None
    stale_after_s: float
    cells: int
    """Cells of the long job."""

    @contextmanager
    def stage(self) -> Iterator[Stage]:
        """A fresh database with a service on it."""
        stage = make_stage(self.engine, self.server, self.stale_after_s)
        try:
            yield stage
        finally:
            remove(stage)


Play = Callable[[Stage], Found]


@dataclass(frozen=True)
class Fault:
    """A fault by name: `play` inflicts it once on a stage with a running service."""

    name: str
    play: Play
    engines: tuple[str, ...] = ENGINES
    service: bool = True
    """Whether the stage is to have a service already."""
