"""What a job of kind `train` asks for, and the cells it is made of. The service knows no torch."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from .contender import Contender
from .run import Record
from .words import Pass

BYTES = 256
"""Vocabulary of plain bytes."""
LEAST_HASHED, MOST_VOCAB = 512, 1 << 20
MOST_STEPS = 1_000_000
MOST_SEEDS = 100
REORDERED = " (rows reordered)"
"""Behind the reference's name: its control of rounding."""


def _vocab(value: object) -> object:
    if value == "bytes":
        return BYTES
    if isinstance(value, str) and not value.isdecimal():
        raise ValueError(f"{value!r} is not a vocabulary: write bytes, or a number such as 32768")
    whole = isinstance(value, int) and not isinstance(value, bool)
    if whole and value != BYTES and not LEAST_HASHED <= int(str(value)) <= MOST_VOCAB:
        raise ValueError(
            f"{value} is not a vocabulary: write bytes, or {LEAST_HASHED} to {MOST_VOCAB} for "
            "hashed words"
        )
    return value


TextName = Literal["shakespeare", "stdlib"]


class TrainingSpec(BaseModel):
    """What is trained. The first contender of the job is the reference.

    `vocab` V: `bytes` (256), or V for words hashed to V ids. `text` is shipped with the worker; it
    reads no file that a request names. A step has `batch` sequences of `sequence` tokens. Without
    `dtype` a GPU trains in bfloat16 by autocast and a CPU in float32; without `threads` a CPU uses
    all of its own. `cast`: where the head's weight is cast. `control` trains the reference again
    with its rows reordered. `checkpoint_every` is in steps.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    size: Literal["1m", "10m", "40m", "120m", "370m"] = "1m"
    vocab: Annotated[
        int, Field(description="`bytes` (256), or 512 to 1048576."), BeforeValidator(_vocab)
    ] = BYTES
    text: Annotated[list[TextName], Field(min_length=1, max_length=2)] = ["shakespeare"]
    steps: Annotated[int, Field(ge=1, le=MOST_STEPS)] = 500
    seeds: Annotated[int, Field(ge=1, le=MOST_SEEDS)] = 5
    batch: Annotated[int, Field(ge=1, le=65_536)] = 8
    sequence: Annotated[int, Field(ge=2, le=65_536)] = 256
    dtype: Literal["float32", "bfloat16"] | None = None
    cast: Literal["outside", "inside"] = "outside"
    tied: bool = True
    control: bool = True
    learning_rate: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1e-3
    checkpoint_every: Annotated[int, Field(ge=1, le=MOST_STEPS)] = 100
    validation_tokens: Annotated[int, Field(ge=1, le=100_000_000)] = 65_536
    threads: Annotated[int | None, Field(ge=1, le=1024)] = None

    @property
    def tokens_per_step(self) -> int:
        """Tokens N that the loss sees in one step."""
        return self.batch * self.sequence

    @property
    def vocab_words(self) -> str:
        """The vocabulary as people write it."""
        return "bytes" if self.vocab == BYTES else f"V = {self.vocab}"

    @property
    def words(self) -> str:
        """The training in one line."""
        return (
            f"{self.size}, {self.vocab_words}, {self.steps} steps of {self.batch} x "
            f"{self.sequence} tokens, {' and '.join(self.text)}"
        )

    def settings(self, dtype: str, threads: int) -> dict[str, Any]:
        """The fields that training itself takes, with what the device decided."""
        own = self.model_dump(exclude={"seeds", "control"})
        return own | {"dtype": self.dtype or dtype, "threads": self.threads or threads}


class TrainingArm(Record):
    """One line of a training: a contender, or the reference with its rows reordered."""

    contender: Contender
    reordered: bool = False

    @property
    def text(self) -> str:
        """Its name in tables."""
        return self.contender.text + (REORDERED if self.reordered else "")

    def __str__(self) -> str:
        return self.text


class TrainingCase(Record):
    """What is trained under one seed."""

    training: TrainingSpec
    seed: int

    @property
    def text(self) -> str:
        """Its name in tables."""
        return f"{self.training.words}, seed {self.seed}"


class TrainingCell(Record):
    """One arm under one seed: the unit of progress and retry of a training."""

    contender: TrainingArm
    case: TrainingCase
    pass_: Pass = Pass.FORWARD_BACKWARD

    @property
    def key(self) -> str:
        """Identity of the cell over jobs; nothing stored answers it."""
        return f"{self.contender.text} | {self.case.text} | train"


def arms_of(contenders: list[Contender], control: bool) -> tuple[TrainingArm, ...]:
    """The reference, its control where there is one, then the others."""
    reference, *others = contenders
    again = [TrainingArm(contender=reference, reordered=True)] if control else []
    first = TrainingArm(contender=reference)
    return (first, *again, *(TrainingArm(contender=each) for each in others))
