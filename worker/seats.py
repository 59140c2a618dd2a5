"""A contender environment's place while a case is measured, and the arms that stand in it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from lossbench.service.contract.contender import Contender
from lossbench.service.contract.words import Pass

from .environments import ContenderEnvironment
from .messages import AddArm, AddFloor, Command, MakeVisit, Warm
from .order import CellFindings, CellOrder


class Disturbed(NamedTuple):
    """What happened within the visits of an arm and belongs in no time."""

    compiled: int = 0
    alloc_retries: int = 0


@dataclass
class Seat:
    """One environment's place in a group: its child and the arms that are ready in it."""

    environment: ContenderEnvironment
    cells: list[CellOrder]
    ready: list[str] = field(default_factory=list)
    owner: dict[str, CellOrder] = field(default_factory=dict)
    samples: dict[str, list[list[float]]] = field(default_factory=dict)
    host_ms: dict[str, list[float]] = field(default_factory=dict)
    clock_mhz: dict[str, list[float | None]] = field(default_factory=dict)
    disturbed: dict[str, Disturbed] = field(default_factory=dict)
    """Compilations and allocation retries within the visits of each arm."""

    def note(self, arm: str, visit: Mapping[str, Any]) -> None:
        """Keep what a visit of an arm gave."""
        before = self.disturbed.get(arm, Disturbed())
        self.disturbed[arm] = Disturbed(
            before.compiled + visit["compiled"], before.alloc_retries + visit["alloc_retries"]
        )
        self.samples.setdefault(arm, []).append(visit["latency_ms"])
        self.host_ms.setdefault(arm, []).extend(visit["host_ms"])
        self.clock_mhz.setdefault(arm, []).append(visit.get("clock_mhz"))

    def store(
        self,
        found: CellFindings,
        process: int,
        arm: str,
        beside: tuple[str, str | None],
        vitals: Mapping[str, Any],
    ) -> None:
        """The samples of a cell's arm into its findings; `beside`: its baseline's and floor's."""
        baseline, floor = beside
        own = self.disturbed.get(arm, Disturbed())
        others = [self.disturbed.get(each, Disturbed()) for each in beside if each and each != arm]
        retried = any(each.alloc_retries for each in (own, *others))
        found.visits[process] = self.samples[arm]
        found.host_ms[process] = self.host_ms[arm]
        found.vitals[process] = {
            **vitals,
            "visit_clock_mhz": self.clock_mhz[arm],
            "compiled": own.compiled,
            "compiled_beside": sum(each.compiled for each in others),
            "flags": [*vitals["flags"], *["alloc_retry"] * retried],
        }
        if baseline in self.samples:
            found.baseline_visits[process] = self.samples[baseline]
        if floor and floor in self.samples:
            found.floor_visits[process] = self.samples[floor]

    def clear(self) -> None:
        """Forget everything of a process."""
        for kept in (self.ready, self.owner, self.samples, self.host_ms, self.clock_mhz):
            kept.clear()
        self.disturbed.clear()


def baseline_arm(baseline: Contender, pass_: Pass) -> str:
    """Name of the baseline's arm: that of the same contender as a cell, so it is timed once."""
    return f"{baseline.text} {pass_}"


def floor_arm(pass_: Pass) -> str:
    """Name of the arm of the bare products of a pass."""
    return f"floor {pass_}"


def floor_pass(pass_: Pass, gradients_in_forward: bool) -> Pass | None:
    """Pass whose products a cell cannot do without; None where it has none left to do."""
    if not gradients_in_forward:
        return pass_
    return None if pass_ is Pass.BACKWARD else Pass.FORWARD_BACKWARD


def arm_of(command: Command) -> str | None:
    """The arm that a command makes ready or times; None for other commands."""
    return command.arm if isinstance(command, AddArm | AddFloor | Warm | MakeVisit) else None
