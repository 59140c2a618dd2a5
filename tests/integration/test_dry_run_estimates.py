"""What a dry run promises, against real cells of the shipped sets: memory and minutes.

Memory: inputs, outputs and workspace as they were measured, cell by cell. Minutes: those of all
jobs of a set together; a job alone also waits for packages and for other processes' caches.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import pytest

from lossbench.service.contract.case import Case
from lossbench.service.contract.catalogue import load_catalogue
from lossbench.service.contract.contender import Contender
from lossbench.service.contract.job import JobRequest
from lossbench.service.contract.machine import Machine
from lossbench.service.contract.plan import PlannedCell, plan_job
from lossbench.service.contract.result_set import ResultSet, SetJob
from lossbench.service.contract.run import Environment
from lossbench.service.store.set_files import read_set, shipped_sets

FEWEST_CELLS = 20
MEMORY_WITHIN, MINUTES_WITHIN = 0.15, 0.5


@dataclass(frozen=True)
class Promise:
    """One real cell: predicted and measured bytes."""

    contender: str
    case: str
    predicted: int
    measured: int

    @property
    def ratio(self) -> float:
        return self.predicted / self.measured


@cache
def timed_sets() -> tuple[ResultSet, ...]:
    """Shipped sets with enough timed results of jobs."""
    found = (read_set(path) for path in shipped_sets())
    return tuple(each for each in found if each.header.counts.get("run", 0) >= FEWEST_CELLS)


def machine_of(environment: Environment) -> Machine:
    return Machine(
        device_type=environment.device_type,
        device_name=environment.device_name,
        memory_bytes=environment.memory_bytes,
        gemm_tflops=float(environment.facts["gemm_tflops"] or 0),
        hardware_fingerprint=environment.hardware_fingerprint,
        software_fingerprint=environment.software_fingerprint,
        queues=("h200",),
    )


def planned(job: SetJob, machine: Machine) -> list[PlannedCell]:
    """The cells of a dry run of the same request on the same device."""
    request = JobRequest.model_validate(job.request)
    return list(plan_job(request, load_catalogue(), [machine]).cells)


def promises() -> list[Promise]:
    """Every cell that was measured, and what a dry run says of it."""
    found = []
    for each in timed_sets():
        runs = {line.id: line for line in each.lines if line.kind == "run"}
        cells = [line for line in each.lines if line.kind == "cell" and line.run in runs]
        machine = machine_of(each.header.environments[runs[str(cells[0].run)].environment])
        predicted = {
            (job.id, cell.cell.contender.text, cell.cell.case.text): cell.estimated_peak_bytes
            for job in each.header.jobs
            for cell in planned(job, machine)
        }
        for cell in cells:
            run = runs[str(cell.run)]
            memory: Mapping[str, int] | None = run.record.get("memory")
            if memory is None or cell.outcome != "ok":
                continue
            case = Case.parse(cell.case)
            inputs = case.dtype.bytes * case.hidden * (case.max_tokens + case.vocab)
            measured = inputs + memory["outputs_bytes"] + memory["workspace_bytes"]
            promised = predicted[(cell.job, cell.contender, cell.case)]
            found.append(Promise(cell.contender, cell.case, promised, measured))
    if len(found) < FEWEST_CELLS:
        pytest.skip(f"no shipped set has {FEWEST_CELLS} timed results yet")
    return found


def kernels() -> list[str]:
    """Kernels with real cells; one that says so where there are none."""
    names = {
        Contender.parse(line.contender).kernel
        for each in timed_sets()
        for line in each.lines
        if line.kind == "cell" and line.outcome == "ok"
    }
    return sorted(names) or ["none"]


@pytest.mark.parametrize("kernel", kernels())
def test_memory_of_a_dry_run_is_within_15_percent_of_real_cells(kernel: str) -> None:
    mine = [each for each in promises() if Contender.parse(each.contender).kernel == kernel]
    assert mine
    off = [
        f"{each.contender} {each.case}: {each.ratio:.2f}"
        for each in mine
        if abs(each.ratio - 1) > MEMORY_WITHIN
    ]
    assert not off, off


def test_minutes_of_dry_runs_are_within_half_of_what_the_jobs_took() -> None:
    promises()
    for each in timed_sets():
        minutes: dict[str, float] = defaultdict(float)
        machine = machine_of(each.header.environments[0])
        for job in each.header.jobs:
            assert job.started_at is not None
            assert job.ended_at is not None
            minutes["real"] += (job.ended_at - job.started_at).total_seconds() / 60
            minutes["promised"] += sum(cell.estimated_s for cell in planned(job, machine)) / 60
        assert abs(minutes["promised"] / minutes["real"] - 1) < MINUTES_WITHIN, dict(minutes)
