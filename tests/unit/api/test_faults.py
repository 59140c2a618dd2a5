"""Pydantic's errors as faults: pointers without branch names, one sentence each."""

from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field

from lossbench.service.api.documents import parse_document, read_model
from lossbench.service.api.errors import UnsupportedMediaTypeError
from lossbench.service.api.faults import faults_of, pointer
from lossbench.service.contract.errors import InvalidRequestError


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")

    low: int
    kind: Literal["near", "far"] = "near"


class Outer(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    size: Annotated[int, Field(ge=1)] | Inner
    names: dict[Annotated[str, Field(pattern="^[a-z]+$")], int] = {}
    pass_: Annotated[int, Field(alias="pass")] = 0


def faults(data: object) -> list[tuple[str, str]]:
    with pytest.raises(InvalidRequestError) as caught:
        read_model(Outer, data)
    return [(fault.pointer, fault.message) for fault in caught.value.faults]


def test_union_with_a_scalar_value_gives_one_fault_for_all_branches() -> None:
    assert faults({"size": "x"}) == [("/size", "must be a whole number or an object")]


def test_union_with_an_object_gives_only_the_fault_inside() -> None:
    assert faults({"size": {"lo": 1}}) == [
        ("/size/low", "this field is required"),
        ("/size/lo", "there is no field 'lo' (did you mean 'low'?). Known: low, kind"),
    ]


def test_union_with_a_number_out_of_range_says_the_range() -> None:
    assert faults({"size": 0}) == [("/size", "Input should be greater than or equal to 1")]


def test_bad_key_of_an_object_is_named_by_its_pointer() -> None:
    found = faults({"size": 1, "names": {"A/b": 1}})
    assert found[0][0] == "/names/A~1b"


def test_field_with_alias_is_named_as_it_is_sent() -> None:
    assert faults({"size": 1, "pass": "x"}) == [("/pass", "must be a whole number")]
    assert faults({"size": 1, "pas": 1})[0][1].startswith(
        "there is no field 'pas' (did you mean 'pass'?)"
    )


def test_word_near_a_valid_one_names_it() -> None:
    assert "did you mean 'near'" in faults({"size": {"low": 1, "kind": "neer"}})[0][1]


def test_faults_without_model_keep_the_whole_path() -> None:
    error = {"type": "int_parsing", "loc": ("query", "limit"), "msg": "x", "input": "y"}
    assert faults_of([error])[0].pointer == "/query/limit"


def test_many_faults_are_cut_and_long_ones_shortened() -> None:
    error = {"type": "value_error", "msg": "x" * 10_000, "input": 1}
    found = faults_of([{**error, "loc": (index,)} for index in range(1000)])
    assert len(found) == 100
    assert len(found[0].message) == 600


def test_pointer_escapes_what_rfc_6901_escapes() -> None:
    assert pointer(["a~b", "c/d", 0]) == "/a~0b/c~1d/0"


@pytest.mark.parametrize("kind", ["", "application/json; charset=utf-8", "application/x+json"])
def test_document_of_a_json_type_is_read(kind: str) -> None:
    assert parse_document(b'{"a": 1}', kind) == {"a": 1}


def test_document_of_another_type_is_refused() -> None:
    with pytest.raises(UnsupportedMediaTypeError):
        parse_document(b"a", "text/plain")
