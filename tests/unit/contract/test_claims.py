"""The claim files: all read, jobs valid and enough for their rules, a source for each."""

from pathlib import Path

import pytest

from lossbench.service.contract.catalogue import load_catalogue
from lossbench.service.contract.claim import FOLDER, Claim, get_claim, load_claims, read_claim
from lossbench.service.contract.claim_rule import SameTraining
from lossbench.service.contract.errors import LossbenchError, NotFoundError
from lossbench.service.contract.machine import Machine
from lossbench.service.contract.plan import plan_job

H200 = Machine(
    device_type="cuda",
    device_name="NVIDIA H200",
    memory_bytes=140 * 2**30,
    gemm_tflops=690.0,
    queues=("h200",),
)
CLAIMS = [pytest.param(claim, id=claim.id) for claim in load_claims().values()]


def refused(claim: Claim) -> list[str]:
    """Why its job cannot be run whole on an H200."""
    if claim.request.is_training or any(isinstance(leaf, SameTraining) for leaf in claim.leaves):
        return ["training is not compared"]
    try:
        plan = plan_job(claim.request, load_catalogue(), [H200])
    except LossbenchError as error:
        return [error.message]
    origins = {load_catalogue().kernels[c.kernel].origin for c in plan.request.contenders}
    stopped = [str(cell.reason) for cell in plan.cells if cell.outcome is not None]
    return [*stopped, *(["it takes a checkout"] if "checkout" in origins else [])]


def test_all_files_are_claims_of_their_own() -> None:
    assert len(load_claims()) == len(list(FOLDER.glob("*"))) >= 22
    assert len({claim.title for claim in load_claims().values()}) == len(load_claims())


@pytest.mark.parametrize("claim", CLAIMS)
def test_claim_has_a_source_and_its_job_is_valid(claim: Claim) -> None:
    assert str(claim.source).startswith("https://")
    assert claim.request.labels == {"claim": claim.id}
    assert claim.accelerator == "h200"


@pytest.mark.parametrize("claim", CLAIMS)
def test_job_runs_unless_the_claim_says_why_not(claim: Claim) -> None:
    assert bool(refused(claim)) == (claim.cannot_run is not None), refused(claim)


@pytest.mark.parametrize("claim", [each for each in CLAIMS if not each.values[0].cannot_run])
def test_job_measures_the_cells_of_the_rule_and_no_others(claim: Claim) -> None:
    planned = {cell.cell.key for cell in plan_job(claim.request, load_catalogue(), [H200]).cells}
    assert {name.key for name in claim.cells} == planned


def test_unknown_claim_is_not_found() -> None:
    with pytest.raises(NotFoundError, match="lossbench claims"):
        get_claim("no-such-claim")


@pytest.mark.parametrize("text", ["- a list", "title: {", "title: too little is said here"])
def test_bad_file_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "bad.yaml").write_text(text)
    with pytest.raises(ValueError, match=r"bad\.yaml"):
        read_claim(tmp_path / "bad.yaml")


def test_claim_on_any_device_is_refused(tmp_path: Path) -> None:
    text = (FOLDER / "cast-error-script.yaml").read_text().replace("accelerator: h200", "")
    (tmp_path / "cast.yaml").write_text(text)
    with pytest.raises(ValueError, match="accelerator"):
        read_claim(tmp_path / "cast.yaml")
