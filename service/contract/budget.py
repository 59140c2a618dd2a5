"""Budgets of a suite file: what a candidate must keep to, by metric and case."""

from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from .sizes import Size
from .words import Grade, Pass


class BudgetMetric(StrEnum):
    """What a budget limits."""

    LATENCY = "latency"
    WORKSPACE = "workspace"
    ERROR = "error"


_LIMITS = {
    BudgetMetric.LATENCY: ("max_ratio", "max_ms"),
    BudgetMetric.WORKSPACE: ("max_ratio", "max_bytes"),
    BudgetMetric.ERROR: ("max_error_grade",),
}


class Budget(BaseModel):
    """A limit on one metric of the candidate, for every case whose text matches `cases`.

    `max_ratio` is over the base; `max_ms`, `max_bytes` and `max_error_grade` are of the candidate
    alone. In `cases` a star stands for anything: `N8192-*`, `*-V128256-*`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    metric: BudgetMetric
    cases: Annotated[str, Field(min_length=1, max_length=200)] = "*"
    pass_: Annotated[Pass | None, Field(alias="pass")] = None
    max_ratio: Annotated[float | None, Field(gt=0, allow_inf_nan=False)] = None
    max_ms: Annotated[float | None, Field(gt=0, allow_inf_nan=False)] = None
    max_bytes: Size | None = None
    max_error_grade: Grade | None = None

    @model_validator(mode="after")
    def _limits_fit(self) -> Self:
        given = [
            name
            for name in ("max_ratio", "max_ms", "max_bytes", "max_error_grade")
            if getattr(self, name) is not None
        ]
        known = _LIMITS[self.metric]
        if foreign := [name for name in given if name not in known]:
            raise ValueError(f"a budget of {self.metric} has no {foreign[0]}; use {_either(known)}")
        if not given:
            raise ValueError(f"a budget of {self.metric} needs {_either(known)}")
        return self

    def applies_to(self, case: str, pass_: Pass) -> bool:
        """Whether it limits this case and pass."""
        return fnmatchcase(case, self.cases) and self.pass_ in (None, pass_)


def _either(names: tuple[str, ...]) -> str:
    return " or ".join(names)


class Budgets(BaseModel):
    """The field `budgets` of a suite file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    budgets: Annotated[list[Budget], Field(max_length=1000)] = []
