"""From stored alerts to what the API and the pages show, with the decision made again."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..contract.alert import AlertCase, AlertDetail, AlertView
from ..contract.words import Grade
from ..statistics.change_points import find_changes, find_exact_steps
from ..statistics.multiple_tests import FALSE_SHARE, adjusted_p_values
from ..statistics.release_steps import MeasuredRatio, candidates_among, step_between
from ..store.models import AlertCaseRow, AlertRow

PLACE_ERROR = 3
"""Points by which a step that is found again may lie elsewhere."""


def alert_view(row: AlertRow) -> AlertView:
    """An alert as it is listed."""
    return AlertView.model_validate(row, from_attributes=True)


def alert_detail(row: AlertRow) -> AlertDetail:
    """An alert with its cases, and whether today's code decides the same from the same inputs."""
    return AlertDetail(
        **alert_view(row).model_dump(),
        cases=tuple(_case(case) for case in row.cases),
        explain=row.explain,
        same_today=decides_alike(row.explain),
    )


def _case(row: AlertCaseRow) -> AlertCase:
    names = [name for name in AlertCase.model_fields if name not in ("case", "pass_")]
    values = {name: getattr(row, name) for name in names}
    return AlertCase.model_validate({**values, "case": row.case_text, "pass": row.pass_})


def decides_alike(explain: Mapping[str, Any]) -> bool | None:
    """Whether every case is still a candidate; None where nothing was kept to decide from."""
    cases = explain.get("cases")
    if not cases:
        return None
    return all(_again(case, explain["batches"][case["batch"]]) for case in cases)


def _again(case: Mapping[str, Any], batch: Sequence[float]) -> bool:
    if case["method"] != "release_steps":
        return _step_is_there(case)
    before, after = (MeasuredRatio(*ratio) for ratio in case["ratios"])
    step = step_between(before, after)
    others = list(batch)
    if step.p_value in others:
        others.remove(step.p_value)
    adjusted = adjusted_p_values([step.p_value, *others])[0]
    large = candidates_among([step], false_share=1.0)[0][0]
    return large and adjusted <= FALSE_SHARE


def _step_is_there(case: Mapping[str, Any]) -> bool:
    """Whether the series still steps within a few points of the place."""
    known = [(at, value) for at, value in enumerate(case["values"]) if value is not None]
    places = [at for at, _ in known]
    if case["metric"] == "time":
        found = find_changes([math.log(value) for _, value in known])
    elif case["metric"] == "memory":
        found = find_exact_steps([float(value) for _, value in known])
    else:
        ranks = [float(list(Grade).index(Grade(value))) for _, value in known]
        found = find_exact_steps(ranks, least_change=0.5, least_share=0.0)
    firsts = [places[point.index] for point in found.points]
    firsts += [places[drift.last] for drift in found.drifts]
    return any(abs(first - case["index_after"]) <= PLACE_ERROR for first in firsts)
