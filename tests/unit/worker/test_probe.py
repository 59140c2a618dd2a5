"""Only variables that change how kernels run are stored, and no secret."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from lossbench.worker.probe import variables_of_speed, variables_that_matter


def test_variables_of_a_container_image_are_not_part_of_a_measurement(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("NVIDIA_REQUIRE_CUDA", "NVIDIA_TF32_OVERRIDE", "TRITON_API_TOKEN", "OMP_X"):
        monkeypatch.setenv(name, "1")
    found = json.loads(variables_that_matter())
    assert found["NVIDIA_TF32_OVERRIDE"] == found["OMP_X"] == "1"
    assert not {"NVIDIA_REQUIRE_CUDA", "TRITON_API_TOKEN"} & found.keys()


def test_software_is_told_by_the_variables_that_change_a_time_and_not_by_places() -> None:
    variables = {
        "OMP_NUM_THREADS": "1",
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
        "TRITON_CACHE_DIR": "/a",
        "CUDA_HOME": "/b",
        "CUDA_VISIBLE_DEVICES": "3",
    }
    assert set(variables_of_speed(variables)) == {"OMP_NUM_THREADS", "PYTORCH_CUDA_ALLOC_CONF"}


def test_another_number_of_threads_is_another_environment() -> None:
    def described(**changes: str) -> dict[str, Any]:
        found = subprocess.run(
            [sys.executable, "-P", "-m", "lossbench.worker.probe", "--quick"],
            env={**os.environ, **changes},
            capture_output=True,
            text=True,
            check=True,
        )
        return dict(json.loads(found.stdout))

    one, again, two = (described(OMP_NUM_THREADS=threads) for threads in ("1", "1", "2"))
    assert one["software_fingerprint"] == again["software_fingerprint"]
    assert one["software_fingerprint"] != two["software_fingerprint"]
    assert one["hardware_fingerprint"] == two["hardware_fingerprint"]
