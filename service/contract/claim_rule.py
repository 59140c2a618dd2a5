"""The closed set of rules that decide a claim, and the cells that each looks at.

A rule compares measured cells with a limit. What one decides: `statistics/claims.py`. Every kind
says itself in words, which pages and commands print.
"""

import math
from collections.abc import Iterator
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from .case import Case
from .contender import Contender
from .run import Cell, Record
from .words import Outcome, Pass

Output = Literal["loss", "dx", "dw", "db"]
Measure = Literal["workspace", "peak"]
Symbol = Literal["N", "H", "V"]


def _case_of_text(value: object) -> object:
    return Case.parse(value) if isinstance(value, str) else value


class CellName(Record):
    """The cell that a rule looks at; `case` in its text form, which holds recipe and options."""

    contender: Contender
    case: Annotated[Case, BeforeValidator(_case_of_text)]
    pass_: Annotated[Pass, Field(alias="pass", serialization_alias="pass")] = Pass.FORWARD_BACKWARD

    @cached_property
    def key(self) -> str:
        """Identity of the cell, as of `Cell.key`."""
        return Cell(contender=self.contender, case=self.case, pass_=self.pass_).key

    @cached_property
    def words(self) -> str:
        """The cell as a sentence names it."""
        part = "" if self.pass_ is Pass.FORWARD_BACKWARD else f", {self.pass_.replace('_', ' ')}"
        return f"{self.contender} on {self.case}{part}"

    def __hash__(self) -> int:
        return hash(self.key)


class _Limits(Record):
    """Bounds of what a rule computes; one of them at least."""

    at_least: Annotated[float | None, Field(allow_inf_nan=False)] = None
    at_most: Annotated[float | None, Field(allow_inf_nan=False)] = None

    @model_validator(mode="after")
    def _one_limit_in_order(self) -> Self:
        if self.at_least is None and self.at_most is None:
            raise ValueError("a rule needs at_least, at_most or both")
        if self.lowest > self.highest:
            raise ValueError(f"at_least {self.at_least} is above at_most {self.at_most}")
        return self

    @property
    def lowest(self) -> float:
        """The lower bound, -inf without one."""
        return -math.inf if self.at_least is None else self.at_least

    @property
    def highest(self) -> float:
        """The upper bound, inf without one."""
        return math.inf if self.at_most is None else self.at_most

    @property
    def limit_words(self) -> str:
        """`at most 1.03`, `at least 2`, `0.97 to 1.03`."""
        if self.at_least is None:
            return f"at most {self.at_most:g}"
        if self.at_most is None:
            return f"at least {self.at_least:g}"
        return f"{self.at_least:g} to {self.at_most:g}"


class _OfOver(Record):
    """Two cells: the first over, less or beside the second."""

    of: CellName
    over: CellName

    @property
    def cells(self) -> tuple[CellName, ...]:
        """The cells that it looks at."""
        return (self.of, self.over)

    def _two(self, between: str) -> str:
        if self.of.case == self.over.case and self.of.pass_ == self.over.pass_:
            return f"{self.of.contender} {between} {self.over.words}"
        return f"{self.of.words} {between} {self.over.words}"


class TimeRatio(_OfOver, _Limits):
    """Median time of the first cell over the second's, with its 95 % interval.

    From a comparison head to head where there is one, else from the ratios of both to the baseline
    that was timed in their processes. Two cases compare their ratios to that baseline.
    """

    kind: Literal["time_ratio"] = "time_ratio"

    @property
    def words(self) -> str:
        """What is computed, and its limit."""
        relative = "" if self.of.case == self.over.case else ", each relative to its baseline"
        return f"time of {self._two('over')}{relative}: {self.limit_words}"


class TimeGain(_OfOver, _Limits):
    """Ratio of times of the first pair of cells over that of the second pair.

    At most 1 says that the step from `over` to `of` saves a larger share of the time than the step
    from `than_over` to `than_of`.
    """

    kind: Literal["time_gain"] = "time_gain"
    than_of: CellName
    than_over: CellName

    @property
    def cells(self) -> tuple[CellName, ...]:
        """The cells that it looks at."""
        return (self.of, self.over, self.than_of, self.than_over)

    @property
    def words(self) -> str:
        """What is computed, and its limit."""
        second = f"{self.than_of.contender} over {self.than_over.words}"
        return f"time of {self._two('over')}, over that of {second}: {self.limit_words}"


class FloorRatio(_OfOver, _Limits):
    """Time of the bare products of the first cell over the second's, by t over the processes."""

    kind: Literal["floor_ratio"] = "floor_ratio"

    @property
    def words(self) -> str:
        """What is computed, and its limit."""
        return f"floor beside {self._two('over')}: {self.limit_words}"


class BytesRatio(_OfOver, _Limits):
    """Workspace, or peak over the base, of the first cell over the second's."""

    kind: Literal["bytes_ratio"] = "bytes_ratio"
    measure: Measure = "workspace"

    @property
    def words(self) -> str:
        """What is computed, and its limit."""
        return f"{self.measure} of {self._two('over')}: {self.limit_words}"


class BytesDifference(_OfOver):
    """Workspace or peak of the first cell less the second's, against a product of sizes.

    `product`: numbers and N, H, V of the first cell's case. Within the share `within` of it; or
    with `at_most` anything up to it.
    """

    kind: Literal["bytes_difference"] = "bytes_difference"
    measure: Measure = "workspace"
    product: Annotated[tuple[int | Symbol, ...], Field(min_length=1)]
    within: Annotated[float | None, Field(gt=0, lt=1)] = None

    @property
    def expected_bytes(self) -> int:
        """The product, in bytes."""
        case = self.of.case
        sizes = {"N": case.max_tokens, "H": case.hidden, "V": case.vocab}
        return math.prod(sizes[each] if isinstance(each, str) else each for each in self.product)

    @property
    def bounds(self) -> tuple[float, float]:
        """Smallest and largest difference that fits, in bytes."""
        if self.within is None:
            return -math.inf, float(self.expected_bytes)
        share = self.within * abs(self.expected_bytes)
        return self.expected_bytes - share, self.expected_bytes + share

    @property
    def words(self) -> str:
        """What is computed, and its limit."""
        product = " x ".join(str(each) for each in self.product)
        size = f"{product} bytes ({self.expected_bytes / 2**20:,.0f} MiB)"
        limit = f"at most {size}" if self.within is None else f"{size} +- {self.within:.0%}"
        return f"{self.measure} of {self._two('less')}: {limit}"


class ErrorRatio(_Limits):
    """Relative L2 error of a cell's outputs over torch's own, or over another cell's.

    Of several outputs the largest ratio counts.
    """

    kind: Literal["error_ratio"] = "error_ratio"
    of: CellName
    over: CellName | None = None
    outputs: Annotated[tuple[Output, ...], Field(min_length=1)]

    @property
    def cells(self) -> tuple[CellName, ...]:
        """The cells that it looks at."""
        return (self.of,) if self.over is None else (self.of, self.over)

    @property
    def words(self) -> str:
        """What is computed, and its limit."""
        under = "torch's own in the same dtype" if self.over is None else self.over.words
        outputs = ", ".join(self.outputs)
        return f"error of {outputs} of {self.of.words} over {under}: {self.limit_words}"


class SameErrors(_OfOver):
    """Errors of both cells' outputs against the float64 reference are equal within a share."""

    kind: Literal["same_errors"] = "same_errors"
    outputs: Annotated[tuple[Output, ...], Field(min_length=1)]
    statistic: Literal["max_abs", "relative_l2"] = "relative_l2"
    within: Annotated[float, Field(ge=0, lt=1)] = 0.0

    @property
    def words(self) -> str:
        """What is compared, and its limit."""
        statistic = {"max_abs": "largest absolute", "relative_l2": "relative L2"}[self.statistic]
        limit = "equal" if self.within == 0 else f"equal within {self.within:.1%}"
        return f"{statistic} error of {', '.join(self.outputs)} of {self._two('and')}: {limit}"


class SameBits(_OfOver):
    """Loss and gradients of both cells are equal bit by bit."""

    kind: Literal["same_bits"] = "same_bits"

    @property
    def words(self) -> str:
        """What is compared."""
        return f"loss and gradients of {self._two('and')}: equal to the bit"


class OutcomeIs(Record):
    """The cell ended in one of these ways, where asked with these words in the reason."""

    kind: Literal["outcome"] = "outcome"
    of: CellName
    outcomes: Annotated[tuple[Outcome, ...], Field(min_length=1)]
    reason_has: str | None = None

    @property
    def cells(self) -> tuple[CellName, ...]:
        """The cell that it looks at."""
        return (self.of,)

    @property
    def words(self) -> str:
        """What is looked at, and what it must be."""
        ends = " or ".join(outcome.replace("_", " ") for outcome in self.outcomes)
        reason = f", the reason naming {self.reason_has!r}" if self.reason_has else ""
        return f"outcome of {self.of.words}: {ends}{reason}"


class Recompiles(_Limits):
    """How often the compiler came back while the cell was measured."""

    kind: Literal["recompiles"] = "recompiles"
    of: CellName

    @property
    def cells(self) -> tuple[CellName, ...]:
        """The cell that it looks at."""
        return (self.of,)

    @property
    def words(self) -> str:
        """What is counted, and its limit."""
        return f"recompilations of {self.of.words}: {self.limit_words}"


class SameTraining(Record):
    """Runs of training with these contenders end at the same perplexity, within a share.

    This version stores no training results: it is always untested.
    """

    kind: Literal["same_training"] = "same_training"
    contenders: Annotated[tuple[Contender, ...], Field(min_length=2)]
    within: Annotated[float, Field(gt=0, lt=1)]

    @property
    def cells(self) -> tuple[CellName, ...]:
        """None: it looks at runs of training."""
        return ()

    @property
    def words(self) -> str:
        """What is compared, and its limit."""
        names = ", ".join(contender.text for contender in self.contenders)
        return f"perplexity after training with {names}: equal within {self.within:.1%}"


class AllOf(Record):
    """Holds where every rule holds, fails where one fails."""

    kind: Literal["all"] = "all"
    rules: Annotated[tuple["Rule", ...], Field(min_length=2)]


class AnyOf(Record):
    """Holds where one rule holds, fails where every one fails."""

    kind: Literal["any"] = "any"
    rules: Annotated[tuple["Rule", ...], Field(min_length=2)]


LeafRule = (
    TimeRatio
    | TimeGain
    | FloorRatio
    | BytesRatio
    | BytesDifference
    | ErrorRatio
    | SameErrors
    | SameBits
    | OutcomeIs
    | Recompiles
    | SameTraining
)
Rule = Annotated[LeafRule | AllOf | AnyOf, Field(discriminator="kind")]
AllOf.model_rebuild()
AnyOf.model_rebuild()


def leaves_of(rule: Any) -> Iterator[LeafRule]:
    """The parts of a rule that look at cells, in order."""
    if isinstance(rule, AllOf | AnyOf):
        for each in rule.rules:
            yield from leaves_of(each)
    else:
        yield rule
