"""What the visits of proving processes show, per duration class: no torch, no device.

A line is what `proof.measure_shape` gave for one process and shape. r is one log ratio of times per
process, to arm A of the same process.
"""

import math
import random
import statistics
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from lossbench.service.contract.words import Verdict
from lossbench.service.statistics.summary import visit_log_ratio
from lossbench.service.statistics.verdict import (
    LOOKS,
    Decision,
    decide,
    minimum_detectable_effect,
)

SHOWN_PROCESSES = (3, 8, 16, 24)
FEW = 8
"""Below so many processes A' alone says little of the deviation: the planted arms are used too."""
DRAWS = 200
SEED = 20261130
Line = Mapping[str, Any]


def by_case(lines: Iterable[Line]) -> dict[str, list[Line]]:
    """Lines that measured something by case, one a process, in the order of processes."""
    found: dict[str, dict[int, Line]] = {}
    for line in lines:
        if "visits" in line:
            found.setdefault(line["case"], {})[line["process"]] = line
    return {case: [made[p] for p in sorted(made)] for case, made in found.items()}


def log_ratios(lines: Sequence[Line], arm: str) -> list[float]:
    """r of an arm, one a process."""
    made = (visit_log_ratio(line["visits"][arm], line["visits"]["A"]) for line in lines)
    return [log for log in made if log is not None]


def verdict_of(values: Sequence[float]) -> Decision:
    """As a series that ends at the first look with an answer."""
    decision = decide(values[: LOOKS[0]])
    for look in LOOKS:
        if look <= len(values):
            decision = decide(values[:look])
            if decision.verdict is not Verdict.INCONCLUSIVE:
                break
    return decision


def deviation_of(lines: Sequence[Line]) -> float | None:
    """Standard deviation of r of the same code; None for one process.

    Fewer than FEW processes: the larger of it and of all arms' pooled one, what was planted taken
    off, since three values alone agree by luck.
    """
    if len(lines) < 2:
        return None
    own = statistics.stdev(log_ratios(lines, "A'"))
    if len(lines) >= FEW:
        return own
    planted = [
        [
            log - math.log1p(line["planted"][arm])
            for log, line in zip(log_ratios(lines, arm), lines, strict=True)
        ]
        for arm in lines[0]["planted"]
    ]
    variances = [own**2, *(statistics.variance(values) for values in planted)]
    return max(own, math.sqrt(statistics.fmean(variances)))


def lag_correlation(values: Sequence[float]) -> float | None:
    """Correlation of each process with the next; None where there are too few to say."""
    if len(values) < 4 or len(set(values)) == 1:
        return None
    centre = statistics.fmean(values)
    off = [value - centre for value in values]
    return sum(a * b for a, b in pairwise(off)) / sum(a * a for a in off)


def position_effect(lines: Sequence[Line]) -> dict[str, float]:
    """Mean log of a visit over its arm's mean in the process, by place in the round."""
    places: dict[int, list[float]] = {}
    for line in lines:
        centres = {
            arm: statistics.fmean(math.log(statistics.median(visit)) for visit in made)
            for arm, made in line["visits"].items()
        }
        for number, order in enumerate(line["order"]):
            for place, arm in enumerate(order):
                log = math.log(statistics.median(line["visits"][arm][number]))
                places.setdefault(place, []).append(log - centres[arm])
    return {str(place): statistics.fmean(logs) for place, logs in sorted(places.items())}


def drawn_verdicts(values: Sequence[float], processes: int) -> dict[str, int]:
    """Verdicts at one look over random choices of processes: one series says little of a rate."""
    if len(values) < processes:
        return {}
    chance = random.Random(SEED)
    draws = 1 if len(values) == processes else DRAWS
    made = [decide(chance.sample(list(values), processes)).verdict for _ in range(draws)]
    return {verdict.value: made.count(verdict) for verdict in Verdict if verdict in made}


def disjoint_verdicts(values: Sequence[float], processes: int) -> dict[str, int]:
    """Verdicts of neighbouring groups that share no process: independent of each other."""
    groups = len(values) // processes
    made = [decide(values[i * processes : (i + 1) * processes]).verdict for i in range(groups)]
    return {verdict.value: made.count(verdict) for verdict in Verdict if verdict in made}


def arm_figures(lines: Sequence[Line], arm: str) -> dict[str, Any]:
    """One arm against A: what it read, what was planted, and the verdicts on it."""
    values = log_ratios(lines, arm)
    decision = verdict_of(values)
    planted = [line["planted"][arm] for line in lines if arm in line["planted"]]
    return {
        "planted": statistics.median(planted) if planted else 0.0,
        "read": math.expm1(statistics.fmean(values)),
        "deviation": statistics.stdev(values) if len(values) > 1 else None,
        "verdict": decision.verdict.value,
        "at_processes": decision.processes,
        "drawn": {str(p): drawn_verdicts(values, p) for p in SHOWN_PROCESSES if p <= len(values)},
        "log_ratios": values,
    }


def class_figures(case: str, lines: Sequence[Line]) -> dict[str, Any]:
    """Everything of one duration class."""
    deviation = deviation_of(lines)
    same = log_ratios(lines, "A'")
    wall = sum(line["wall_s"] for line in lines)
    return {
        "case": case,
        "contender": lines[0]["contender"],
        "call_ms": statistics.median(line["call_ms"] for line in lines),
        "processes": len(lines),
        "deviation": deviation,
        "detectable": {
            str(p): minimum_detectable_effect(deviation, p) if deviation is not None else None
            for p in SHOWN_PROCESSES
        },
        "same_code": {**arm_figures(lines, "A'"), "disjoint": disjoint_verdicts(same, LOOKS[0])},
        "slowdowns": {arm: arm_figures(lines, arm) for arm in lines[0]["planted"]},
        "lag_correlation": lag_correlation(same),
        "position": position_effect(lines),
        "timed_share": sum(line["timed_s"] for line in lines) / wall if wall > 0 else 0.0,
        "flags": sorted({flag for line in lines for flag in line["flags"]}),
        "not_steady": sum(not line["steady"] for line in lines),
    }


def figures(lines: Iterable[Line]) -> dict[str, Any]:
    """Figures of every class, shortest calls first; `passed`: no verdict on the same code."""
    held = list(lines)
    classes = [class_figures(case, made) for case, made in by_case(held).items()]
    classes.sort(key=lambda found: float(found["call_ms"]))
    wrong = (Verdict.SLOWER.value, Verdict.FASTER.value)
    return {
        "classes": classes,
        "failed": [line for line in held if "failed" in line],
        "passed": bool(classes) and all(c["same_code"]["verdict"] not in wrong for c in classes),
    }
