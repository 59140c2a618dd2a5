"""What is asked of one case, and what comes back: the worker's own words between its parts."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from lossbench.service.contract.case import Case
from lossbench.service.contract.contender import Contender
from lossbench.service.contract.run import RunRecord
from lossbench.service.contract.words import Outcome, Pass


@dataclass(frozen=True)
class CellOrder:
    """One cell to measure; `number` is the caller's own name for it."""

    number: int
    contender: Contender
    pass_: Pass

    @property
    def arm(self) -> str:
        """Name of the cell's arm in its measuring process."""
        return f"{self.contender.text} {self.pass_}"


class Versus(NamedTuple):
    """The two sides of a comparison, and the most processes that it may take."""

    base: Contender
    candidate: Contender
    max_processes: int


@dataclass(frozen=True)
class CaseOrder:
    """One case with its cells and the settings of its job.

    With `versus` it is a comparison: `processes` is where it begins, and it goes on while no
    verdict is reached.
    """

    case: Case
    cells: tuple[CellOrder, ...]
    baseline: Contender
    processes: int
    timeout_s: float
    seed: int = 0
    versus: Versus | None = None


@dataclass
class CellFindings:
    """What the measuring processes reported of one cell, process by process."""

    version: str | None = None
    gradients_in_forward: bool = False
    interpreted: bool = False
    compile_s: float = 0.0
    first_call_s: float = 0.0
    visits: dict[int, list[list[float]]] = field(default_factory=dict)
    host_ms: dict[int, list[float]] = field(default_factory=dict)
    baseline_visits: dict[int, list[list[float]]] = field(default_factory=dict)
    floor_visits: dict[int, list[list[float]]] = field(default_factory=dict)
    check: dict[str, Any] | None = None
    bits: dict[int, str] = field(default_factory=dict)
    steady: bool = True
    vitals: dict[int, dict[str, Any]] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)
    """Which files ran: hashes of wheels and of source."""
    offered: bool = True
    """False where this worker lacks the contender: that says nothing of it, and is not stored."""
    spent_s: float = 0.0
    wall_s: dict[str, float] = field(default_factory=dict)
    """Where the wall time of the whole case went, by part (`wall_time.PARTS`)."""
    crashes: int = 0
    log: str = ""


class Ending(NamedTuple):
    """An outcome that ended a cell early, with its reason."""

    outcome: Outcome
    reason: str


class CellResult(NamedTuple):
    """How a cell ended; `record` is there unless nothing could be said about the contender."""

    number: int
    outcome: Outcome
    reason: str | None
    record: RunRecord | None
    log: str


Progress = Callable[[dict[int, tuple[int, int]]], None]
"""Called with {cell number: (visits done, visits in all)}."""

Say = Callable[[str], None]
"""Called with one line about what takes long now: installing, compiling, checking."""


def silence(_line: str) -> None:
    """Say nothing."""
