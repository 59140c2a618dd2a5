"""A result as NVBench's JSON, read by NVBench's own field names."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from lossbench.service.api.nvbench import nvbench_document
from lossbench.service.contract.result import Result
from lossbench.service.contract.run import SampleBlock
from lossbench.service.contract.words import Arm

TIMES_MS = (10.0, 12.0, 11.0, 13.0)
FACTS = {"compute_capability": "9.0", "sm_count": 132, "l2_bytes": 62914560, "torch": "2.11.0"}


def result(**changes: Any) -> Result:
    names = ("id", "contender", "kernel", "params", "baseline", "worker_id", "environment_id")
    moment = datetime(2026, 11, 30, tzinfo=UTC)
    fields: dict[str, Any] = dict.fromkeys(Result.model_fields)
    fields |= {**dict.fromkeys(names, "x"), "kernel": "flce", "version": "1", "params": ""}
    fields |= {"case": "N8192-H4096-V128256-bfloat16-softcap=30.0", "dtype": "bfloat16"}
    fields |= {"tokens": 8192, "hidden": 4096, "vocab": 128256, "recipe": "normal"}
    fields |= {"device_name": "NVIDIA H200", "device_type": "cuda", "outcome": "ok"}
    fields |= {"processes": 3, "protocol_version": 1, "flags": (), "imported": False}
    fields |= {"errors": ({"output": "dw", "relative_l2": 2e-3, "ratio": 1.0, "max_abs": 0.1},)}
    fields |= {"started_at": moment, "ended_at": moment, "grade": "exact", "floor_ratio": 1.04}
    fields["workspace_bytes"] = 2**30
    del fields["pass_"]
    return Result.model_validate({**fields, "pass": "forward_backward", **changes})


def document(**changes: Any) -> Any:
    blocks = [
        SampleBlock(arm=arm, process=0, latency_ms=times, visit_sizes=(len(times),))
        for arm, times in ((Arm.CONTENDER, TIMES_MS), (Arm.BASELINE, (99.0,)))
    ]
    made = nvbench_document(result(**changes), FACTS, 2**37, blocks)
    return json.loads(json.dumps(made, allow_nan=False))


def state_of(root: Any) -> Any:
    ((state,),) = [bench["states"] for bench in root["benchmarks"]]
    return state


def value_of(state: Any, tag: str) -> Any:
    """As NVBench's readers find it: the summary with the tag, its data named `value`, by type."""
    (summary,) = [s for s in state["summaries"] if s["tag"] == tag]
    (data,) = [d for d in summary["data"] if d["name"] == "value"]
    assert isinstance(data["value"], str)
    return {"float64": float, "int64": int, "string": str}[data["type"]](data["value"])


def test_times_are_seconds_of_the_contender_alone() -> None:
    state = state_of(document())
    assert value_of(state, "nv/cold/sample_size") == 4
    assert value_of(state, "nv/cold/time/gpu/mean") == pytest.approx(0.0115)
    assert value_of(state, "nv/cold/time/gpu/median") == pytest.approx(0.0115)
    assert value_of(state, "nv/cold/time/gpu/min") == pytest.approx(0.010)
    assert value_of(state, "nv/cold/time/gpu/max") == pytest.approx(0.013)
    noise = value_of(state, "nv/cold/time/gpu/stdev/relative")
    absolute = value_of(state, "nv/cold/time/gpu/stdev/absolute")
    assert absolute == pytest.approx(0.00129, abs=1e-5)
    assert noise == pytest.approx(absolute / 0.0115)
    assert value_of(state, "nv/cold/bw/item_rate") == pytest.approx(8192 / 0.0115)
    assert not state["is_skipped"]


def test_hints_are_words_that_nvbench_formats() -> None:
    hints = {s.get("hint") for s in state_of(document())["summaries"]}
    known = {"duration", "item_rate", "bytes", "byte_rate", "sample_size", "percentage", None}
    assert hints <= known


def test_benchmark_has_devices_axes_and_the_version_that_readers_check() -> None:
    root = document()
    assert root["meta"]["version"]["json"]["string"] == "1.0.0"
    (device,) = root["devices"]
    assert (device["id"], device["name"], device["sm_version"]) == (0, "NVIDIA H200", 900)
    assert (device["number_of_sms"], device["global_memory_size"]) == (132, 2**37)
    (bench,) = root["benchmarks"]
    assert (bench["name"], bench["devices"]) == ("linear_cross_entropy_forward_backward", [0])
    axes = {axis["name"]: (axis["type"], axis["values"][0]["value"]) for axis in bench["axes"]}
    assert axes == {
        "Tokens": ("int64", 8192),
        "Hidden": ("int64", 4096),
        "Vocab": ("int64", 128256),
        "Dtype": ("string", "bfloat16"),
        "Recipe": ("string", "normal"),
        "Options": ("string", "softcap=30.0"),
    }
    state = state_of(root)
    values = {value["name"]: value["value"] for value in state["axis_values"]}
    assert values == {name: str(value) for name, (_, value) in axes.items()}
    assert state["device"] == 0


def test_two_contenders_on_one_case_have_equal_benchmarks() -> None:
    """What NVBench's compare script matches by: device, benchmark name, axes and state name."""
    one, two = document(), document(kernel="liger", version="0.8.5")
    assert one["devices"] == two["devices"]
    (first,), (second,) = one["benchmarks"], two["benchmarks"]
    assert (first["name"], first["axes"]) == (second["name"], second["axes"])
    assert state_of(one)["name"] == state_of(two)["name"]
    assert value_of(state_of(two), "lossbench/contender") == "liger@0.8.5"


def test_memory_error_and_floor_come_under_tags_of_ours() -> None:
    state = state_of(document())
    assert value_of(state, "lossbench/workspace") == 2**30
    assert value_of(state, "lossbench/floor_ratio") == 1.04
    assert value_of(state, "lossbench/error/dw/relative_l2") == 2e-3
    assert value_of(state, "lossbench/grade") == "exact"


def test_times_of_a_cpu_are_cpu_times() -> None:
    tags = {s["tag"] for s in state_of(document(device_type="cpu"))["summaries"]}
    assert "nv/cold/time/cpu/mean" in tags
    assert "nv/cold/time/gpu/mean" not in tags


def test_result_that_is_not_ok_is_skipped_with_its_reason() -> None:
    state = state_of(document(outcome="out_of_memory", reason="23 GiB"))
    assert state["is_skipped"]
    assert state["skip_reason"] == "out_of_memory: 23 GiB"
    assert not [s for s in state["summaries"] if s["tag"].startswith("nv/")]
