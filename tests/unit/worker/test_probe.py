"""Only variables that change how kernels run are stored, and no secret."""

from __future__ import annotations

import json

import pytest

from lossbench.worker.probe import variables_that_matter


def test_variables_of_a_container_image_are_not_part_of_a_measurement(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("NVIDIA_REQUIRE_CUDA", "NVIDIA_TF32_OVERRIDE", "TRITON_API_TOKEN", "OMP_X"):
        monkeypatch.setenv(name, "1")
    found = json.loads(variables_that_matter())
    assert found["NVIDIA_TF32_OVERRIDE"] == found["OMP_X"] == "1"
    assert not {"NVIDIA_REQUIRE_CUDA", "TRITON_API_TOKEN"} & found.keys()
