"""Jobs of kind train: arms, lots, estimates, refusals; sizes as the worker has them."""

from typing import Any

import pytest

from lossbench.kernels.training.record import TrainingSettings
from lossbench.kernels.training.sizes import SIZES
from lossbench.service.contract.catalogue import load_catalogue
from lossbench.service.contract.errors import (
    InvalidRequestError,
    JobTooLargeError,
    UnknownNameError,
)
from lossbench.service.contract.job import JobRequest
from lossbench.service.contract.machine import Machine
from lossbench.service.contract.plan import Plan, plan_job
from lossbench.service.contract.training import TrainingSpec
from lossbench.service.contract.training_plan import MODEL_SIZES, plan_any, run_seconds

CPU = Machine(device_type="cpu", device_name="cpu", memory_bytes=2**34, gemm_tflops=0.1)


def plan(*contenders: str, machines: tuple[Machine, ...] = (), **training: Any) -> Plan:
    body = {"kind": "train", "contenders": list(contenders), "training": training}
    return plan_any(JobRequest.model_validate(body), load_catalogue(), machines)


def test_plan_has_a_lot_a_seed_and_a_cell_an_arm() -> None:
    made = plan("torch-naive", "flce", seeds=2)
    assert [len(lot.cases) for lot in made.lots] == [1, 1]
    names = [cell.cell.contender.text for cell in made.cells]
    assert names == ["torch-naive", "torch-naive (rows reordered)", "flce@1"] * 2
    assert [cell.lot for cell in made.cells] == [0, 0, 0, 1, 1, 1]


def test_plan_without_control_has_none() -> None:
    made = plan("torch-naive", "flce", seeds=1, control=False)
    assert [cell.cell.contender.text for cell in made.cells] == ["torch-naive", "flce@1"]


def test_plan_names_unknown_contenders_and_twice_given_ones() -> None:
    with pytest.raises(UnknownNameError, match="no kernel 'flcee'"):
        plan("torch-naive", "flcee")
    with pytest.raises(InvalidRequestError, match="flce@1 is given twice"):
        plan("flce", "flce@1")


def test_plan_of_more_runs_than_cells_allowed_is_refused() -> None:
    body = {"kind": "train", "contenders": ["flce"], "training": {"seeds": 6}}
    with pytest.raises(JobTooLargeError, match="12 runs; one job may have 10"):
        plan_any(JobRequest.model_validate(body), load_catalogue(), (), 10)


def test_plan_whose_reference_does_not_fit_is_refused() -> None:
    small = CPU.model_copy(update={"memory_bytes": 2**28})
    with pytest.raises(InvalidRequestError, match="the reference cannot be trained: predicted"):
        plan("torch-naive", machines=(small,), size="370m")


def test_run_without_a_service_points_to_the_command() -> None:
    request = JobRequest.model_validate({"kind": "train", "contenders": ["flce"]})
    with pytest.raises(InvalidRequestError, match="lossbench train"):
        plan_job(request, load_catalogue())


def test_estimate_grows_with_steps_and_size() -> None:
    times = [
        run_seconds(TrainingSpec(size=size, steps=steps), CPU)
        for size, steps in (("1m", 100), ("1m", 1000), ("10m", 1000))
    ]
    assert times == sorted(times)
    assert times[2] > 3 * times[1]


def test_sizes_and_settings_are_those_of_the_worker() -> None:
    assert {name: tuple(size) for name, size in MODEL_SIZES.items()} == {
        name: (shape.layers, shape.hidden, shape.heads, shape.mlp) for name, shape in SIZES.items()
    }
    for name, size in MODEL_SIZES.items():
        assert size.parameters(512, True) == SIZES[name].parameters(512, tied=True)
    own = TrainingSettings.from_json(TrainingSpec().settings("float32", 1))
    assert own == TrainingSettings()
