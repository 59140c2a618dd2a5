"""The job form: from fields to the body that POST /jobs takes, and back from a stored request."""

import re
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from lossbench.service.contract.contender import format_value, parse_value
from lossbench.service.contract.errors import Fault, InvalidRequestError
from lossbench.service.contract.job import JobRequest, StreamSpec
from lossbench.service.contract.words import Dtype, Pass, Recipe

_SEPARATORS = re.compile(r"[\s,;×x]+")


UNSPOKEN = ("kind", "max_processes", "sweep", "timeout_s", "deadline_s", "training")


def unspoken(request: JobRequest) -> list[str]:
    """Fields of a request that differ from the default and that the form cannot carry."""
    changed = request.model_dump(exclude_defaults=True)
    lost = [name for name in UNSPOKEN if name in changed]
    if any(isinstance(spec.tokens, StreamSpec) for spec in request.shapes):
        lost.append("streams")
    pairs = {(spec.model, str(spec.tokens)) for spec in request.shapes if spec.model}
    if len(pairs) != len({model for model, _ in pairs}) * len({tokens for _, tokens in pairs}):
        # its models are crossed with all of its tokens
        lost.append("which tokens belong to which model")
    if any(name != "name" for name in request.labels):
        lost.append("labels")
    return lost


class JobForm(BaseModel):
    """The fields as the browser sends them; unticked boxes are simply missing."""

    model_config = ConfigDict(extra="ignore")

    contenders: list[str] = []
    more_contenders: str = ""
    models: list[str] = []
    tokens: str = ""
    shapes: str = ""
    dtypes: list[str] = []
    passes: list[str] = []
    recipes: list[str] = []
    options: str = ""
    processes: str = "3"
    baseline: str = "torch-naive"
    accelerator: str = "any"
    priority: str = "5"
    reuse: str = ""
    label: str = ""
    action: str = "dry_run"

    @classmethod
    def fresh(cls) -> Self:
        """What an empty form starts with."""
        return cls(
            contenders=["flce", "liger", "torch-naive"],
            models=["llama-3-8b"],
            tokens="8192",
            dtypes=[Dtype.BFLOAT16.value],
            passes=[Pass.FORWARD_BACKWARD.value],
            recipes=[Recipe.NORMAL.value],
            reuse="on",
        )

    @classmethod
    def of_request(cls, request: JobRequest) -> Self:
        """The form that repeats a request, as far as a form can say it."""
        models = [spec.model for spec in request.shapes if spec.model]
        plain = [spec for spec in request.shapes if not isinstance(spec.tokens, StreamSpec)]
        tokens = dict.fromkeys(str(spec.tokens) for spec in plain if spec.model)
        own = [f"{s.tokens} {s.hidden} {s.vocab}" for s in plain if s.model is None]
        return cls(
            more_contenders="\n".join(contender.text for contender in request.contenders),
            models=list(dict.fromkeys(models)),
            tokens=", ".join(tokens),
            shapes="\n".join(own),
            dtypes=[dtype.value for dtype in request.dtypes],
            passes=[pass_.value for pass_ in request.passes],
            recipes=[recipe.value for recipe in request.recipes],
            options="\n".join(
                f"{name}={format_value(value)}" for name, value in request.options.changed().items()
            ),
            processes=str(request.processes),
            baseline=request.baseline.text,
            accelerator=request.accelerator,
            priority=str(request.priority),
            reuse="on" if request.reuse else "",
            label=request.labels.get("name", ""),
        )

    def body(self) -> dict[str, Any]:
        """The body of POST /jobs. Raises InvalidRequestError where a field cannot be read."""
        more = [line.strip() for line in self.more_contenders.splitlines() if line.strip()]
        return {
            "contenders": list(dict.fromkeys([*self.contenders, *more])),
            "shapes": [*self._model_shapes(), *self._own_shapes()],
            "dtypes": self.dtypes,
            "passes": self.passes,
            "recipes": self.recipes,
            "options": self._options(),
            "processes": self.processes,
            "baseline": self.baseline,
            "accelerator": self.accelerator.strip() or "any",
            "priority": self.priority,
            "reuse": bool(self.reuse),
            "labels": {"name": self.label.strip()} if self.label.strip() else {},
        }

    def request(self) -> JobRequest:
        """The request of this form. Raises InvalidRequestError with one fault per field."""
        try:
            return JobRequest.model_validate(self.body())
        except ValidationError as error:
            raise InvalidRequestError(
                [
                    Fault("/" + "/".join(map(str, found["loc"])), found["type"], _message(found))
                    for found in error.errors()
                ]
            ) from error

    def _options(self) -> dict[str, Any]:
        options: dict[str, Any] = {}
        for line in filter(None, map(str.strip, self.options.splitlines())):
            name, equals, value = (part.strip() for part in line.partition("="))
            try:
                if not equals:
                    raise ValueError(f"{line!r} is not key=value, such as softcap=30")
                options[name] = parse_value(value)
            except ValueError as error:
                raise InvalidRequestError([Fault("/options", "bad_option", str(error))]) from error
        return options

    def _model_shapes(self) -> list[dict[str, Any]]:
        if not self.models:
            return []
        counts = _numbers(self.tokens, "/tokens", "token counts such as 4096, 8192")
        if not counts:
            raise InvalidRequestError(
                [Fault("/tokens", "missing", "a model needs at least one token count")]
            )
        return [{"model": model, "tokens": n} for model in self.models for n in counts]

    def _own_shapes(self) -> list[dict[str, Any]]:
        shapes: list[dict[str, Any]] = []
        for line in filter(None, map(str.strip, self.shapes.splitlines())):
            sizes = _numbers(line, "/shapes", "a shape such as 8192 4096 128256")
            if len(sizes) != 3:
                message = f"{line!r} is not a shape: write tokens hidden vocab, as 8192 4096 128256"
                raise InvalidRequestError([Fault("/shapes", "bad_shape", message)])
            shapes.append(dict(zip(("tokens", "hidden", "vocab"), sizes, strict=True)))
        return shapes


def _numbers(text: str, pointer: str, wanted: str) -> list[int]:
    parts = [part for part in _SEPARATORS.split(text.strip()) if part]
    if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        raise InvalidRequestError([Fault(pointer, "bad_number", f"{text!r} is not {wanted}")])
    return [int(part) for part in parts]


def _message(found: Any) -> str:
    names = {"contenders": "choose at least one contender", "shapes": "name at least one shape"}
    field = str(found["loc"][0]) if found["loc"] else ""
    if found["type"] == "too_short":
        return names.get(field, f"choose at least one of {field}")
    return str(found["msg"]).removeprefix("Value error, ")
