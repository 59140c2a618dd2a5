"""plan_job for jobs of kind compare: two contenders, refused together, estimates of both ends."""

from typing import Any

import pytest

from lossbench.service.contract.catalogue import load_catalogue
from lossbench.service.contract.errors import InvalidRequestError
from lossbench.service.contract.job import JobRequest
from lossbench.service.contract.plan import Plan, plan_job
from lossbench.service.contract.words import Outcome

CATALOGUE = load_catalogue()
SHAPE = {"tokens": 8, "hidden": 4, "vocab": 16}


def plan(*contenders: str, **changes: Any) -> Plan:
    body = {"kind": "compare", "contenders": contenders, "shapes": [SHAPE], **changes}
    return plan_job(JobRequest.model_validate(body), CATALOGUE)


def test_comparison_has_the_cells_of_both_sides_with_the_base_first() -> None:
    planned = plan("liger@0.8.5", "flce", passes=["forward", "forward_backward"])
    assert [cell.cell.contender.kernel for cell in planned.cells] == ["liger"] * 2 + ["flce"] * 2
    (work,) = planned.lots[0].cases
    assert work.is_comparison
    assert [each.text for each in work.contenders] == ["liger@0.8.5", "flce@1"]
    assert not plan("flce", kind="benchmark").lots[0].cases[0].is_comparison


def test_comparison_of_a_range_takes_the_two_releases_in_it() -> None:
    planned = plan("flce[chunk_rows=128]", "flce[chunk_rows=256]")
    assert len(planned.request.contenders) == 2


@pytest.mark.parametrize(
    "contenders", [["flce"], ["flce", "flce@1"], ["flce", "liger", "torch-naive"], ["liger@all"]]
)
def test_comparison_of_other_than_two_contenders_is_one_clear_fault(contenders: list[str]) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        plan(*contenders)
    (fault,) = caught.value.faults
    assert (fault.pointer, fault.code) == ("/contenders", "not_two_contenders")
    assert "takes two different contenders, the base and the candidate" in fault.message


def test_comparison_of_an_unknown_contender_names_only_that() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        plan("flce", "flce", "nonsense")
    assert [fault.code for fault in caught.value.faults] == ["unknown_kernel"]


@pytest.mark.parametrize("refused", [0, 1])
def test_side_that_is_refused_refuses_the_other_with_its_reason(refused: int) -> None:
    lacking, other = "geiping", "torch-naive"
    pair = [lacking, other] if refused == 0 else [other, lacking]
    planned = plan(*pair, options={"softcap": 30.0})
    assert {cell.outcome for cell in planned.cells} == {Outcome.UNSUPPORTED}
    reasons = {cell.cell.contender.kernel: str(cell.reason) for cell in planned.cells}
    assert "has no option softcap" in reasons[lacking]
    assert reasons[other].startswith("nothing to compare with: geiping")
    assert reasons[lacking] in reasons[other]


def test_comparison_is_estimated_from_its_first_look_to_its_last() -> None:
    few, three, all_ = (
        plan("torch-naive", "torch-upcast", **changes).cells[0]
        for changes in ({"processes": 1}, {"processes": 3}, {"processes": 24})
    )
    assert few.estimated_s == three.estimated_s < all_.estimated_s
    assert few.longest_s == three.longest_s == all_.estimated_s
    short = plan("torch-naive", "torch-upcast", max_processes=3).cells[0]
    assert short.longest_s == short.estimated_s
    assert plan("torch-naive", kind="benchmark").cells[0].longest_s is None
