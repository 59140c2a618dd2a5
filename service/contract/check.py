"""What a check leaves behind: one contender, the whole correctness grid, one machine."""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from .contender import Contender
from .run import Environment, Record
from .words import Dtype, Grade, Outcome

CHECK_VERSION = 1
"""Changes when the grid or its rules change: checks of different versions are not compared."""
NEEDS_GPU = "this case needs a GPU"
"""Reason of a case that no contender is asked on a CPU."""

_GRADE_ORDER = {grade: place for place, grade in enumerate(Grade)}


class CaseCheck(Record):
    """One case of the grid: its outcome, and the worst error over its outputs.

    `relative_l2` and `ratio` (error over the yardstick's own) belong to `worst_output`; both are
    None where nothing was compared: unsupported, or only exact checks.
    """

    case: str
    group: str
    what: str
    options: tuple[str, ...] = ()
    dtype: Dtype
    source: str | None = None
    outcome: Outcome
    grade: Grade | None = None
    worst_output: str | None = None
    relative_l2: float | None = None
    ratio: float | None = None
    reason: str | None = None
    notes: tuple[str, ...] = ()
    known_fault: str | None = None

    @property
    def result(self) -> str:
        """The grade of a right case, else the outcome."""
        return self.grade.value if self.grade else self.outcome.value


class CheckRecord(Record):
    """The whole grid for one contender, in one environment."""

    contender: Contender
    version: str | None = None
    environment: Environment
    interpreted: bool = False
    kernels_run: tuple[str, ...] = ()
    """Names of the GPU kernels of one call, as the profiler saw them."""
    details: dict[str, Any] = {}
    """Wheel and source hashes."""
    check_version: int = CHECK_VERSION
    cases: tuple[CaseCheck, ...]
    started_at: datetime
    ended_at: datetime

    @property
    def counts(self) -> dict[str, int]:
        """Cases by grade, or by outcome where there is none."""
        return dict(Counter(case.result for case in self.cases))


def worst_grade(grades: Iterable[Grade | None]) -> Grade | None:
    """The worst of some grades; None where there is none."""
    return max((grade for grade in grades if grade), key=_GRADE_ORDER.__getitem__, default=None)
