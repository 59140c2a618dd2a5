"""Jobs that measure the cases of an alert again, the two versions head to head."""

from collections.abc import Sequence
from typing import Any

from ..contract.alert import AlertMetric, AlertState
from ..contract.case import Case
from ..contract.contender import Contender
from ..contract.errors import ConflictError
from ..contract.job import JobRequest
from ..contract.machine import accelerator_name
from ..contract.words import JobKind
from ..store.alert_models import AlertCaseRow, AlertRow

PROCESSES = 16
"""Processes before the first look: a 1 % step is found in nine of ten cases (docs/measuring.md)."""


def confirmation_jobs(alert: AlertRow) -> list[JobRequest]:
    """One job for all cases that differ in nothing but their shape. Raises ConflictError."""
    if alert.state != AlertState.CANDIDATE.value:
        raise ConflictError(f"alert {alert.id} is {alert.state}; only a candidate is confirmed")
    cases = [case for case in alert.cases if case.metric == AlertMetric.TIME.value]
    if not cases:
        raise ConflictError(f"alert {alert.id} has no time to measure again")
    groups: dict[tuple[Any, ...], list[AlertCaseRow]] = {}
    for case in cases:
        what = Case.parse(case.case_text)
        alike = (what.dtype, what.recipe, what.options.model_dump_json())
        key = (case.params, case.pass_, case.device_name, *alike)
        groups.setdefault(key, []).append(case)
    return [_job(alert, some) for some in groups.values()]


def _job(alert: AlertRow, cases: Sequence[AlertCaseRow]) -> JobRequest:
    first, whats = cases[0], [Case.parse(case.case_text) for case in cases]
    sides = [
        _side(alert, version, first.params)
        for version in (first.before_version, first.after_version)
    ]
    return JobRequest.model_validate(
        {
            "kind": JobKind.COMPARE,
            "contenders": sides,
            "shapes": [_shape(what) for what in whats],
            "dtypes": [whats[0].dtype],
            "passes": [first.pass_],
            "recipes": [whats[0].recipe],
            "options": whats[0].options.model_dump(),
            "accelerator": accelerator_name(first.device_name),
            "processes": PROCESSES,
            "labels": {"alert": alert.id},
        }
    )


def _side(alert: AlertRow, version: str, params: str) -> str:
    text = f"{alert.kernel}@{version}{f'[{params}]' if params else ''}"
    return Contender.parse(text).text


def _shape(case: Case) -> dict[str, Any]:
    tokens = case.tokens
    return {
        "tokens": tokens if isinstance(tokens, int) else {"stream": tokens.model_dump()},
        "hidden": case.hidden,
        "vocab": case.vocab,
    }
