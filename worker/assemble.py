"""From findings to the stored record: summaries, ratios, grade, flags."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from lossbench.service.contract.run import (
    Cell,
    Environment,
    ErrorReport,
    Interval,
    LatencySummary,
    Measurement,
    MemoryReport,
    OutputError,
    RunRecord,
    SampleBlock,
)
from lossbench.service.contract.words import Arm, Dtype, Flag, Outcome
from lossbench.service.statistics.grade import error_ratio, judge
from lossbench.service.statistics.summary import (
    is_noisy,
    ratio_interval,
    spread,
    summarise,
    visit_log_ratio,
    visits_differ,
)

from .order import CaseOrder, CellFindings, CellOrder, CellResult, Ending

LOW_N = 20
LAUNCH_BOUND_MS = 0.2
SUSPECT_FLOOR_RATIO = 0.97
Visits = dict[int, list[list[float]]]


class Occasion(NamedTuple):
    """Where and when a case was measured."""

    environment: Environment
    worker_id: str
    started_at: datetime
    ended_at: datetime


def assemble(
    order: CaseOrder,
    cell: CellOrder,
    found: CellFindings,
    ending: Ending | None,
    occasion: Occasion,
) -> CellResult:
    """The result of one cell."""
    errors = None if ending else _errors(found, order.case.dtype)
    outcome, reason = (ending.outcome, ending.reason) if ending else _judged(found, errors)
    silent = (Outcome.FAILED, Outcome.TIMED_OUT)
    if ending is not None and (ending.outcome in silent or not found.offered):
        return CellResult(cell.number, outcome, reason, None, found.log)
    measurement = None if ending else _measurement(order, found)
    memory = None if ending else _memory(found)
    record = RunRecord(
        cell=Cell(contender=cell.contender, case=order.case, pass_=cell.pass_),
        version=found.version or cell.contender.version,
        outcome=outcome,
        reason=reason,
        baseline=order.baseline,
        environment=occasion.environment,
        processes=order.processes,
        seed=order.seed,
        measurement=measurement,
        memory=memory,
        errors=errors,
        flags=tuple(_flags(found, measurement, memory, occasion.environment)),
        details=dict(found.provenance),
        worker_id=occasion.worker_id,
        started_at=occasion.started_at,
        ended_at=occasion.ended_at,
    )
    return CellResult(cell.number, outcome, reason, record, found.log)


def _judged(found: CellFindings, errors: ErrorReport | None) -> tuple[Outcome, str | None]:
    outcome, reason, _, _ = judge(errors.outputs if errors else ())
    if faults := (found.check or {}).get("faults"):
        outcome, reason = Outcome.WRONG, "; ".join(faults)
    # in the interpreter a failed check may be the interpreter's fault, never stored as a defect
    if outcome is Outcome.WRONG and found.interpreted:
        return Outcome.UNSUPPORTED, f"in Triton's interpreter {reason}"
    return outcome, reason


def _errors(found: CellFindings, dtype: Dtype) -> ErrorReport | None:
    check = found.check
    if check is None:
        return None
    outputs = tuple(
        _output_error(name, numbers, check["yardstick"].get(name), dtype)
        for name, numbers in check["outputs"].items()
    )
    judgement = judge(outputs)
    bits = set(found.bits.values())
    return ErrorReport(
        outputs=outputs,
        grade=None if check["faults"] else judgement.grade,
        worst_output=judgement.worst_output,
        deterministic_in_process=check["deterministic"],
        deterministic_across=len(bits) == 1 if len(found.bits) > 1 else None,
        checksum=check["checksum"],
        notes=tuple(check["notes"]),
    )


def _output_error(
    name: str, numbers: dict[str, Any], yardstick: float | None, dtype: Dtype
) -> OutputError:
    relative = numbers["relative_l2"]
    ratio = None
    if relative is not None and yardstick is not None:
        ratio = error_ratio(name, relative, yardstick, dtype)
    fields = {key: value for key, value in numbers.items() if key != "relative_l2"}
    return OutputError.model_validate(
        {
            "output": name,
            "relative_l2": relative,
            "yardstick_relative_l2": yardstick,
            "ratio": ratio,
            **fields,
        }
    )


def _flat(visits: Visits) -> list[float]:
    return [sample for process in visits.values() for visit in process for sample in visit]


def _measurement(order: CaseOrder, found: CellFindings) -> Measurement | None:
    samples = _flat(found.visits)
    if not samples:
        return None
    latency = summarise(samples, [host for made in found.host_ms.values() for host in made])
    signs = found.vitals.values()
    return Measurement(
        latency=latency,
        baseline=_summary(found.baseline_visits),
        floor=_summary(found.floor_visits),
        ratio_to_baseline=_ratio(found.visits, found.baseline_visits),
        floor_ratio=_ratio(found.visits, found.floor_visits),
        compile_s=found.compile_s,
        first_call_s=found.first_call_s,
        recompiles=sum(taken["compiled"] for taken in found.vitals.values()),
        tokens_per_s=order.case.max_tokens / latency.median_ms * 1e3,
        clock_mhz=spread([v for s in signs for v in s["clock_mhz"]]),
        power_w=spread([v for s in signs for v in s["power_w"]]),
        temperature_c=spread([v for s in signs for v in s["temperature_c"]]),
        samples=tuple(
            block
            for arm, visits in (
                (Arm.CONTENDER, found.visits),
                (Arm.BASELINE, found.baseline_visits),
                (Arm.FLOOR, found.floor_visits),
            )
            for block in _blocks(arm, visits)
        ),
    )


def _summary(visits: Visits) -> LatencySummary | None:
    samples = _flat(visits)
    return summarise(samples) if samples else None


def _ratio(visits: Visits, against: Visits) -> Interval | None:
    logs = [
        log
        for process, own in visits.items()
        if process in against and (log := visit_log_ratio(own, against[process])) is not None
    ]
    return ratio_interval(logs)


def _blocks(arm: Arm, visits: Visits) -> Sequence[SampleBlock]:
    return [
        SampleBlock(
            arm=arm,
            process=process,
            latency_ms=tuple(sample for visit in made for sample in visit),
            visit_sizes=tuple(len(visit) for visit in made),
        )
        for process, made in visits.items()
    ]


def _memory(found: CellFindings) -> MemoryReport | None:
    numbers = (found.check or {}).get("memory")
    return MemoryReport.model_validate(numbers) if numbers else None


def _flags(
    found: CellFindings,
    measurement: Measurement | None,
    memory: MemoryReport | None,
    environment: Environment,
) -> list[Flag]:
    arms = (found.visits, found.baseline_visits, found.floor_visits)
    facts = {
        Flag.CPU: environment.device_type == "cpu",
        Flag.INTERPRETED: found.interpreted,
        Flag.GRADIENTS_IN_FORWARD: found.gradients_in_forward,
        Flag.NOT_STEADY: not found.steady,
        Flag.COMPILE_IN_TIMING: any(taken["compiled"] for taken in found.vitals.values()),
        Flag.NOISY: any(visits_differ(made) for arm in arms for made in arm.values()),
        Flag.MEMORY_NONDETERMINISTIC: memory is not None and not memory.repeats_equal,
        Flag.ALLOC_RETRY: memory is not None and memory.alloc_retries > 0,
    }
    flags = {flag for flag, holds in facts.items() if holds}
    flags |= {Flag(word) for taken in found.vitals.values() for word in taken["flags"]}
    if measurement is not None:
        flags |= _timing_flags(measurement, environment)
    return sorted(flags)


def _timing_flags(measurement: Measurement, environment: Environment) -> set[Flag]:
    flags = set()
    if measurement.latency.n < LOW_N:
        flags.add(Flag.LOW_N)
    if is_noisy(measurement.latency):
        flags.add(Flag.NOISY)
    if environment.device_type == "cuda" and measurement.latency.median_ms < LAUNCH_BOUND_MS:
        flags.add(Flag.LAUNCH_BOUND)
    floor = measurement.floor_ratio
    if floor is not None and floor.value < SUSPECT_FLOOR_RATIO:
        flags.add(Flag.SUSPECT)
    return flags
