"""Routes of results: list, read, samples, invalidate. Comparisons and plots share the filters."""

import json
import math
from collections.abc import Mapping
from typing import Annotated, Any, Union

from fastapi import APIRouter, Depends, Path, Query
from pydantic import AfterValidator, BaseModel, Field, WithJsonSchema
from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response

from ..contract.errors import ConflictError, Fault, InvalidRequestError
from ..contract.plan import nearest
from ..contract.result import Result
from ..contract.words import Dtype, Outcome, Pass, Recipe
from ..store.alerts import drop_result
from ..store.job_results import RESULT_FIELDS, result_fields
from ..store.result_ids import SORTABLE, Order, Place, page_ids
from ..store.results import ResultFilter, get_run, get_samples, invalidate_run
from ..store.views import result_view
from .answers import IMMUTABLE, tagged, tagged_bytes
from .dependencies import READING, Admin, Context
from .documents import Body, body_docs, body_of
from .nvbench import nvbench_document
from .paging import MOST_VALUES, Page, PageQuery, cut_page, decode_cursor, encode_cursor, next_link
from .problems import problem_docs
from .records import Moment, ResultPart, ResultPatch, Samples, SampleView

router = APIRouter(prefix="/api/v1", dependencies=READING, tags=["results"])

MOST_INT = 2**53

Text = Annotated[str, Field(max_length=400)]
Whole = Annotated[int, Field(ge=0, le=MOST_INT)]
Few = Field(max_length=MOST_VALUES)
OnlyImported = Annotated[
    bool | None, Field(description="Only imported results, or only measured ones.")
]
ResultId = Annotated[str, Path(description="Id of a result.", max_length=64)]


def _label(value: str) -> str:
    if not value.partition("=")[1]:
        raise ValueError("a label is written name=value")
    return value


class Filters(BaseModel):
    """Filters over results. Repeated values are alternatives; different filters narrow together."""

    model_config = PageQuery.model_config

    kernel: Annotated[list[Text], Few] = []
    version: Annotated[list[Text], Few] = []
    params: Annotated[list[Text], Few] = []
    contender: Annotated[list[Text], Few] = []
    case: Annotated[list[Text], Few] = []
    tokens: Annotated[list[Whole], Few] = []
    hidden: Annotated[list[Whole], Few] = []
    vocab: Annotated[list[Whole], Few] = []
    dtype: Annotated[list[Dtype], Few] = []
    pass_: Annotated[list[Pass], Field(alias="pass", max_length=MOST_VALUES)] = []
    recipe: Annotated[list[Recipe], Few] = []
    outcome: Annotated[list[Outcome], Few] = []
    gpu: Annotated[list[Text], Few] = []
    job: Annotated[list[Text], Few] = []
    label: Annotated[list[Annotated[Text, AfterValidator(_label)]], Few] = []
    since: Moment | None = None
    until: Moment | None = None
    tokens_gte: Whole | None = None
    tokens_lte: Whole | None = None
    hidden_gte: Whole | None = None
    hidden_lte: Whole | None = None
    vocab_gte: Whole | None = None
    vocab_lte: Whole | None = None
    include_invalid: bool = False

    def wanted(self) -> ResultFilter:
        """The store's form of these filters."""
        return ResultFilter.model_validate(
            self.model_dump(include=set(ResultFilter.model_fields), by_alias=False)
        )


def _field(value: str) -> str:
    if value not in RESULT_FIELDS:
        known = ", ".join(RESULT_FIELDS)
        raise ValueError(f"no field {value!r}{nearest(value, RESULT_FIELDS)}. Known: {known}")
    return value


RESULT_PAGES: Any = Union[Page[Result], Page.__class_getitem__(ResultPart)]  # noqa: UP007
"""Whole results, or parts where `fields` are asked for."""
FieldName = Annotated[
    str,
    AfterValidator(_field),
    WithJsonSchema({"type": "string", "enum": list(RESULT_FIELDS)}),
]


class FilterQuery(Filters, PageQuery):
    """Filters over results, and the page."""


class ResultQuery(FilterQuery):
    """Filters over results, their order and the page."""

    sort: Annotated[
        str | None,
        Field(max_length=40, description="A column, with `-` before it from high to low."),
    ] = None
    imported: OnlyImported = None
    fields: Annotated[
        list[FieldName],
        Field(max_length=MOST_VALUES, description="Only these fields, and `id`; repeatable."),
    ] = []

    def order(self) -> Order:
        """The order asked for; newest first by default. Raises InvalidRequestError."""
        if self.sort is None:
            return Order()
        name, descending = self.sort.removeprefix("-"), self.sort.startswith("-")
        if name == "created_at":
            return Order(None, descending)
        if name not in SORTABLE:
            known = [*SORTABLE, "created_at"]
            message = f"cannot sort by {name!r}{nearest(name, known)}. Known: {', '.join(known)}"
            raise InvalidRequestError([Fault("/query/sort", "unknown_column", message)])
        return Order(name, descending)


def _place_text(order: Order, sort: str, fields: Mapping[str, Any]) -> str:
    value = fields[order.column] if order.column else None
    return encode_cursor("results", sort, value, fields["id"])


def _place(query: ResultQuery) -> Place | None:
    if query.cursor is None:
        return None
    parts = decode_cursor("results", query.cursor, [str, (int, float, type(None)), str])
    if parts[0] != (query.sort or "") or (isinstance(parts[1], float) and math.isnan(parts[1])):
        fault = Fault("/query/cursor", "bad_cursor", "this cursor belongs to another order")
        raise InvalidRequestError([fault])
    return Place(parts[1], parts[2])


@router.get(
    "/results",
    response_model=RESULT_PAGES,
    responses=problem_docs(),
)
def get_results(
    request: Request, query: Annotated[ResultQuery, Query()], context: Context
) -> Response:
    """Results that match all filters, newest first unless `sort` says otherwise."""
    order = query.order()
    # the column of the order makes the cursor, whether it is asked for or not
    read = {*query.fields, order.column or "id"} if query.fields else ()
    with context.database.reading() as session:
        ids = page_ids(session, query.wanted(), order, _place(query), query.limit + 1)
        found = result_fields(session, ids, read)
    shown, cursor = cut_page(
        [found[run_id] for run_id in ids if run_id in found],
        query.limit,
        lambda fields: _place_text(order, query.sort or "", fields),
    )
    headers = {"Link": next_link(request, cursor)} if cursor else {}
    if query.fields and order.column not in (None, *query.fields):
        shown = [{k: v for k, v in each.items() if k != order.column} for each in shown]
    # the fields of a thousand `Result`s come from columns that were checked when they were stored
    body = to_json({"items": shown, "next_cursor": cursor})
    return tagged_bytes(request, body, headers=headers)


@router.get("/results/{result_id}", response_model=Result, responses=problem_docs(404))
def get_result(result_id: ResultId, request: Request, context: Context) -> Response:
    """One result. Numbers that could not be taken are null; `reason` says why."""
    with context.database.reading() as session:
        view = result_view(get_run(session, result_id))
    return tagged(request, view)


@router.get("/results/{result_id}/samples", response_model=Samples, responses=problem_docs(404))
def get_result_samples(result_id: ResultId, request: Request, context: Context) -> Response:
    """Raw samples of a result: contender, baseline and floor, by process. They never change."""
    with context.database.reading() as session:
        get_run(session, result_id)
        blocks = get_samples(session, result_id)
    views = tuple(SampleView.model_validate(block.model_dump()) for block in blocks)
    return tagged(request, Samples(result_id=result_id, blocks=views), IMMUTABLE)


@router.get(
    "/results/{result_id}/nvbench", response_model=dict[str, Any], responses=problem_docs(404)
)
def get_result_as_nvbench(result_id: ResultId, request: Request, context: Context) -> Response:
    """A result in the form of NVBench's JSON files: devices, axes, states with summaries."""
    with context.database.reading() as session:
        run = get_run(session, result_id)
        blocks = get_samples(session, result_id)
        place = run.environment
        found = nvbench_document(result_view(run), place.facts, place.memory_bytes, blocks)
    return tagged_bytes(request, json.dumps(found, indent=2).encode())


@router.patch(
    "/results/{result_id}",
    responses=problem_docs(404, 409, 413, 415, 429),
    openapi_extra=body_docs(ResultPatch),
)
def invalidate_result(
    result_id: ResultId,
    principal: Admin,
    body: Annotated[Body[ResultPatch], Depends(body_of(ResultPatch))],
    context: Context,
) -> Result:
    """Take a result out of use, with the reason. Nothing is deleted; alerts lose its cases."""
    with context.database.transaction() as session:
        if get_run(session, result_id).invalidated_at is not None:
            raise ConflictError(f"result {result_id} is invalidated already")
        run = invalidate_run(session, result_id, body.value.invalid_reason)
        drop_result(session, result_id)
        return result_view(run)
