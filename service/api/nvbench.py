"""A result in the form of NVBench's `--json` output, so that tools for it read ours.

NVBench keeps times in seconds, numbers of summaries as text, and one benchmark with its axes above
the states. Here a benchmark is a pass, its axes are the case, and its one state is the result: two
results of one case have equal benchmarks, as NVBench's compare script wants them. `nv/cold` means
single calls after the caches were flushed, which is how lossbench times. What NVBench knows and a
result does not (PTX version, bus width) is left out, never made up.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ..contract.case import Case
from ..contract.contender import format_value
from ..contract.result import Result
from ..contract.run import SampleBlock
from ..contract.words import Arm, Outcome

JSON_VERSION = {"major": 1, "minor": 0, "patch": 0, "string": "1.0.0"}
"""Of NVBench's file format, which readers check."""
SECONDS_PER_MS = 1e-3
_DEVICE_FACTS = {"sm_count": "number_of_sms", "l2_bytes": "l2_cache_size"}

Facts = dict[str, Any]


def nvbench_document(
    result: Result, facts: Facts, memory_bytes: int, blocks: Sequence[SampleBlock]
) -> dict[str, Any]:
    """The document of one result; `facts` are those of its environment."""
    case = Case.parse(result.case)
    axes = list(_axes(case))
    return {
        "meta": {
            "argv": ["lossbench", "export", "nvbench", result.id],
            "version": {"json": JSON_VERSION},
        },
        "devices": [_device(result, facts, memory_bytes)],
        "benchmarks": [
            {
                "name": f"linear_cross_entropy_{result.pass_}",
                "index": 0,
                "devices": [0],
                "axes": [_axis(*axis) for axis in axes],
                "states": [_state(result, axes, blocks)],
            }
        ],
    }


def _device(result: Result, facts: Facts, memory_bytes: int) -> dict[str, Any]:
    device: dict[str, Any] = {"id": 0, "name": result.device_name}
    major, dot, minor = str(facts.get("compute_capability", "")).partition(".")
    if dot and major.isdigit() and minor.isdigit():
        device["sm_version"] = 100 * int(major) + 10 * int(minor)
    for ours, theirs in _DEVICE_FACTS.items():
        if isinstance(facts.get(ours), int):
            device[theirs] = facts[ours]
    device["global_memory_size"] = memory_bytes
    return device


def _axes(case: Case) -> Iterable[tuple[str, str, int | str]]:
    """Name, NVBench's type and value of each dimension of a case."""
    if isinstance(case.tokens, int):
        yield "Tokens", "int64", case.tokens
    else:
        yield "Tokens", "string", case.tokens.text
    yield "Hidden", "int64", case.hidden
    yield "Vocab", "int64", case.vocab
    yield "Dtype", "string", case.dtype.value
    yield "Recipe", "string", case.recipe.value
    changed = case.options.changed()
    if changed:
        pairs = (f"{key}={format_value(changed[key])}" for key in sorted(changed))
        yield "Options", "string", ",".join(pairs)


def _axis(name: str, kind: str, value: int | str) -> dict[str, Any]:
    shown = {"input_string": str(value), "description": "", "value": value}
    return {"name": name, "type": kind, "flags": "", "values": [shown]}


def _state(
    result: Result, axes: Sequence[tuple[str, str, int | str]], blocks: Sequence[SampleBlock]
) -> dict[str, Any]:
    words = " ".join(f"{name}={value}" for name, _, value in axes)
    times_s = SECONDS_PER_MS * np.array(
        [ms for block in blocks if block.arm is Arm.CONTENDER for ms in block.latency_ms]
    )
    skipped = result.outcome is not Outcome.OK or len(times_s) == 0
    state: dict[str, Any] = {
        "name": f"Device=0 {words}",
        "device": 0,
        "type_config_index": 0,
        "axis_values": [_named(name, kind, value) for name, kind, value in axes],
        "summaries": [] if skipped else list(_time_summaries(result, times_s)),
        "is_skipped": skipped,
    }
    state["summaries"] += _own_summaries(result)
    if skipped:
        state["skip_reason"] = f"{result.outcome}: {result.reason or 'it has no times'}"
    return state


def _time_summaries(result: Result, times_s: Any) -> Iterable[dict[str, Any]]:
    """NVBench's own summaries of isolated calls, over the samples of all processes."""
    clock = "gpu" if result.device_type == "cuda" else "cpu"
    q1, median, q3 = (float(value) for value in np.quantile(times_s, [0.25, 0.5, 0.75]))
    mean = float(times_s.mean())
    # of one sample NVBench has an infinite deviation, of which JSON knows nothing: here 0
    deviation = float(times_s.std(ddof=1)) if len(times_s) > 1 else 0.0
    yield _summary("nv/cold/sample_size", "Samples", "sample_size", len(times_s))
    for name, value in (
        ("min", float(times_s.min())),
        ("max", float(times_s.max())),
        ("mean", mean),
        ("q1", q1),
        ("median", median),
        ("q3", q3),
        ("iqr/absolute", q3 - q1),
        ("stdev/absolute", deviation),
    ):
        tag = f"nv/cold/time/{clock}/{name}"
        words = f"{clock.upper()} Time" if name == "mean" else f"{name} {clock.upper()} Time"
        yield _summary(tag, words, "duration", value)
    for name, value in (
        ("iqr/relative", (q3 - q1) / median),
        ("stdev/relative", deviation / mean),
    ):
        yield _summary(f"nv/cold/time/{clock}/{name}", "Noise", "percentage", value)
    yield _summary("nv/cold/bw/item_rate", "Elem/s", "item_rate", result.tokens / mean)


def _own_summaries(result: Result) -> Iterable[dict[str, Any]]:
    """What NVBench has no word for, under tags of ours."""
    grade = result.grade.value if result.grade else None
    shares = {"ratio_to_baseline": "Ratio to baseline", "floor_ratio": "Ratio to floor"}
    yield _summary("lossbench/contender", "Contender", None, result.label)
    yield _summary("lossbench/outcome", "Outcome", None, result.outcome.value)
    for field, words in shares.items():
        if (value := getattr(result, field)) is not None:
            yield _summary(f"lossbench/{field}", words, None, float(value))
    if result.workspace_bytes is not None:
        yield _summary("lossbench/workspace", "Workspace", "bytes", result.workspace_bytes)
    if grade is not None:
        yield _summary("lossbench/grade", "Error grade", None, grade)
    for error in result.errors:
        if error.relative_l2 is not None:
            tag = f"lossbench/error/{error.output}/relative_l2"
            yield _summary(tag, f"Error of {error.output}", None, float(error.relative_l2))


def _summary(tag: str, name: str, hint: str | None, value: float | str) -> dict[str, Any]:
    found: dict[str, Any] = {"tag": tag, "name": name}
    if hint is not None:
        found["hint"] = hint
    kind = "string" if isinstance(value, str) else "int64" if isinstance(value, int) else "float64"
    return {**found, "data": [_named("value", kind, value)]}


def _named(name: str, kind: str, value: float | str) -> dict[str, str]:
    return {"name": name, "type": kind, "value": str(value)}
