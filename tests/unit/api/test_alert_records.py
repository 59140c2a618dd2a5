"""Whether a decision made again from kept inputs comes out alike: both answers."""

from typing import Any

import pytest

from lossbench.service.api.alert_records import decides_alike

STEP = {
    "method": "release_steps",
    "batch": 0,
    "ratios": [[0.5, 0.495, 0.505, 3], [0.6, 0.594, 0.606, 3]],
}
SERIES = {
    "method": "history_changes",
    "batch": 0,
    "metric": "memory",
    "values": [2**30] * 6 + [2**31] * 6,
    "index_after": 6,
}


def explained(*cases: dict[str, Any], batch: list[float] | None = None) -> dict[str, Any]:
    return {"batches": [batch or []], "cases": list(cases)}


def test_same_inputs_decide_alike_and_nothing_decides_nothing() -> None:
    assert decides_alike(explained(STEP, SERIES)) is True
    assert decides_alike({}) is None


@pytest.mark.parametrize(
    "case",
    [
        {**STEP, "ratios": [[0.5, 0.495, 0.505, 3], [0.501, 0.496, 0.506, 3]]},
        {**STEP, "ratios": [[0.5, 0.3, 0.8, 3], [0.6, 0.4, 0.9, 3]]},
        {**SERIES, "values": [2**30] * 12},
        {**SERIES, "index_after": 1},
        {**SERIES, "metric": "time", "values": [1.0, 1.001] * 10, "index_after": 10},
        {**SERIES, "metric": "error", "values": ["fair"] * 12},
    ],
)
def test_inputs_without_the_change_do_not_decide_alike(case: dict[str, Any]) -> None:
    assert decides_alike(explained(case)) is False
    assert decides_alike(explained(STEP, case)) is False


def test_step_that_is_lost_among_its_batch_is_no_candidate() -> None:
    weak = {**STEP, "ratios": [[0.5, 0.48, 0.521, 3], [0.55, 0.528, 0.573, 3]]}
    assert decides_alike(explained(weak)) is True
    assert decides_alike(explained(weak, batch=[0.9] * 200)) is False
