"""What a training run is told and what it tells: plain dataclasses, JSON both ways. No torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, Self

from .sizes import shape_of

Cast = Literal["inside", "outside"]
Outcome = Literal["ok", "diverged"]
BYTES = 256
"""Vocabulary of plain bytes."""
LEAST_HASHED = 512
SHAKESPEARE, STDLIB = TEXTS = ("shakespeare", "stdlib")
MOST_VOCAB = 1 << 20


def plain(value: Any) -> Any:
    """The JSON form: a number that is not finite becomes None."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@dataclass(frozen=True)
class TrainingSettings:
    """Everything but contender and seed; runs of equal settings may be compared.

    `size` is a preset of `sizes.SIZES`; `vocab` V is 256 for bytes, else words hashed to V ids;
    `text` names what is read; `batch` sequences of `sequence` tokens a step; `dtype` "float32", or
    "bfloat16" by autocast; `cast` says who casts the head's weight to it: the contender ("inside")
    or the model before the call ("outside"); `threads` are those of the CPU; a checkpoint every
    `checkpoint_every` steps.

    Raises: ValueError naming the field and the value it got.
    """

    size: str = "1m"
    vocab: int = BYTES
    text: tuple[str, ...] = ("shakespeare",)
    steps: int = 500
    batch: int = 8
    sequence: int = 256
    dtype: str = "float32"
    cast: Cast = "outside"
    tied: bool = True
    learning_rate: float = 1e-3
    threads: int = 1
    checkpoint_every: int = 100
    validation_tokens: int = 65_536

    def __post_init__(self) -> None:
        shape_of(self.size)
        for name, least in (
            ("steps", 1),
            ("batch", 1),
            ("sequence", 2),
            ("threads", 1),
            ("checkpoint_every", 1),
            ("validation_tokens", 1),
        ):
            if getattr(self, name) < least:
                raise ValueError(f"{name}={getattr(self, name)}: must be >= {least}")
        if self.vocab != BYTES and not LEAST_HASHED <= self.vocab <= MOST_VOCAB:
            raise ValueError(
                f"vocab={self.vocab}: must be {BYTES} for bytes, or {LEAST_HASHED} to {MOST_VOCAB} "
                "for hashed words"
            )
        for name, choices in (
            ("dtype", ("float32", "bfloat16")),
            ("cast", ("inside", "outside")),
        ):
            if getattr(self, name) not in choices:
                raise ValueError(f"{name}={getattr(self, name)!r}: must be one of {choices}")
        if not 0.0 < self.learning_rate < math.inf:
            raise ValueError(f"learning_rate={self.learning_rate}: must be positive and finite")
        if not self.text:
            raise ValueError("text=(): must name at least one text")

    @property
    def warm_up_steps(self) -> int:
        """First steps, whose times do not count."""
        return min(50, self.steps // 5)

    @property
    def tokens_per_step(self) -> int:
        """Tokens N that the loss sees in one step."""
        return self.batch * self.sequence

    def as_json(self) -> dict[str, Any]:
        """JSON form; `from_json` gives equal settings."""
        return {**asdict(self), "text": list(self.text)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Settings of their JSON form. Raises ValueError, TypeError for another form."""
        return cls(**{**data, "text": tuple(data["text"])})


@dataclass(frozen=True)
class StepRecord:
    """One optimiser step, the first is 1.

    `loss` in nats a token, before the update; `gradient_norm` L2 over all parameters, before
    clipping; `nonfinite` counts parameters whose gradient has a NaN or an infinity; times in ms:
    the whole step, and of it the loss forward and backward, the head's products included.
    """

    step: int
    loss: float
    gradient_norm: float
    nonfinite: int
    step_ms: float
    loss_ms: float

    def as_json(self) -> dict[str, Any]:
        """JSON form: NaN and infinity are None."""
        found: dict[str, Any] = plain(asdict(self))
        return found

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """A step of its JSON form: None is NaN."""
        known: dict[str, Any] = {k: math.nan if v is None else v for k, v in data.items()}
        return cls(**known)


@dataclass(frozen=True)
class RunRecord:
    """One finished run: a contender (`arm`) and a seed.

    `outcome` "diverged": a loss was not finite and the run ended there, at `steps`. tokens_per_s is
    the median after warm-up; loss_share in [0, 1] is the loss's share of those steps' time; peak
    and workspace bytes are None without CUDA (workspace: most that the loss takes beyond what it
    leaves); validation_loss in nats a token, by torch's loss in float32 for every contender.
    """

    arm: str
    seed: int
    outcome: Outcome
    steps: int
    parameters: int
    tokens_per_s: float | None
    loss_share: float | None
    peak_bytes: int | None
    workspace_bytes: int | None
    nonfinite_steps: int
    validation_loss: float | None
    perplexity: float | None
    final_loss: float | None
    resumed: int = 0
    facts: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """JSON form; `from_json` gives an equal record."""
        found: dict[str, Any] = plain(asdict(self))
        return found

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """A record of its JSON form; fields that this version does not know are left out."""
        known = {each.name for each in fields(cls)}
        return cls(**{key: item for key, item in data.items() if key in known})
