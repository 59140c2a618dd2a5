"""plan_job checks every name of a request: one fault each, with pointer and nearest name."""

from typing import Any

import pytest

from lossbench.service.contract.catalogue import load_catalogue
from lossbench.service.contract.contender import Contender
from lossbench.service.contract.errors import (
    Fault,
    InvalidRequestError,
    JobTooLargeError,
    UnknownNameError,
)
from lossbench.service.contract.job import JobRequest
from lossbench.service.contract.plan import Plan, plan_job

CATALOGUE = load_catalogue()
LIGER = CATALOGUE.kernels["liger"].latest
SHAPE = {"tokens": 8, "hidden": 4, "vocab": 16}


def request(**changes: Any) -> JobRequest:
    return JobRequest.model_validate({"contenders": ["flce"], "shapes": [SHAPE], **changes})


def plan(**changes: Any) -> Plan:
    return plan_job(request(**changes), CATALOGUE)


def faults_of(**changes: Any) -> tuple[Fault, ...]:
    with pytest.raises(InvalidRequestError) as caught:
        plan(**changes)
    return caught.value.faults


@pytest.mark.parametrize(
    ("changes", "pointer", "code", "hint"),
    [
        ({"contenders": ["flec"]}, "/contenders/0/kernel", "unknown_kernel", "'flce'"),
        ({"contenders": ["flce", "ligre"]}, "/contenders/1/kernel", "unknown_kernel", "'liger'"),
        (
            {"contenders": ["liger@0.8.99"]},
            "/contenders/0/version",
            "unknown_version",
            "did you mean '0.8.",
        ),
        (
            {"contenders": ["flce[chunk_row=8]"]},
            "/contenders/0/params/chunk_row",
            "unknown_param",
            "'chunk_rows'",
        ),
        (
            {"contenders": ["flce[chunk_rows=0]"]},
            "/contenders/0/params/chunk_rows",
            "bad_param",
            "1 .. ",
        ),
        (
            {"contenders": ["flce[chunk_rows=true]"]},
            "/contenders/0/params/chunk_rows",
            "bad_param",
            "of type int",
        ),
        (
            {"contenders": ["liger[accum_dtype=float64]"]},
            "/contenders/0/params/accum_dtype",
            "bad_param",
            "one of float32",
        ),
        (
            {"contenders": ["liger[chunk_mem_const=null]"]},
            "/contenders/0/params/chunk_mem_const",
            "bad_param",
            "may not be null",
        ),
        (
            {"shapes": [{"model": "gema-2-2b", "tokens": 8}]},
            "/shapes/0/model",
            "unknown_model",
            "'gemma-2-2b'",
        ),
        ({"baseline": "torch-naiv"}, "/baseline/kernel", "unknown_kernel", "'torch-naive'"),
        ({"baseline": "liger"}, "/baseline", "baseline_not_built_in", "torch-naive"),
    ],
)
def test_plan_of_bad_name_gives_one_fault_with_pointer_and_hint(
    changes: dict[str, Any], pointer: str, code: str, hint: str
) -> None:
    (fault,) = faults_of(**changes)
    assert (fault.pointer, fault.code) == (pointer, code)
    assert hint in fault.message


def test_plan_of_many_bad_names_names_all_at_once() -> None:
    found = faults_of(
        contenders=["flec", "flce[chunk_rows=0,nope=1]", "liger@9.9"],
        shapes=[SHAPE, {"model": "none-such", "tokens": 8}],
        baseline="liger",
    )
    assert [fault.pointer for fault in found] == [
        "/contenders/0/kernel",
        "/contenders/1/params/chunk_rows",
        "/contenders/1/params/nope",
        "/contenders/2/version",
        "/baseline",
        "/shapes/1/model",
    ]


def test_plan_of_only_unknown_names_raises_the_narrow_error() -> None:
    with pytest.raises(UnknownNameError):
        plan(contenders=["nope"])
    with pytest.raises(InvalidRequestError) as caught:
        plan(contenders=["nope"], baseline="liger")
    assert not isinstance(caught.value, UnknownNameError)


@pytest.mark.parametrize("written", ["liger", "liger@latest", f"liger@{LIGER}"])
def test_plan_of_liger_resolves_to_the_newest_version(written: str) -> None:
    planned = plan(contenders=[written])
    assert planned.request.contenders[0].text == f"liger@{LIGER}"
    assert planned.cells[0].cell.contender.version == LIGER


def test_plan_of_contender_whose_text_was_read_before_names_its_version() -> None:
    contender = Contender(kernel="liger")
    assert contender.text == "liger"
    planned = plan_job(request(contenders=[contender]), CATALOGUE)
    assert planned.cells[0].cell.contender.text == f"liger@{LIGER}"
    assert planned.cells[0].cell.key.startswith(f"liger@{LIGER} | ")


@pytest.mark.parametrize("written", ["torch-naive", "torch-naive@latest"])
def test_plan_of_kernel_built_into_torch_keeps_version_none(written: str) -> None:
    planned = plan(contenders=[written], baseline=written)
    assert planned.request.contenders[0].version is None
    assert planned.request.baseline.text == "torch-naive"


@pytest.mark.parametrize("dimension", ["tokens", "hidden", "vocab"])
def test_plan_of_too_many_cells_is_refused_with_the_count(dimension: str) -> None:
    many = {"sweep": {dimension: list(range(2, 103))}, "contenders": ["flce", "torch-naive"]}
    with pytest.raises(JobTooLargeError, match="202 cells"):
        plan_job(request(**many), CATALOGUE, max_cells=201)
    assert len(plan_job(request(**many), CATALOGUE, max_cells=202).cells) == 202


def test_plan_of_a_vast_sweep_is_refused_before_it_is_expanded() -> None:
    dims = list(range(2, 2002))
    with pytest.raises(JobTooLargeError, match="8000000000 cells"):
        plan(sweep={"tokens": dims, "hidden": dims, "vocab": dims})


def test_plan_of_a_sweep_that_makes_shapes_equal_counts_them_once() -> None:
    shapes = [{"tokens": n, "hidden": 4, "vocab": 16} for n in range(1, 501)]
    planned = plan_job(request(shapes=shapes, sweep={"tokens": [8]}), CATALOGUE, max_cells=1)
    assert len(planned.cells) == 1
