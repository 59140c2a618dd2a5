"""A set that leaves a machine does not name it: no host, no build of its kernel, no folder."""

from __future__ import annotations

import json

from lossbench.service.contract.run import Environment
from lossbench.service.store.set_export import publishable


def test_environment_of_a_set_names_no_machine() -> None:
    variables = {"CUDA_HOME": "/opt/ann/cuda", "OMP_NUM_THREADS": "8"}
    environment = Environment(
        device_type="cuda",
        device_name="NVIDIA H200",
        device_uuid_hash="u",
        memory_bytes=1,
        facts={
            "hostname_hash": "h",
            "os": "Linux-6.1.0-ann-x86_64",
            "variables": json.dumps(variables),
            "driver": "580",
        },
        hardware_fingerprint="a",
        software_fingerprint="b",
    )
    facts = publishable(environment).facts
    assert set(facts) == {"os", "variables", "driver"}
    assert facts["os"] == "Linux"
    assert json.loads(str(facts["variables"])) == {"CUDA_HOME": "(a path)", "OMP_NUM_THREADS": "8"}
