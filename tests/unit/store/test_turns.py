"""Fair share: whose lot is next when several tokens and jobs wait."""

from typing import Any
from unittest.mock import create_autospec

import pytest

from lossbench.service.contract.catalogue import load_catalogue
from lossbench.service.contract.job import JobRequest
from lossbench.service.contract.plan import plan_job
from lossbench.service.contract.words import LotState
from lossbench.service.store.database import Database
from lossbench.service.store.jobs import Jobs, get_job
from lossbench.service.store.models import LotRow, TokenRow
from lossbench.service.store.queue import LotQueue
from lossbench.service.store.tokens import create_token


class Desk:
    """Submits jobs of several tokens, and takes lots in the order of the queue."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.queue: Any = create_autospec(LotQueue, instance=True)
        self.jobs = Jobs(database, self.queue)

    def token(self, name: str) -> str:
        with self.database.transaction() as session:
            row: TokenRow = create_token(session, name, [])[0]
            return row.id

    def submit(self, token: str | None, lots: int, **changes: Any) -> str:
        """A job of so many lots."""
        sweep = {"tokens": list(range(1, 25 * lots + 1))}
        body = {
            "contenders": ["torch-naive"],
            "shapes": [{"tokens": 8, "hidden": 4, "vocab": 16}],
            "dtypes": ["float32"],
            "sweep": sweep,
            "processes": 1,
            **changes,
        }
        plan = plan_job(JobRequest.model_validate(body), load_catalogue())
        job = self.jobs.submit(plan, {}, "h200", token_id=token)
        with self.database.reading() as session:
            assert len(get_job(session, job).lots) == lots
        return job

    def order(self) -> list[str]:
        """Jobs of the waiting lots, first to last; equal priorities keep the order of their coming,
        as in the queue.
        """
        calls = [call.args[1:] for call in self.queue.enqueue.call_args_list]
        with self.database.reading() as session:
            waiting = [
                (place[1], number, lot.job_id)
                for number, (lot_id, _, place) in enumerate(calls)
                if (lot := session.get_one(LotRow, lot_id)).state == LotState.QUEUED
            ]
        return [job for _, _, job in sorted(waiting)]

    def take(self, number: int) -> None:
        """Let so many lots of the front be done."""
        for _ in range(number):
            front = self.order()[0]
            with self.database.transaction() as session:
                lots = [lot for lot in get_job(session, front).lots if lot.state == "queued"]
                lots[0].state = LotState.DONE.value


@pytest.fixture
def desk(database: Database) -> Desk:
    return Desk(database)


def test_token_with_one_job_does_not_wait_behind_the_many_of_another(desk: Desk) -> None:
    busy, calm = desk.token("busy"), desk.token("calm")
    many = [desk.submit(busy, 1) for _ in range(8)]
    one = desk.submit(calm, 1)
    assert desk.order().index(one) == 1
    assert [job for job in desk.order() if job != one] == many


def test_lots_of_two_tokens_alternate(desk: Desk) -> None:
    first, second = desk.submit(desk.token("a"), 3), desk.submit(desk.token("b"), 3)
    assert desk.order() == [first, second] * 3


def test_newcomer_does_not_overtake_all_that_waits(desk: Desk) -> None:
    old = desk.submit(desk.token("a"), 6)
    desk.take(3)
    new = desk.submit(desk.token("b"), 3)
    assert desk.order() == [old, new] * 3


def test_small_job_of_the_same_token_runs_between_the_lots_of_a_large_one(desk: Desk) -> None:
    token = desk.token("a")
    large = desk.submit(token, 6)
    small = desk.submit(token, 1)
    assert desk.order() == [large, large, small, *[large] * 4]


def test_without_tokens_jobs_share_as_those_of_one_token(desk: Desk) -> None:
    first = desk.submit(None, 2)
    second = desk.submit(None, 2)
    assert desk.order() == [first, first, second, second]


def test_priority_goes_before_turns(desk: Desk) -> None:
    slow = desk.submit(desk.token("a"), 3, priority=6)
    urgent = desk.submit(desk.token("b"), 2, priority=2)
    assert desk.order() == [urgent, urgent, slow, slow, slow]
