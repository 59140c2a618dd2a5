"""Names of accelerators, and which jobs a machine serves."""

import pytest

from lossbench.service.contract.job import JobRequest
from lossbench.service.contract.machine import ASSUMED, Machine, accelerator_name


@pytest.mark.parametrize(
    ("device", "name"),
    [
        ("NVIDIA H200", "h200"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm4-80gb"),
        ("NVIDIA GeForce RTX 4090", "4090"),
        ("Tesla T4", "t4"),
        ("NVIDIA", "gpu"),
        ("", "gpu"),
    ],
)
def test_accelerator_name_is_short_and_can_be_asked_for(device: str, name: str) -> None:
    assert accelerator_name(device) == name
    body = {
        "contenders": ["flce"],
        "shapes": [{"tokens": 1, "hidden": 1, "vocab": 2}],
        "accelerator": name,
    }
    assert JobRequest.model_validate(body).accelerator == name


def test_machine_serves_any_and_its_own_queues() -> None:
    machine = Machine(
        device_type="cuda",
        device_name="NVIDIA H200",
        memory_bytes=1,
        gemm_tflops=1.0,
        queues=("h200", "fast"),
    )
    asked = ("any", "h200", "fast", "h100")
    assert [machine.serves(name) for name in asked] == [True, True, True, False]
    assert ASSUMED.memory_bytes > 2**50
