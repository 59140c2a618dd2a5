"""Every job file that we ship is valid and can be planned; the seed suite is what the demo runs."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from lossbench.service.cli.demonstration import demo_job
from lossbench.service.cli.requests import read_job_file
from lossbench.service.contract.catalogue import load_catalogue
from lossbench.service.contract.errors import LossbenchError
from lossbench.service.contract.job import JobRequest
from lossbench.service.contract.machine import Machine
from lossbench.service.contract.plan import plan_job

SUITES = sorted((Path(__file__).parents[3] / "suites").glob("*.*"))
H200 = Machine(
    device_type="cuda",
    device_name="NVIDIA H200",
    memory_bytes=140 * 2**30,
    gemm_tflops=690.0,
    queues=("h200",),
)
SAME_AS_DEMO = ("contenders", "shapes", "dtypes", "options")


def planned(body: dict[str, Any]) -> list[str]:
    """Faults of a suite: not valid, or a cell refused before it runs."""
    try:
        plan = plan_job(JobRequest.model_validate(body), load_catalogue(), [H200])
    except (ValidationError, LossbenchError) as error:
        return [str(error)]
    return [f"{cell.cell}: {cell.reason}" for cell in plan.cells if cell.outcome is not None]


def test_suites_are_there() -> None:
    names = {path.name for path in SUITES}
    assert {"seed.yaml", "smoke-cpu.yaml", "first.yaml", "first-trained.yaml"} <= names


@pytest.mark.parametrize("path", SUITES, ids=lambda path: path.name)
def test_suite_can_be_planned(path: Path) -> None:
    assert not planned(read_job_file(path))


def test_seed_suite_is_the_demo_of_a_gpu() -> None:
    suite = next(path for path in SUITES if path.name == "seed.yaml")
    demo, shipped = demo_job("cuda", H200.memory_bytes), read_job_file(suite)
    assert {k: shipped[k] for k in SAME_AS_DEMO} == {k: demo[k] for k in SAME_AS_DEMO}


def test_first_suites_ask_the_same_shapes_of_known_contenders() -> None:
    bodies = {path.name: read_job_file(path) for path in SUITES}
    first, trained = bodies["first.yaml"], bodies["first-trained.yaml"]
    assert len(first["shapes"]) == 5
    assert trained["shapes"] == first["shapes"]
    assert set(trained["contenders"]) < set(first["contenders"])
    assert (first["recipes"], trained["recipes"]) == (["normal"], ["trained"])


def test_h200_suites_hold_the_first_suites_and_every_release_that_differs() -> None:
    def cells(name: str) -> set[str]:
        body = read_job_file(SUITES[0].parent / name)
        plan = plan_job(JobRequest.model_validate(body), load_catalogue(), [H200])
        return {cell.cell.key for cell in plan.cells}

    assert cells("first.yaml") < cells("h200.yaml")
    row = load_catalogue().kernels["liger"]
    releases = cells("h200-releases.yaml")
    for version in set(row.versions) - set(row.twins):
        assert any(key.startswith(f"liger@{version} ") for key in releases), version


@pytest.mark.parametrize(
    "change",
    [{"contenders": ["lieger"]}, {"color": "red"}, {"contenders": ["liger@99.0"]}, {"options": 1}],
)
def test_faulty_suite_is_found(change: dict[str, Any]) -> None:
    suite = next(path for path in SUITES if path.name == "seed.yaml")
    assert planned(read_job_file(suite) | change)
