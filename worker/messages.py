"""The line protocol between a worker and its measuring processes: one JSON object a line.

The worker sends a command and waits for its one reply; only the process that got a command works,
so the device is never shared. Commands: prepare, arm, floor, warm, visit, check, grid, vitals,
release.
"""

from typing import Annotated, Any, Literal

from pydantic import Field

from lossbench.service.contract.case import Case
from lossbench.service.contract.contender import Contender
from lossbench.service.contract.run import Record
from lossbench.service.contract.words import Outcome, Pass

REPLY_FD_VARIABLE = "LOSSBENCH_REPLY_FD"
LOCK_FD_VARIABLE = "LOSSBENCH_LOCK_FD"


class Prepare(Record):
    """Make the inputs of a case."""

    do: Literal["prepare"] = "prepare"
    case: Case
    seed: int


class AddArm(Record):
    """Build a contender for a pass, compile it, run it a few times."""

    do: Literal["arm"] = "arm"
    arm: str
    contender: Contender
    pass_: Pass


class AddFloor(Record):
    """Make ready the bare products of a pass."""

    do: Literal["floor"] = "floor"
    arm: str
    pass_: Pass


class Warm(Record):
    """Load the device with this arm until it is steady, for at least `least_s` seconds."""

    do: Literal["warm"] = "warm"
    arm: str
    least_s: float = 0.0


class MakeVisit(Record):
    """Time this arm for one visit."""

    do: Literal["visit"] = "visit"
    arm: str


class Check(Record):
    """Errors against the reference and memory of an arm's contender; or only its exact bits."""

    do: Literal["check"] = "check"
    arm: str
    only_bits: bool = False


class CheckGridCase(Record):
    """Ask a contender one case of the correctness grid; no case need be prepared."""

    do: Literal["grid"] = "grid"
    contender: Contender
    grid_case: str


class ReadVitals(Record):
    """What clocks and power did since the last reading."""

    do: Literal["vitals"] = "vitals"


class Release(Record):
    """Free everything of the case; only the context stays."""

    do: Literal["release"] = "release"


Command = Annotated[
    Prepare | AddArm | AddFloor | Warm | MakeVisit | Check | CheckGridCase | ReadVitals | Release,
    Field(discriminator="do"),
]


class Reply(Record):
    """Answer to one command. `fatal`: the process is of no more use and ends."""

    ok: bool
    data: dict[str, Any] = {}
    outcome: Outcome | None = None
    reason: str | None = None
    fatal: bool = False
