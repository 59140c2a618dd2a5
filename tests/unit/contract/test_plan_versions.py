"""Planning expands `all` and ranges into exact contenders, and says what matches nothing."""

from typing import Any

import pytest

from lossbench.service.contract import plan as planning
from lossbench.service.contract.catalogue import Catalogue
from lossbench.service.contract.errors import (
    Fault,
    InvalidRequestError,
    JobTooLargeError,
    UnknownNameError,
)
from lossbench.service.contract.job import JobRequest
from lossbench.service.contract.plan import Plan, plan_job
from lossbench.service.contract.words import Outcome

ROWS = (
    {
        "name": "fused",
        "origin": "package",
        "package": "fused-loss",
        "versions": ["0.5.0", "0.5.1", "0.5.2", "0.6.0", "0.7.0"],
        "twins": {"0.5.1": "0.5.0", "0.5.2": "0.5.0"},
        "params": [{"name": "rows", "kind": "int", "default": 1, "since": "0.6.0"}],
    },
    {"name": "mine", "origin": "checkout", "versions": ["git-0123456789ab", "path-0123456789ab"]},
    {"name": "bare", "origin": "checkout"},
    {"name": "torch-naive", "origin": "built-in"},
)
CATALOGUE = Catalogue.model_validate(
    {
        "kernels": {r["name"]: {"summary": "", "dtypes": ["bfloat16"], **r} for r in ROWS},
        "presets": {},
    }
)
SHAPE = {"tokens": 8, "hidden": 4, "vocab": 16}


def plan(*contenders: str, max_cells: int = 1000, **changes: Any) -> Plan:
    body = {"contenders": list(contenders), "shapes": [SHAPE], **changes}
    return plan_job(JobRequest.model_validate(body), CATALOGUE, max_cells=max_cells)


def texts(planned: Plan) -> list[str]:
    return [contender.text for contender in planned.request.contenders]


def faults_of(*contenders: str, **changes: Any) -> tuple[Fault, ...]:
    with pytest.raises(InvalidRequestError) as caught:
        plan(*contenders, **changes)
    return caught.value.faults


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (["fused@all"], ["fused@0.5.0", "fused@0.6.0", "fused@0.7.0"]),
        (["fused@>=0.5.1,<0.7"], ["fused@0.5.1", "fused@0.6.0"]),
        (["fused@latest", "fused"], ["fused@0.7.0"]),
        # what is asked by name is measured as asked, twin or not
        (["fused@0.5.2"], ["fused@0.5.2"]),
        (["fused@0.7.0", "fused@all"], ["fused@0.7.0", "fused@0.5.0", "fused@0.6.0"]),
        (["fused@<0.6[rows=1]"], ["fused@0.5.0[rows=1]"]),
        (["mine@all"], ["mine@git-0123456789ab", "mine@path-0123456789ab"]),
        (["mine"], ["mine@path-0123456789ab"]),
        (["torch-naive@latest"], ["torch-naive"]),
    ],
)
def test_plan_of_an_expression_names_exact_contenders(asked: list[str], found: list[str]) -> None:
    planned = plan(*asked)
    assert texts(planned) == found
    assert [cell.cell.contender.text for cell in planned.cells] == found
    assert [contender.text for contender in planned.lots[0].cases[0].contenders] == found


def test_plan_of_a_planned_request_stays_the_same() -> None:
    planned = plan("fused@all")
    again = JobRequest.model_validate(planned.request.model_dump(mode="json"))
    assert texts(plan_job(again, CATALOGUE)) == texts(planned)


def test_plan_of_a_range_without_a_release_names_it_and_what_there_is() -> None:
    (fault,) = faults_of("torch-naive", "fused@>=0.8,<0.9")
    assert (fault.pointer, fault.code) == ("/contenders/1/version", "unknown_version")
    assert fault.message == (
        "fused has no version in the range '>=0.8,<0.9'. Known: 0.7.0, 0.6.0, 0.5.2, 0.5.1, 0.5.0"
    )
    with pytest.raises(UnknownNameError):
        plan("mine@>=0")


@pytest.mark.parametrize("version", ["all", ">=2.9"])
def test_plan_of_several_versions_of_a_torch_kernel_is_one_clear_fault(version: str) -> None:
    (fault,) = faults_of(f"torch-naive@{version}")
    assert (fault.pointer, fault.code) == ("/contenders/0/version", "no_versions")
    assert f"torch's version, so '{version}' stands for nothing; write torch-naive" in fault.message


def test_plan_of_several_versions_of_a_checkout_that_nobody_offers_is_one_clear_fault() -> None:
    (fault,) = faults_of("bare@all")
    assert fault.message.startswith("no live worker offers files of bare, so 'all' stands for")
    assert texts(plan("bare@latest")) == ["bare"]


@pytest.mark.parametrize("version", ["all", ">=2.9"])
def test_plan_with_a_baseline_of_several_versions_is_refused(version: str) -> None:
    found = faults_of("fused", baseline=f"torch-naive@{version}")
    assert [(fault.pointer, fault.code) for fault in found] == [
        ("/baseline/version", "several_versions")
    ]
    assert "here one is needed, such as torch-naive" in found[0].message


def test_plan_with_a_checkout_as_baseline_is_refused() -> None:
    (fault,) = faults_of("fused", baseline="mine")
    assert (fault.code, "mine is a checkout" in fault.message) == ("baseline_not_built_in", True)


def test_plan_of_an_expression_counts_the_cells_of_every_release() -> None:
    assert len(plan("fused@all", max_cells=3).cells) == 3
    with pytest.raises(JobTooLargeError, match="3 cells"):
        plan("fused@all", max_cells=2)
    dims = list(range(2, 22))
    with pytest.raises(JobTooLargeError, match="24000 cells"):
        plan("fused@all", sweep={"tokens": dims, "hidden": dims, "vocab": dims})


def test_plan_of_more_contenders_than_a_job_may_have_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A stored request must be one that can be read again."""
    monkeypatch.setattr(planning, "MOST_CONTENDERS", 2)
    with pytest.raises(JobTooLargeError, match="are 3 contenders; at most 2"):
        plan("fused@all")


def test_plan_of_a_param_that_came_later_refuses_the_cells_before_it() -> None:
    planned = plan("fused@all[rows=2]")
    found = {cell.cell.contender.version: cell.reason for cell in planned.cells}
    came = "fused@0.5.0[rows=2] has no param rows; it came with 0.6.0"
    assert found == {"0.5.0": came, "0.6.0": None, "0.7.0": None}
    assert planned.cells[0].outcome is Outcome.UNSUPPORTED
    assert all(cell.outcome is None for cell in plan("fused@all[rows=1]").cells)
