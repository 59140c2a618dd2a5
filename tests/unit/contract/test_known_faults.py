"""Failed cases of a check are explained by the faults that are known when it is read."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from lossbench.service.contract.catalogue import Catalogue, load_catalogue
from lossbench.service.contract.check import CaseCheck, CheckRecord
from lossbench.service.contract.known_faults import explained
from lossbench.service.contract.run import Environment
from lossbench.service.contract.words import Outcome

FAULT = {
    "kernel": "liger",
    "what": "the weight gets no gradient",
    "source": "somewhere#1",
    "cases": ["options/frozen_input/*"],
    "since": "0.6.4",
    "before": "0.9",
}
H200_CHECKS = Path(__file__).parents[3] / "service" / "store" / "sets" / "h200-checks.jsonl.gz"
MOMENT = datetime(2026, 11, 30, tzinfo=UTC)


def catalogue(**fault: Any) -> Catalogue:
    row = {"summary": "", "origin": "package", "dtypes": ["float32"], "build": "adapters.liger"}
    impl = {"name": "impl", "kind": "str", "default": "triton"}
    kernels = {
        "liger": {**row, "name": "liger", "versions": ["0.6.3", "0.8.5"], "params": [impl]},
        "liger-fork": {**row, "name": "liger-fork", "versions": ["git-abc"], "params": [impl]},
        "flce": {**row, "name": "flce", "build": "adapters.flce"},
    }
    return Catalogue.model_validate(
        {"kernels": kernels, "presets": {}, "known_faults": [{**FAULT, **fault}]}
    )


def check(contender: str, case: str, outcome: str = "wrong", device: str = "cuda") -> CheckRecord:
    kernel, _, version = contender.partition("[")[0].partition("@")
    return CheckRecord.model_validate(
        {
            "contender": contender,
            "version": version or None,
            "environment": Environment(
                device_type="cuda" if device == "cuda" else "cpu",
                device_name=device,
                device_uuid_hash="0",
                memory_bytes=1,
                facts={},
                hardware_fingerprint="h",
                software_fingerprint="s",
            ),
            "cases": [
                CaseCheck(
                    case=case,
                    group="options",
                    what=kernel,
                    dtype="float32",  # type: ignore[arg-type]
                    outcome=Outcome(outcome),
                )
            ],
            "started_at": MOMENT,
            "ended_at": MOMENT,
        }
    )


HIT = "options/frozen_input/mean/float32"


@pytest.mark.parametrize(
    ("contender", "case", "outcome", "fault", "known"),
    [
        ("liger@0.8.5", HIT, "wrong", {}, True),
        ("liger@0.8.5", HIT, "failed", {}, True),
        ("liger@0.8.5", HIT, "ok", {}, False),
        ("liger@0.8.5", HIT, "unsupported", {}, False),
        ("liger@0.8.5", "options/bias/mean/float32", "wrong", {}, False),
        ("liger@0.6.3", HIT, "wrong", {}, False),
        ("liger@0.8.5", HIT, "wrong", {"before": "0.8.5"}, False),
        ("liger@0.8.5", HIT, "wrong", {"when": {"impl": "triton"}}, True),
        ("liger@0.8.5[impl=cutile]", HIT, "wrong", {"when": {"impl": "triton"}}, False),
        ("liger@0.8.5", HIT, "wrong", {"device": "cpu"}, False),
        ("liger-fork@git-abc", HIT, "wrong", {"before": None}, True),
        ("flce", HIT, "wrong", {"since": None, "before": None}, False),
        ("nobody@1", HIT, "wrong", {}, False),
    ],
)
def test_failed_case_is_explained_only_by_a_fault_of_its_kernel_version_and_params(
    contender: str, case: str, outcome: str, fault: dict[str, Any], known: bool
) -> None:
    (found,) = explained(check(contender, case, outcome), catalogue(**fault)).cases

    assert found.known_fault == ("the weight gets no gradient (somewhere#1)" if known else None)


def test_every_wrong_case_of_the_shipped_h200_checks_has_a_known_fault() -> None:
    """What took too long is explained by nothing; all else that failed there must be."""
    shipped = load_catalogue()
    checked, unexplained = 0, []
    with gzip.open(H200_CHECKS, "rt", encoding="utf-8") as lines:
        header = json.loads(next(lines))
        for line in map(json.loads, lines):
            environment = header["environments"][line["environment"]]
            record = CheckRecord.model_validate({**line["record"], "environment": environment})
            if record.contender.kernel not in shipped.kernels:
                continue  # an operator's own name for a checkout
            checked += 1
            unexplained += [
                (record.contender.text, case.case)
                for case in explained(record, shipped).cases
                if case.outcome in (Outcome.WRONG, Outcome.FAILED) and case.known_fault is None
            ]

    assert checked == 34
    assert unexplained == []
