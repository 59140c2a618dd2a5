"""A case: one shape x dtype x options x recipe, and its text form.

`N8192-H4096-V128256-bfloat16[-key=value]...` names only what differs from the default, keys
sorted, the recipe as `recipe=trained`. A stream of token counts is written
`Nstream(first=4096,high=32768,...)`.
"""

import random
import re
from collections.abc import Iterable
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from .contender import TextForm, format_value, parse_value
from .words import Dtype, Recipe

MAX_TOKENS = 2**24
MAX_HIDDEN = 2**17
MAX_VOCAB = 2**22


class TokenStream(BaseModel):
    """A seeded, ordered list of token counts run one after the other in one process.

    Each of the `random` counts is drawn from [low, high] and moved by at most `jitter` tokens,
    so that hardly two are alike; `first` and `last` frame them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    first: Annotated[int, Field(ge=1, le=MAX_TOKENS)]
    random: Annotated[int, Field(ge=0, le=10_000)]
    low: Annotated[int, Field(ge=1, le=MAX_TOKENS)]
    high: Annotated[int, Field(ge=1, le=MAX_TOKENS)]
    jitter: Annotated[int, Field(ge=0, le=MAX_TOKENS)] = 0
    last: Annotated[int, Field(ge=1, le=MAX_TOKENS)]
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"low ({self.low}) is above high ({self.high})")
        return self

    @cached_property
    def tokens(self) -> tuple[int, ...]:
        """The counts in order; the same for the same fields on every machine."""
        source = random.Random(self.seed)
        drawn = [
            max(1, source.randint(self.low, self.high) - source.randint(0, self.jitter))
            for _ in range(self.random)
        ]
        return (self.first, *drawn, self.last)

    @property
    def text(self) -> str:
        """The text form inside a case."""
        inside = ",".join(f"{key}={value}" for key, value in sorted(self.model_dump().items()))
        return f"stream({inside})"


class CaseOptions(BaseModel):
    """What the loss is asked to do, in torch's words, and how the call is set up."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    bias: bool = False
    class_weight: bool = False
    ignore_index: Annotated[int, Field(ge=-(2**31), lt=0)] = -100
    ignored_share: Annotated[float, Field(ge=0, le=1)] = 0.0
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0
    softcap: Annotated[float | None, Field(gt=0, le=1e6)] = None
    logit_scale: Annotated[float | None, Field(gt=0, le=1e6)] = None
    lse_square_scale: Annotated[float, Field(ge=0, le=1)] = 0.0
    reduction: Literal["mean", "sum", "none"] = "mean"
    frozen: Literal["input", "weight"] | None = None
    accumulate: bool = False
    upstream: Literal["one", "random"] = "one"

    def changed(self) -> dict[str, Any]:
        """The options that differ from the default, keys sorted."""
        return dict(sorted(self.model_dump(exclude_defaults=True).items()))

    def asked(self) -> frozenset[str]:
        """Names of the kernel options that this case needs, as a kernel declares them."""
        names = {"bias", "class_weight", "label_smoothing", "softcap", "logit_scale"}
        used = {name for name in names | {"lse_square_scale"} if getattr(self, name)}
        if self.logit_scale == 1.0:
            used.discard("logit_scale")
        if self.ignored_share or self.ignore_index != -100:
            used.add("ignore_index")
        if self.reduction != "mean":
            used.add(f"reduction_{self.reduction}")
        if self.frozen:
            used.add(f"frozen_{self.frozen}")
        return frozenset(used)


_CASE = re.compile(
    r"N(?P<tokens>\d+|stream\([^)]*\))-H(?P<hidden>\d+)-V(?P<vocab>\d+)-(?P<dtype>\w+)",
    re.ASCII,
)


class Case(TextForm):
    """One shape x dtype x options x input recipe."""

    tokens: Annotated[int, Field(ge=1, le=MAX_TOKENS)] | TokenStream
    hidden: Annotated[int, Field(ge=1, le=MAX_HIDDEN)]
    vocab: Annotated[int, Field(ge=2, le=MAX_VOCAB)]
    dtype: Dtype = Dtype.BFLOAT16
    options: CaseOptions = CaseOptions()
    recipe: Recipe = Recipe.NORMAL

    @property
    def max_tokens(self) -> int:
        """The largest token count of the case."""
        return self.tokens if isinstance(self.tokens, int) else max(self.tokens.tokens)

    @cached_property
    def text(self) -> str:
        """The text form; `parse(text)` gives an equal case."""
        tokens = self.tokens if isinstance(self.tokens, int) else self.tokens.text
        extras = dict(self.options.changed())
        if self.recipe is not Recipe.NORMAL:
            extras["recipe"] = self.recipe.value
        parts = [f"N{tokens}", f"H{self.hidden}", f"V{self.vocab}", self.dtype.value]
        return "-".join(parts + [f"{key}={format_value(extras[key])}" for key in sorted(extras)])

    @classmethod
    def parse(cls, text: str) -> Self:
        """The case that a text form names. Raises ValueError."""
        head, *extras = re.split(r"-(?=[a-z_]+=)", text)
        found = _CASE.fullmatch(head)
        if not found:
            raise ValueError(f"{text!r} is not a case such as N8192-H4096-V128256-bfloat16")
        options = _pairs(extras)
        recipe = options.pop("recipe", Recipe.NORMAL.value)
        tokens: Any = found["tokens"]
        if tokens.startswith("stream("):
            tokens = _pairs(tokens[len("stream(") : -1].split(","))
        return cls.model_validate(
            {
                "tokens": tokens if isinstance(tokens, dict) else int(tokens),
                "hidden": int(found["hidden"]),
                "vocab": int(found["vocab"]),
                "dtype": found["dtype"],
                "options": options,
                "recipe": recipe,
            }
        )

    def __str__(self) -> str:
        return self.text

    def __hash__(self) -> int:
        return hash(self.text)


def _pairs(items: Iterable[str]) -> dict[str, Any]:
    pairs: dict[str, Any] = {}
    for item in items:
        key, _, value = item.partition("=")
        if key in pairs:
            raise ValueError(f"{key!r} is given twice")
        pairs[key] = parse_value(value)
    return pairs
