"""From findings to the stored record: ratios, floors, flags, endings."""

import math
from datetime import UTC, datetime
from typing import Any

import pytest

from lossbench.service.contract.case import Case
from lossbench.service.contract.contender import Contender
from lossbench.service.contract.run import Environment, RunRecord
from lossbench.service.contract.words import Arm, Flag, Grade, Outcome, Pass
from lossbench.worker.assemble import Occasion, assemble
from lossbench.worker.order import CaseOrder, CellFindings, CellOrder, CellResult, Ending

MOMENT = datetime(2026, 11, 30, tzinfo=UTC)
CELL = CellOrder(7, Contender.parse("liger@0.8.5"), Pass.FORWARD_BACKWARD)
ORDER = CaseOrder(
    case=Case(tokens=1000, hidden=4, vocab=16),
    cells=(CELL,),
    baseline=Contender(kernel="torch-naive"),
    processes=2,
    timeout_s=600.0,
    seed=5,
)
QUIET = {
    "clock_mhz": [1400.0, 1500.0, 1450.0],
    "power_w": [690.0],
    "temperature_c": [60.0],
    "flags": [],
    "compiled": 0,
    "compiled_beside": 0,
}


def occasion(device_type: str = "cuda") -> Occasion:
    fields = {
        "device_type": device_type,
        "device_name": "x",
        "device_uuid_hash": "x",
        "memory_bytes": 1,
        "facts": {},
        "hardware_fingerprint": "h",
        "software_fingerprint": "s",
    }
    return Occasion(Environment.model_validate(fields), "wrk-1", MOMENT, MOMENT)


def check(**changes: Any) -> dict[str, Any]:
    """What a child replies to Check: every output exactly as good as torch's own."""
    numbers = {"relative_l2": 2e-3, "best_fit_scale": 1.0, "not_finite": 0}
    names = ("loss", "dx", "dw")
    return {
        "outputs": {name: dict(numbers) for name in names},
        "yardstick": dict.fromkeys(names, 2e-3),
        "faults": [],
        "notes": [],
        "checksum": "abc",
        "deterministic": True,
        "memory": None,
        **changes,
    }


def findings(**changes: Any) -> CellFindings:
    """Two processes of six visits with two samples each: contender 2 ms, baseline 4, floor 1."""

    def visits(milliseconds: float) -> dict[int, list[list[float]]]:
        return {process: [[milliseconds] * 2] * 6 for process in (0, 1)}

    fields: dict[str, Any] = {
        "version": "0.8.5",
        "compile_s": 1.5,
        "visits": visits(2.0),
        "baseline_visits": visits(4.0),
        "floor_visits": visits(1.0),
        "host_ms": {0: [0.1, 0.2], 1: [0.3]},
        "check": check(),
        "bits": {0: "abc", 1: "abc"},
        "vitals": {0: QUIET, 1: QUIET},
        "log": "printed\n",
    }
    return CellFindings(**{**fields, **changes})


def result(found: CellFindings, ending: Ending | None = None, device: str = "cuda") -> CellResult:
    return assemble(ORDER, CELL, found, ending, occasion(device))


def record(found: CellFindings, device: str = "cuda") -> RunRecord:
    made = result(found, device=device).record
    assert made is not None
    return made


def test_record_carries_ratio_floor_and_rate() -> None:
    timing = record(findings()).measurement
    assert timing is not None
    assert timing.ratio_to_baseline is not None
    assert timing.floor_ratio is not None
    assert timing.ratio_to_baseline.value == pytest.approx(0.5)
    assert timing.floor_ratio.value == pytest.approx(2.0)
    assert timing.ratio_to_baseline.processes == 2
    assert (timing.latency.n, timing.latency.median_ms) == (24, 2.0)
    assert timing.latency.host_launch_median_ms == 0.2
    assert timing.tokens_per_s == pytest.approx(1000 / 2e-3)
    assert timing.clock_mhz is not None
    assert (timing.clock_mhz.value, timing.clock_mhz.low, timing.clock_mhz.high) == (
        1450.0,
        1400.0,
        1500.0,
    )


def test_record_carries_who_where_and_when() -> None:
    made = result(findings(provenance={"wheel_sha256": "f00", "source_hash": "abc"}))
    stored = made.record
    assert stored is not None
    assert (made.number, made.outcome, made.reason, made.log) == (7, "ok", None, "printed\n")
    assert (stored.version, stored.worker_id, stored.seed, stored.processes) == (
        "0.8.5",
        "wrk-1",
        5,
        2,
    )
    assert stored.cell.case == ORDER.case
    assert stored.details == {"wheel_sha256": "f00", "source_hash": "abc"}
    assert stored.flags == ()


def test_record_keeps_raw_samples_by_arm_and_process() -> None:
    timing = record(findings()).measurement
    assert timing is not None
    places = [(block.arm, block.process) for block in timing.samples]
    assert places == [(arm, process) for arm in Arm for process in (0, 1)]
    assert timing.samples[0].latency_ms == (2.0,) * 12
    assert timing.samples[0].visit_sizes == (2,) * 6


def test_ratio_pairs_processes_that_both_arms_have() -> None:
    found = findings(baseline_visits={1: [[8.0]] * 6}, floor_visits={})
    timing = record(found).measurement
    assert timing is not None
    assert timing.ratio_to_baseline is not None
    assert (timing.ratio_to_baseline.value, timing.ratio_to_baseline.low) == (0.25, None)
    assert (timing.floor, timing.floor_ratio) == (None, None)


def test_errors_carry_ratio_grade_and_bits() -> None:
    outputs = check()["outputs"]
    outputs["dw"]["relative_l2"] = 2.6e-3
    errors = record(findings(check=check(outputs=outputs, notes=["nan_on_empty"]))).errors
    assert errors is not None
    assert (errors.grade, errors.worst_output) == (Grade.FAIR, "dw")
    assert {out.output: out.ratio for out in errors.outputs}["dw"] == pytest.approx(1.3)
    assert errors.notes == ("nan_on_empty",)
    assert (errors.deterministic_in_process, errors.deterministic_across) == (True, True)


@pytest.mark.parametrize(
    ("bits", "across"), [({0: "a"}, None), ({0: "a", 1: "a"}, True), ({0: "a", 1: "b"}, False)]
)
def test_errors_say_whether_bits_repeat_across_processes(
    bits: dict[int, str], across: bool | None
) -> None:
    errors = record(findings(bits=bits)).errors
    assert errors is not None
    assert errors.deterministic_across is across


DEFECTIVE = check()
DEFECTIVE["outputs"]["dx"] = {"relative_l2": 1.0, "best_fit_scale": 0.0}


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (check(faults=["it changed its inputs", "dx of x"]), "it changed its inputs; dx of x"),
        (DEFECTIVE, "dx: relative L2 error 1 is above 0.05"),
    ],
)
def test_defect_is_wrong_without_grade(found: dict[str, Any], reason: str) -> None:
    made = result(findings(check=found))
    assert (made.outcome, made.reason) == (Outcome.WRONG, reason)
    assert made.record is not None
    assert made.record.errors is not None
    assert made.record.errors.grade is None


@pytest.mark.parametrize("found", [check(faults=["dx of an ignored row"]), DEFECTIVE])
def test_defect_in_the_interpreter_is_never_the_contender_s_fault(found: dict[str, Any]) -> None:
    quiet = findings(check=found, interpreted=True, visits={}, vitals={}, floor_visits={})
    made = result(quiet, device="cpu")
    assert made.outcome is Outcome.UNSUPPORTED
    assert str(made.reason).startswith("in Triton's interpreter dx")
    assert made.record is not None
    assert made.record.measurement is None
    assert made.record.flags == (Flag.CPU, Flag.INTERPRETED)


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.TIMED_OUT])
def test_ending_that_says_nothing_of_the_contender_has_no_record(outcome: Outcome) -> None:
    made = result(findings(), Ending(outcome, "it broke"))
    assert made == CellResult(7, outcome, "it broke", None, "printed\n")


def test_ending_that_is_of_this_worker_only_has_no_record() -> None:
    """A stored one would answer for the contender when the worker has long got its plugin."""
    ending = Ending(Outcome.UNSUPPORTED, "this worker has no kernel 'tiny'")
    made = result(findings(offered=False), ending)
    assert (made.outcome, made.record) == (Outcome.UNSUPPORTED, None)


@pytest.mark.parametrize("outcome", [Outcome.OUT_OF_MEMORY, Outcome.UNSUPPORTED])
def test_ending_that_is_an_answer_has_a_record_without_numbers(outcome: Outcome) -> None:
    made = result(findings(), Ending(outcome, "too big")).record
    assert made is not None
    assert (made.outcome, made.reason) == (outcome, "too big")
    assert (made.measurement, made.memory, made.errors) == (None, None, None)


def flags(found: CellFindings, device: str = "cuda") -> set[Flag]:
    return set(record(found, device).flags)


@pytest.mark.parametrize(
    ("changes", "flag"),
    [
        ({"visits": {0: [[2.0]] * 19}}, Flag.LOW_N),
        ({"visits": {0: [[2.0] * 3, [2.1] * 3] * 4}}, Flag.NOISY),
        ({"baseline_visits": {0: [[4.0] * 4] * 5 + [[4.5] * 4]}}, Flag.NOISY),
        ({"visits": {0: [[0.1] * 4] * 6}, "floor_visits": {}}, Flag.LAUNCH_BOUND),
        ({"floor_visits": {0: [[2.07] * 2] * 6, 1: [[2.07] * 2] * 6}}, Flag.SUSPECT),
        ({"steady": False}, Flag.NOT_STEADY),
        ({"gradients_in_forward": True}, Flag.GRADIENTS_IN_FORWARD),
        ({"vitals": {0: QUIET, 1: {**QUIET, "compiled": 1}}}, Flag.COMPILE_IN_TIMING),
        ({"vitals": {0: {**QUIET, "flags": ["throttled"]}}}, Flag.THROTTLED),
        ({"vitals": {0: {**QUIET, "flags": ["power_capped"]}}}, Flag.POWER_CAPPED),
        ({"vitals": {0: {**QUIET, "flags": ["alloc_retry"]}}}, Flag.ALLOC_RETRY),
        ({"vitals": {0: {**QUIET, "flags": ["foreign_process"]}}}, Flag.FOREIGN_PROCESS),
    ],
)
def test_flag_is_set_where_it_is_earned(changes: dict[str, Any], flag: Flag) -> None:
    assert flags(findings(**changes)) == {flag}
    assert flags(findings()) == set()


def test_flag_suspect_begins_below_the_limit() -> None:
    at_limit = {0: [[2.0 / 0.971] * 4] * 6}
    assert flags(findings(visits={0: [[2.0] * 4] * 6}, floor_visits=at_limit)) == set()


def test_flag_cpu_has_no_launch_bound() -> None:
    fast = {0: [[0.1] * 4] * 6}
    assert flags(findings(visits=fast, floor_visits={}), "cpu") == {Flag.CPU}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, set()),
        ({"repeats_equal": False}, {Flag.MEMORY_NONDETERMINISTIC}),
        ({"alloc_retries": 1}, {Flag.ALLOC_RETRY}),
    ],
)
def test_flags_of_memory(changes: dict[str, Any], expected: set[Flag]) -> None:
    numbers = {
        "base_bytes": 1,
        "peak_forward_bytes": 2,
        "held_bytes": 3,
        "peak_backward_bytes": 4,
        "outputs_bytes": 5,
        "workspace_bytes": 6,
        "reserved_bytes": None,
        "alloc_retries": 0,
        "repeats_equal": True,
        **changes,
    }
    made = record(findings(check=check(memory=numbers)))
    assert made.memory is not None
    assert made.memory.workspace_bytes == 6
    assert set(made.flags) == expected


def test_missing_yardstick_gives_errors_without_grade() -> None:
    errors = record(findings(check=check(yardstick={}))).errors
    assert errors is not None
    assert errors.grade is None
    assert all(out.ratio is None for out in errors.outputs)
    assert not any(math.isnan(out.relative_l2 or 0) for out in errors.outputs)


def test_details_hold_what_is_of_this_run_only() -> None:
    signs = {
        **QUIET,
        "autotune": ["_row_kernel: num_warps: 8"],
        "throttle_s": 0.5,
        "visit_clock_mhz": [1455.0] * 6,
    }
    found = findings(
        vitals={0: signs, 1: {**QUIET, "visit_clock_mhz": [None] * 6}},
        wall_s={"total": 12.34567, "timed": 6.0},
        check=check(kernels=["_row_kernel"]),
    )
    details = record(found).details
    assert details["kernels"] == ["_row_kernel"]
    assert details["autotune"] == {0: ["_row_kernel: num_warps: 8"]}
    assert details["visit_clock_mhz"] == {0: [1455.0] * 6}
    assert (details["throttle_s"], details["wall_s"]) == (0.5, {"total": 12.346, "timed": 6.0})
