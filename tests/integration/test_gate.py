"""`lossbench compare --reuse`: stored verdicts in place of measuring, and only those that count."""

from collections.abc import Iterator
from typing import Any

import pytest

from lossbench.service.cli.reusing import stored_rows
from lossbench.service.client import LossbenchClient
from lossbench.service.contract.job import JobRequest
from lossbench.service.contract.run import PROTOCOL_VERSION
from lossbench.service.contract.words import Verdict

from .referee import BODY, SHAPE, Referee

SIDES = ["liger@0.6.5", "liger@0.8.5"]
LARGER = {**SHAPE, "tokens": 2048}


@pytest.fixture
def client(service: Any) -> Iterator[LossbenchClient]:
    service.context.start()
    with LossbenchClient(service.listen(), retry_wait_s=0.01) as client:
        yield client


def request(*shapes: dict[str, int], **changes: Any) -> JobRequest:
    chosen = list(shapes) or [SHAPE]
    body = {**BODY, "contenders": SIDES, "shapes": chosen, **changes}
    return JobRequest.model_validate(body)


def tokens_left(client: LossbenchClient, wanted: JobRequest) -> list[int]:
    """Tokens of the shapes that must be measured."""
    return [shape.tokens for shape in stored_rows(client, wanted)[1].shapes]  # type: ignore[misc]


def test_stored_verdict_answers_its_shape_and_others_are_measured(
    service: Any, client: LossbenchClient
) -> None:
    referee = Referee(service)
    assert tokens_left(client, request()) == [1024]
    referee.settle(referee.submit())
    rows, left = stored_rows(client, request(SHAPE, LARGER))
    assert [shape.tokens for shape in left.shapes] == [2048]
    (row,) = rows
    assert (row.case, row.verdict) == ("N1024-H512-V4096-bfloat16", "slower")
    assert row.base[1] is not None
    assert row.candidate[1] is not None
    assert (row.base[1].contender, row.base[1].latency_ms) == ("liger@0.6.5", 10.0)
    assert (row.candidate[1].contender, row.candidate[1].latency_ms) == ("liger@0.8.5", 20.0)
    assert row.candidate[0].reused


@pytest.mark.parametrize(
    "changes",
    [{"verdict": Verdict.INCONCLUSIVE}, {"protocol_version": PROTOCOL_VERSION - 1}],
)
def test_verdict_that_decides_nothing_or_is_of_an_old_protocol_is_measured_again(
    service: Any, client: LossbenchClient, changes: dict[str, Any]
) -> None:
    referee = Referee(service)
    referee.settle(referee.submit(), **changes)
    assert tokens_left(client, request()) == [1024]


def test_verdict_of_other_sides_accelerators_or_passes_is_measured_again(
    service: Any, client: LossbenchClient
) -> None:
    referee = Referee(service)
    referee.settle(referee.submit())
    assert tokens_left(client, request()) == []
    assert tokens_left(client, request(contenders=SIDES[::-1])) == [1024]
    assert tokens_left(client, request(passes=["forward", "forward_backward"])) == [1024]
    assert tokens_left(client, request(accelerator="h200")) == []
    assert tokens_left(client, request(accelerator="b200")) == [1024]


def test_verdict_on_an_invalidated_result_is_measured_again(
    service: Any, client: LossbenchClient
) -> None:
    referee = Referee(service)
    referee.settle(referee.submit())
    (view,) = client.comparisons()
    assert view.base_result_id is not None
    client.invalidate(view.base_result_id, "the fan was off")
    assert tokens_left(client, request()) == [1024]
