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
from lossbench.service.contract.words import Arm, Dtype, Outcome
from lossbench.service.statistics.grade import error_ratio, judge
from lossbench.service.statistics.summary import (
    ratio_interval,
    spread,
    summarise,
    visit_log_ratio,
)

from .flags import flags_of
from .order import CaseOrder, CellFindings, CellOrder, CellResult, Ending

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
        flags=tuple(flags_of(order, cell, found, (measurement, memory), occasion.environment)),
        details=_details(found),
        worker_id=occasion.worker_id,
        started_at=occasion.started_at,
        ended_at=occasion.ended_at,
    )
    return CellResult(cell.number, outcome, reason, record, found.log)


def outcome_of(
    order: CaseOrder, found: CellFindings, ending: Ending | None
) -> tuple[Outcome, str | None]:
    """How a cell ends, as far as its findings go."""
    if ending is not None:
        return ending.outcome, ending.reason
    return _judged(found, _errors(found, order.case.dtype))


def _details(found: CellFindings) -> dict[str, Any]:
    """Facts of this run only: files and kernels that ran, choices, clocks, where the time went."""
    taken = found.vitals
    check = found.check or {}
    facts = {
        "kernels": check.get("kernels"),
        "device_used_bytes": (check.get("memory") or {}).get("device_used_bytes"),
        "autotune": {p: signs["autotune"] for p, signs in taken.items() if signs.get("autotune")},
        "visit_clock_mhz": {
            process: clocks
            for process, signs in taken.items()
            if any(clocks := signs.get("visit_clock_mhz") or [])
        },
        "throttle_s": sum(signs.get("throttle_s", 0.0) for signs in taken.values()),
        "wall_s": {name: round(seconds, 3) for name, seconds in found.wall_s.items()},
    }
    return {**found.provenance, **{name: fact for name, fact in facts.items() if fact}}


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
    if not numbers:
        return None
    known = MemoryReport.model_fields
    return MemoryReport.model_validate({name: n for name, n in numbers.items() if name in known})
