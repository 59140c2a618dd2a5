"""Which flags a result earns: what a reader must know about how it was measured."""

import statistics
from collections.abc import Mapping, Sequence

from lossbench.service.contract.case import Case
from lossbench.service.contract.run import Environment, Measurement, MemoryReport
from lossbench.service.contract.words import Dtype, Flag, Pass
from lossbench.service.statistics.process_modes import find_two_modes
from lossbench.service.statistics.summary import is_noisy, visit_log_ratio, visits_differ
from lossbench.service.statistics.visit_drift import find_drift

from .order import CaseOrder, CellFindings, CellOrder

LOW_N = 20
LAUNCH_BOUND_MS = 0.2
SUSPECT_FLOOR_RATIO = 0.97
ABOVE_ROOF = 1.0 / SUSPECT_FLOOR_RATIO
"""A rate so many times the device's product rate is suspect: the roof is read to about 3 %."""
Visits = Mapping[int, Sequence[Sequence[float]]]


def flags_of(
    order: CaseOrder,
    cell: CellOrder,
    found: CellFindings,
    measured: tuple[Measurement | None, MemoryReport | None],
    environment: Environment,
) -> list[Flag]:
    """Every flag of one cell, sorted."""
    measurement, memory = measured
    on_cpu = environment.device_type == "cpu"
    facts = {
        Flag.CPU: on_cpu,
        Flag.INTERPRETED: found.interpreted,
        Flag.GRADIENTS_IN_FORWARD: found.gradients_in_forward,
        Flag.NOT_STEADY: not found.steady,
        Flag.COMPILE_IN_TIMING: any(
            taken["compiled"] + taken["compiled_beside"] for taken in found.vitals.values()
        ),
        Flag.MEMORY_NONDETERMINISTIC: memory is not None and not memory.repeats_equal,
        Flag.ALLOC_RETRY: memory is not None and memory.alloc_retries > 0,
    }
    flags = {flag for flag, holds in facts.items() if holds}
    flags |= {Flag(word) for taken in found.vitals.values() for word in taken["flags"]}
    flags |= _flags_over_visits(found)
    if measurement is not None:
        flags |= _timing_flags(measurement, environment)
        if is_above_roof(order.case, cell.pass_, measurement, found, environment):
            flags.add(Flag.SUSPECT)
        if on_cpu and environment.facts.get("self_test_passed") is False:
            flags.add(Flag.NOISY)
    return sorted(flags)


def _flags_over_visits(found: CellFindings) -> set[Flag]:
    """What the medians of visits show: of every arm, since a ratio has two sides."""
    flags = set()
    arms = [arm for arm in (found.visits, found.baseline_visits, found.floor_visits) if arm]
    if any(visits_differ(made) for arm in arms for made in arm.values()):
        flags.add(Flag.NOISY)
    if any(find_drift(_medians(arm)) for arm in arms):
        flags.add(Flag.DRIFT)
    # the floor is bare products: of the two it is the one that draws no lot at all
    base = found.floor_visits or found.baseline_visits
    if base and find_two_modes(_log_ratios(found.visits, base)):
        flags.add(Flag.MULTI_MODAL)
    if any(0 < _samples(arm) < LOW_N for arm in arms):
        flags.add(Flag.LOW_N)
    return flags


def _medians(visits: Visits) -> list[list[float]]:
    return [[statistics.median(visit) for visit in made if visit] for made in visits.values()]


def _samples(visits: Visits) -> int:
    return sum(len(visit) for made in visits.values() for visit in made)


def _log_ratios(visits: Visits, base: Visits) -> list[float]:
    both = [(made, base[process]) for process, made in visits.items() if process in base]
    return [log for own, other in both if (log := visit_log_ratio(own, other)) is not None]


def _timing_flags(measurement: Measurement, environment: Environment) -> set[Flag]:
    flags = set()
    if is_noisy(measurement.latency):
        flags.add(Flag.NOISY)
    if environment.device_type == "cuda" and measurement.latency.median_ms < LAUNCH_BOUND_MS:
        flags.add(Flag.LAUNCH_BOUND)
    floor = measurement.floor_ratio
    if floor is not None and floor.value < SUSPECT_FLOOR_RATIO:
        flags.add(Flag.SUSPECT)
    return flags


def product_flops(case: Case, pass_: Pass, gradients_in_forward: bool) -> float:
    """Operations of the products that a pass cannot do without; 0 for a stream of token counts."""
    if not isinstance(case.tokens, int):
        return 0.0
    # brings torch: a worker is ready sooner, and smaller, without it
    from lossbench.kernels.floor import floor_products

    products = floor_products(pass_.value, gradients_in_forward, case.options.frozen)
    valid = case.tokens * (1.0 - case.options.ignored_share)
    return 2.0 * valid * case.hidden * case.vocab * len(products)


def is_above_roof(
    case: Case,
    pass_: Pass,
    measurement: Measurement,
    found: CellFindings,
    environment: Environment,
) -> bool:
    """Whether the products alone would need a faster device than was measured at the start.

    The roof of a GPU is its bfloat16 rate, which no other dtype exceeds. On a CPU it is float32's,
    taken while others may have used the cores: it judges wider dtypes only, without a floor.
    """
    roof = environment.facts.get("gemm_tflops")
    if not isinstance(roof, int | float) or roof <= 0:
        return False
    if environment.device_type == "cpu" and (
        measurement.floor is not None or case.dtype not in (Dtype.FLOAT32, Dtype.FLOAT64)
    ):
        return False
    flops = product_flops(case, pass_, found.gradients_in_forward)
    return flops / (measurement.latency.median_ms * 1e-3) / 1e12 > roof * ABOVE_ROOF
