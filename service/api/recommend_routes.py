"""GET /recommend: which contender to use for a model's loss on a GPU."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Query
from pydantic import BeforeValidator, ConfigDict, Field, ValidationError
from sqlalchemy.orm import Session
from starlette.requests import Request
from starlette.responses import Response

from ..contract.case import MAX_HIDDEN, MAX_TOKENS, MAX_VOCAB, Case, CaseOptions
from ..contract.catalogue import Catalogue
from ..contract.errors import Fault, InvalidRequestError, UnknownNameError
from ..contract.plan import nearest
from ..contract.sizes import parse_size
from ..contract.words import Dtype, Grade, Outcome, Pass, Recipe
from ..plots import text
from ..store.aggregates import (
    Brief,
    NewestKey,
    briefs_of,
    device_names,
    newest_keys,
    worst_errors,
)
from ..store.comparisons import HeadToHead, head_to_head
from ..store.results import ResultFilter
from .answers import tagged
from .dependencies import READING, Context
from .problems import problem_docs
from .recommend_records import Choice, Evidence, Recommendation
from .recommendation import (
    MOST_EVIDENCE,
    Candidate,
    Wish,
    choice,
    decide,
    evidence,
    measure_command,
    nearest_cases,
    not_measured,
    shape_note,
    split,
)
from .result_routes import Text

router = APIRouter(prefix="/api/v1", dependencies=READING, tags=["recommend"])

MOST_TRIED = 5
"""Nearest shapes looked at for one with a time that counts."""


class RecommendQuery(CaseOptions):
    """The loss to train with, the device, and what must not be exceeded."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    model: Annotated[Text | None, Field(description="A model preset, such as llama-3-8b.")] = None
    hidden: Annotated[int | None, Field(ge=1, le=MAX_HIDDEN)] = None
    vocab: Annotated[int | None, Field(ge=2, le=MAX_VOCAB)] = None
    tokens: Annotated[int, Field(ge=1, le=MAX_TOKENS, description="Batch x sequence.")]
    gpu: Annotated[
        Text | None, Field(description="Name of the device, or a part that only one has.")
    ] = None
    dtype: Dtype = Dtype.BFLOAT16
    pass_: Annotated[Pass, Field(alias="pass")] = Pass.FORWARD_BACKWARD
    recipe: Recipe = Recipe.NORMAL
    max_workspace: Annotated[
        int | None,
        BeforeValidator(parse_size),
        Field(ge=0, le=2**53, description="Most workspace: bytes, or a size such as 2GiB."),
    ] = None
    max_error_grade: Annotated[Grade, Field(description="Worst error grade taken.")] = Grade.FAIR


@router.get("/recommend", response_model=Recommendation, responses=problem_docs())
def get_recommendation(
    request: Request, query: Annotated[RecommendQuery, Query()], context: Context
) -> Response:
    """The fastest measured contender that is exact enough and fits, the runner-up, and why.

    A shape that was not measured is answered with the nearest that was, named as such.
    """
    catalogue = context.catalogue
    wish = wish_of(query, catalogue)
    with context.database.reading() as session:
        return tagged(request, recommend(session, catalogue, wish, query.gpu))


def wish_of(query: RecommendQuery, catalogue: Catalogue) -> Wish:
    """The query with its model resolved. Raises InvalidRequestError, UnknownNameError."""
    hidden, vocab, carried = query.hidden, query.vocab, dict[str, Any]()
    if query.model is not None:
        if hidden is not None or vocab is not None:
            message = "give either model, or hidden and vocab"
            raise InvalidRequestError([Fault("/query/model", "two_shapes", message)])
        preset = catalogue.presets.get(query.model)
        if preset is None:
            known = ", ".join(sorted(catalogue.presets))
            hint = nearest(query.model, catalogue.presets)
            message = f"there is no model {query.model!r}{hint}. Known: {known}"
            raise UnknownNameError([Fault("/query/model", "unknown_model", message)])
        hidden, vocab, carried = preset.hidden, preset.vocab, preset.options
    if hidden is None or vocab is None:
        message = "a shape needs model, or hidden and vocab"
        raise InvalidRequestError([Fault("/query/model", "no_shape", message)])
    own = query.model_dump(include=set(CaseOptions.model_fields), exclude_unset=True)
    try:
        case = Case(
            tokens=query.tokens,
            hidden=hidden,
            vocab=vocab,
            dtype=query.dtype,
            options=CaseOptions(**{**carried, **own}),
            recipe=query.recipe,
        )
    except ValidationError as error:
        message = error.errors()[0]["msg"]
        raise InvalidRequestError([Fault("/query", "bad_case", message)]) from error
    return Wish(case, query.pass_, query.max_error_grade, query.max_workspace)


def _device(session: Session, asked: str | None) -> str | None:
    """The device meant; None where nothing was measured yet. Raises UnknownNameError."""
    names = device_names(session)
    if not names or (asked is None and len(names) == 1):
        return names[0] if names else None
    listed = ", ".join(names)
    if asked is None:
        message = f"results are of several devices; give gpu. Known: {listed}"
        raise InvalidRequestError([Fault("/query/gpu", "several_devices", message)])
    fitting = [name for name in names if asked.lower() in name.lower()]
    if asked in names or len(fitting) == 1:
        return asked if asked in names else fitting[0]
    if fitting:
        message = f"{asked!r} is a part of several devices: {', '.join(fitting)}"
        raise InvalidRequestError([Fault("/query/gpu", "several_devices", message)])
    message = f"nothing was measured on {asked!r}{nearest(asked, names)}. Known: {listed}"
    raise UnknownNameError([Fault("/query/gpu", "unknown_gpu", message)])


@dataclass(frozen=True)
class _Found:
    """Results of one case; `note` where it is not the case asked for."""

    case: str | None
    rows: Sequence[Brief]
    note: str | None


def _rows(session: Session, wish: Wish, device: str) -> _Found:
    """Results of the case, or of the nearest measured one."""
    case = wish.case
    wanted = ResultFilter(gpu=[device], pass_=[wish.pass_.value], recipe=[case.recipe.value])

    def read(**more: Any) -> list[NewestKey]:
        return newest_keys(session, wanted.model_copy(update=more)).keys

    here = read(case=[case.text])
    if here:
        return _Found(case.text, briefs_of(session, [key.id for key in here]), None)
    timed: dict[str, Any] = {"dtype": [case.dtype.value], "outcome": [Outcome.OK.value]}
    for more in ({"hidden": [case.hidden], "vocab": [case.vocab]}, dict[str, Any]()):
        for other in nearest_cases(case, read(**timed, **more))[:MOST_TRIED]:
            rows = briefs_of(session, [key.id for key in read(case=[other])])
            if any(row.may_win for row in rows):
                return _Found(other, rows, shape_note(case, rows[0]))
    note = f"{case.text} is not measured here, nor is any other shape with these options"
    return _Found(None, [], note)


def recommend(
    session: Session, catalogue: Catalogue, wish: Wish, gpu: str | None
) -> Recommendation:
    """What to use, and everything that it rests on. Raises UnknownNameError for a device."""
    device = _device(session, gpu)
    found = _Found(None, [], "nothing was measured yet")
    if device is not None:
        found = _rows(session, wish, device)
    counted, left_out = split(found.rows, wish)
    pair = _settled(session, counted)
    first_two = [each for each in (pair.first, pair.second) if each is not None]
    shown = counted[:MOST_EVIDENCE]
    worst = worst_errors(session, [each.row.id for each in (*shown, *first_two)])
    listed = [evidence(each, worst.get(each.row.id)) for each in shown]
    exact = found.case == wish.case.text
    missing = not_measured(found.rows if exact else (), wish, catalogue)
    choices = [
        choice(evidence(each, worst.get(each.row.id)), wish, catalogue) for each in first_two
    ]
    rest: dict[str, Any] = {"pass": wish.pass_}
    return Recommendation(
        asked_case=wish.case.text,
        case=found.case,
        exact=exact,
        shape_note=found.note,
        device_name=device,
        sentence=_sentence(choices, pair.told_apart, found, device),
        use=choices[0] if choices else None,
        runner_up=choices[1] if len(choices) > 1 else None,
        told_apart=pair.told_apart,
        comparison_id=pair.meeting.id if pair.meeting else None,
        evidence=tuple(listed),
        evidence_total=len(counted),
        left_out=tuple(left_out[:MOST_EVIDENCE]),
        left_out_total=len(left_out),
        not_measured=tuple(missing),
        measure_command=measure_command(missing, wish, exact),
        **rest,
    )


class _Pair(NamedTuple):
    """The contender to use, its runner-up, and whether they are told apart."""

    first: Candidate | None = None
    second: Candidate | None = None
    told_apart: bool | None = None
    meeting: HeadToHead | None = None


def _settled(session: Session, counted: Sequence[Candidate]) -> _Pair:
    """The first two by ratio, settled head to head where they met; then the next other kernel.

    The runner-up is of another kernel where one counts: a neighbouring release is no alternative.
    """
    if not counted:
        return _Pair()
    first, *rest = counted
    if rest and rest[0].row.kernel == first.row.kernel:
        pair = _met(session, first, rest[0])
        first, rest = pair.first or first, [pair.second or rest[0], *rest[1:]]
    other = next((each for each in rest if each.row.kernel != first.row.kernel), None)
    second = other or (rest[0] if rest else None)
    return _met(session, first, second) if second else _Pair(first)


def _met(session: Session, first: Candidate, second: Candidate) -> _Pair:
    meeting = _meeting(session, first.row, second.row)
    swap, told_apart = decide(first, second, meeting)
    return _Pair(*((second, first) if swap else (first, second)), told_apart, meeting)


def _meeting(session: Session, first: Brief, second: Brief) -> HeadToHead | None:
    """The newest comparison of the two on the hardware of both; the first is its base."""
    # an environment's id is its hardware fingerprint, a dash, its software fingerprint
    hardware = first.environment_id.rpartition("-")[0]
    if second.environment_id.rpartition("-")[0] != hardware:
        return None
    met = head_to_head(session, first.contender, second.contender, ResultFilter())
    return met.get((first.case, first.pass_, hardware))


def _sentence(
    choices: Sequence[Choice], told_apart: bool | None, found: _Found, device: str | None
) -> str:
    """The answer in one line."""
    if not choices:
        if not found.rows:
            return f"No recommendation: {found.note}."
        more = f" {found.note}." if found.note else ""
        return f"No recommendation: no measured contender fits.{more}"
    line = f"Use {_words(choices[0])} on {device}"
    if len(choices) > 1:
        apart = {True: "slower", False: "not told apart from it", None: "without intervals"}
        line += f"; runner-up {_words(choices[1])}, {apart[told_apart]}"
    return f"{line}. {found.note}." if found.note else f"{line}."


def _words(shown: Evidence) -> str:
    bounds = ""
    if shown.ratio_low is not None and shown.ratio_low != shown.ratio_high:
        bounds = f", 95 % {text.interval(shown.ratio_low, shown.ratio_high)}"
    against = f"{text.ratio(shown.ratio_to_baseline)} the time of {shown.baseline}{bounds}"
    if shown.contender.partition("@")[0] == shown.baseline:
        against = "the baseline itself"
    workspace = text.in_bytes(shown.workspace_bytes)
    return f"{shown.contender} ({against}; workspace {workspace}; error {shown.grade})"
