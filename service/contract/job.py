"""JobRequest: the one body that the API, the command line and job files share."""

from datetime import UTC, datetime
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from .case import MAX_HIDDEN, MAX_TOKENS, MAX_VOCAB, CaseOptions, TokenStream
from .contender import Contender
from .training import TrainingSpec
from .words import Dtype, JobKind, Pass, Recipe

Tokens = Annotated[int, Field(ge=1, le=MAX_TOKENS)]


class StreamSpec(BaseModel):
    """`{"stream": {...}}` in place of one token count."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    stream: TokenStream


class ShapeSpec(BaseModel):
    """One shape: numbers, or a model preset that carries hidden, vocab and the model's options."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tokens: Tokens | StreamSpec
    hidden: Annotated[int | None, Field(ge=1, le=MAX_HIDDEN)] = None
    vocab: Annotated[int | None, Field(ge=2, le=MAX_VOCAB)] = None
    model: Annotated[str | None, Field(max_length=64)] = None

    @model_validator(mode="after")
    def _numbers_or_model(self) -> Self:
        numbers = self.hidden is not None and self.vocab is not None
        if self.model is None and not numbers:
            raise ValueError("a shape needs hidden and vocab, or model")
        if self.model is not None and (self.hidden is not None or self.vocab is not None):
            raise ValueError("give either model, or hidden and vocab")
        return self


class Sweep(BaseModel):
    """Values that replace the named dimension of every shape; a stream stays as it is."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tokens: list[Tokens] | None = None
    hidden: list[Annotated[int, Field(ge=1, le=MAX_HIDDEN)]] | None = None
    vocab: list[Annotated[int, Field(ge=2, le=MAX_VOCAB)]] | None = None


def _utc(value: datetime) -> datetime:
    if value.tzinfo is None:
        raise ValueError("the time has no zone; write it as 2026-11-30T12:00:00Z")
    return value.astimezone(UTC)


UtcTime = Annotated[datetime, AfterValidator(_utc)]
Label = Annotated[str, Field(min_length=1, max_length=200)]
LabelName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_.-]*$", max_length=64)]


FEWEST_COMPARED = 3
"""Processes below which no comparison has a verdict."""
MOST_COMPARED = 24
BENCHMARKED = (
    "shapes",
    "sweep",
    "dtypes",
    "passes",
    "recipes",
    "options",
    "baseline",
    "processes",
    "max_processes",
)
"""Fields that a job of kind `train` does not have."""


class JobRequest(BaseModel):
    """What to measure. Only `contenders` and `shapes` are required; kind `train` has no shapes.

    Cells = contenders x shapes x sweep x dtypes x passes x recipes, duplicates dropped. A contender
    at `all` or at a range of versions counts as every contender that it stands for.
    `priority`: 1 runs first, 9 last. `timeout_s` is per cell, compile included; `deadline_s` counts
    from submission and ends what is still queued.

    A job of kind `compare` has two contenders, the base and then the candidate. It goes on from
    `processes` to at most `max_processes` until there is a verdict; no stored result answers it.

    A job of kind `train` trains a small model with each contender, as `training` says; the first is
    the reference. Of the other fields it has `accelerator`, `priority`, `deadline_s` and `labels`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: JobKind = JobKind.BENCHMARK
    contenders: Annotated[list[Contender], Field(min_length=1, max_length=200)]
    shapes: Annotated[list[ShapeSpec], Field(max_length=1000, validate_default=True)] = []
    sweep: Sweep = Sweep()
    dtypes: Annotated[list[Dtype], Field(min_length=1, max_length=4)] = [Dtype.BFLOAT16]
    passes: Annotated[list[Pass], Field(min_length=1, max_length=3)] = [Pass.FORWARD_BACKWARD]
    recipes: Annotated[list[Recipe], Field(min_length=1, max_length=5)] = [Recipe.NORMAL]
    options: CaseOptions = CaseOptions()
    baseline: Contender = Contender(kernel="torch-naive")
    accelerator: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$", max_length=40)] = "any"
    processes: Annotated[int, Field(ge=1, le=24)] = 3
    max_processes: Annotated[int, Field(ge=FEWEST_COMPARED, le=MOST_COMPARED)] = MOST_COMPARED
    priority: Annotated[int, Field(ge=1, le=9)] = 5
    timeout_s: Annotated[float, Field(gt=0, le=7200)] = 600.0
    deadline_s: Annotated[float | None, Field(gt=0, le=30 * 86400)] = None
    reuse: bool = True
    labels: Annotated[dict[LabelName, Label], Field(max_length=20)] = {}
    training: Annotated[TrainingSpec | None, Field(validate_default=True)] = None
    """Of a job of kind `train`; null takes the defaults."""

    @field_validator("shapes")
    @classmethod
    def _some_shapes(cls, shapes: list[ShapeSpec], info: ValidationInfo) -> list[ShapeSpec]:
        if info.data.get("kind") is not JobKind.TRAIN and not shapes:
            raise PydanticCustomError("missing", "Field required: name at least one shape")
        return shapes

    @field_validator(*BENCHMARKED)
    @classmethod
    def _not_of_training(cls, value: Any, info: ValidationInfo) -> Any:
        name = str(info.field_name)
        usual = cls.model_fields[name].default
        if info.data.get("kind") is JobKind.TRAIN and value != usual:
            raise ValueError(f"a job of kind train has no {name}; `training` says what is trained")
        return value

    @field_validator("training")
    @classmethod
    def _training_fits(
        cls, training: TrainingSpec | None, info: ValidationInfo
    ) -> TrainingSpec | None:
        if info.data.get("kind") is JobKind.TRAIN:
            return training or TrainingSpec()
        if training is not None:
            raise ValueError("only a job of kind train has training; say kind: train")
        return None

    @field_validator("max_processes")
    @classmethod
    def _most_fits(cls, most: int, info: ValidationInfo) -> int:
        kind, processes = info.data.get("kind"), info.data.get("processes", 0)
        if kind is JobKind.BENCHMARK and most != MOST_COMPARED:
            raise ValueError("only a job of kind compare has max_processes; use processes")
        if most < processes:
            raise ValueError(f"max_processes is {most}, less than processes, {processes}")
        return most

    @property
    def is_training(self) -> bool:
        """Whether models are trained with its contenders."""
        return self.kind is JobKind.TRAIN

    @property
    def is_comparison(self) -> bool:
        """Whether its two contenders are measured until there is a verdict."""
        return self.kind is JobKind.COMPARE

    @property
    def least_processes(self) -> int:
        """Processes that every cell is measured in, whatever they show."""
        return max(self.processes, FEWEST_COMPARED) if self.is_comparison else self.processes

    @classmethod
    def example(cls) -> dict[str, Any]:
        """A small valid body, shown in the API docs and the job form."""
        return {
            "contenders": ["flce", "liger@0.8.5"],
            "shapes": [{"tokens": 8192, "hidden": 4096, "vocab": 128256}],
            "passes": ["forward_backward"],
        }


LevelName = Literal["debug", "info", "warning", "error"]
