"""The reaper with a clock and a queue of its own: who is dead, what goes back, what ends."""

import math
from datetime import timedelta
from typing import Any
from unittest.mock import MagicMock, create_autospec

import pytest
import sqlalchemy as sa

from lossbench.service.contract.catalogue import load_catalogue
from lossbench.service.contract.job import JobRequest
from lossbench.service.contract.plan import plan_job
from lossbench.service.contract.run import Environment
from lossbench.service.store.database import Database
from lossbench.service.store.events import events_after, now
from lossbench.service.store.jobs import Jobs, get_cell_log, get_job, list_cells
from lossbench.service.store.models import JobRow, WorkerRow
from lossbench.service.store.queue import PRIORITY_STEP, LotQueue
from lossbench.service.store.reaper import Reaper
from lossbench.service.store.work import Work
from lossbench.service.store.workers import (
    STOPPED,
    beat,
    register_worker,
    set_worker_state,
)

STALE_S = 10.0


class Shop:
    """A database with a reaper whose clock stands still until a test moves it."""

    def __init__(self, database: Database, environment: Environment) -> None:
        self.database, self._environment = database, environment
        self.queue: MagicMock = create_autospec(LotQueue, instance=True)
        self.queue.held.return_value = []
        self.queue.ended.return_value = []
        self.time = 1000.0
        self.reaper = Reaper(database, self.queue, STALE_S, 3, clock=lambda: self.time)

    def worker(self, name: str = "wrk-1", queue: str = "h200") -> Work:
        register_worker(self.database, name, name, [queue], self._environment)
        return Work(self.database, name)

    def submit(self, route: str = "h200", **changes: Any) -> tuple[str, str]:
        """Ids of the job and of its only lot."""
        body = {
            "contenders": ["torch-naive", "torch-upcast"],
            "shapes": [{"tokens": 8, "hidden": 4, "vocab": 16}],
            "sweep": {"tokens": [8, 16]},
            **changes,
        }
        plan = plan_job(JobRequest.model_validate(body), load_catalogue())
        job_id = Jobs(self.database, self.queue).submit(plan, {}, route)
        with self.database.reading() as session:
            return job_id, get_job(session, job_id).lots[0].id

    def begin(self, work: Work, lot: str, attempt: int = 1, case: int = 0) -> None:
        """Claim a lot, begin a case, say so in the heartbeat; the queue holds it from now on."""
        work.begin_lot(lot, attempt)
        work.begin_case(lot, attempt, case)
        beat(self.database, work._worker_id, "busy", lot)
        self.queue.held.return_value = [(lot, attempt, work._worker_id)]

    def tick_after(self, seconds: float) -> None:
        """Rounds at most 2 s apart: more would count as time in which the reaper was away."""
        rounds = max(1, math.ceil(seconds / 2))
        for _ in range(rounds):
            self.time += seconds / rounds
            self.reaper.tick()

    def lot(self, job_id: str) -> tuple[int, str, str | None, str]:
        """Attempt, state, worker and queue."""
        with self.database.reading() as session:
            lot = get_job(session, job_id).lots[0]
            return lot.attempt, lot.state, lot.worker_id, lot.queue

    def cells(self, job_id: str) -> list[tuple[str, str | None, int, int]]:
        """State, outcome, deaths and attempt of every cell."""
        with self.database.reading() as session:
            return [
                (cell.state, cell.outcome, cell.deaths, cell.attempt)
                for cell in list_cells(session, job_id)
            ]

    def states(self) -> dict[str, str]:
        with self.database.reading() as session:
            return {row.id: row.state for row in session.scalars(sa.select(WorkerRow))}

    def job(self, job_id: str) -> tuple[str, str | None]:
        with self.database.reading() as session:
            job = get_job(session, job_id)
            return job.state, job.reason


@pytest.fixture
def shop(database: Database, make_environment: Any) -> Shop:
    return Shop(database, make_environment())


def test_worker_is_dead_when_its_beat_stands_still_too_long(shop: Shop) -> None:
    shop.worker()
    shop.tick_after(0)
    shop.tick_after(STALE_S)
    assert shop.states() == {"wrk-1": "idle"}
    shop.tick_after(0.1)
    assert shop.states() == {"wrk-1": "gone"}


def test_worker_that_beats_stays_alive_whatever_the_wall_clock_says(shop: Shop) -> None:
    shop.worker()
    with shop.database.transaction() as session:
        past = now() - timedelta(days=1)
        session.execute(sa.update(WorkerRow).values(beat_at=past))
    for _ in range(5):
        shop.tick_after(STALE_S - 0.1)
        beat(shop.database, "wrk-1", "idle")
    assert shop.states() == {"wrk-1": "idle"}


def test_lot_of_a_dead_worker_goes_back_and_its_case_is_charged(shop: Shop) -> None:
    work = shop.worker()
    job_id, lot = shop.submit(priority=2)
    shop.begin(work, lot)
    shop.tick_after(0)
    assert shop.lot(job_id)[:2] == (1, "running")
    shop.tick_after(STALE_S + 0.1)
    assert shop.lot(job_id) == (2, "queued", None, "h200")
    assert shop.cells(job_id) == [("queued", None, 1, 2)] * 2 + [("queued", None, 0, 2)] * 2
    assert shop.queue.enqueue.call_args.args[1:] == (lot, 2, ("h200", 2 * PRIORITY_STEP))
    shop.queue.withdraw.assert_called_once_with([(lot, 1)])
    with shop.database.reading() as session:
        lines = [event.data for event in events_after(session, 0, job_id) if event.kind == "log"]
    assert lines == [{"line": "lot 0: worker wrk-1 died; queued again"}]


def test_lot_of_a_live_worker_is_left_alone(shop: Shop) -> None:
    work = shop.worker()
    job_id, lot = shop.submit()
    shop.begin(work, lot)
    for _ in range(5):
        shop.tick_after(STALE_S - 0.1)
        beat(shop.database, "wrk-1", "busy", lot)
    assert shop.lot(job_id)[:2] == (1, "running")


def test_case_that_killed_three_workers_fails_and_the_rest_goes_on(shop: Shop) -> None:
    job_id, lot = shop.submit()
    for attempt in (1, 2, 3):
        work = shop.worker(f"wrk-{attempt}")
        shop.begin(work, lot, attempt)
        shop.tick_after(0)
        shop.tick_after(STALE_S + 0.1)
    assert shop.cells(job_id) == [("done", "failed", 3, 4)] * 2 + [("queued", None, 0, 4)] * 2
    assert shop.lot(job_id)[:2] == (4, "queued")
    with shop.database.reading() as session:
        reason = list_cells(session, job_id)[0].reason
    assert reason == "worker wrk-3 died while measuring this case, 3 times"
    assert shop.job(job_id)[0] == "running"


def test_job_whose_last_case_is_poison_ends(shop: Shop) -> None:
    job_id, lot = shop.submit(sweep={"tokens": [8]})
    for attempt in (1, 2, 3):
        shop.begin(shop.worker(f"wrk-{attempt}"), lot, attempt)
        shop.tick_after(0)
        shop.tick_after(STALE_S + 0.1)
    assert shop.job(job_id)[0] == "done"
    assert shop.lot(job_id)[1] == "done"
    assert shop.queue.enqueue.call_count == 3


def test_give_back_of_an_older_attempt_changes_nothing(shop: Shop) -> None:
    work = shop.worker()
    job_id, lot = shop.submit()
    shop.begin(work, lot)
    shop.reaper.give_back(lot, 1, "test")
    shop.reaper.give_back(lot, 1, "test")
    assert shop.lot(job_id)[:2] == (2, "queued")
    assert shop.queue.enqueue.call_count == 2


def test_give_back_of_an_unknown_lot_only_withdraws_it(shop: Shop) -> None:
    shop.reaper.give_back("lot-none", 1, "test")
    shop.queue.withdraw.assert_called_once_with([("lot-none", 1)])
    shop.queue.enqueue.assert_not_called()


def test_lot_held_by_an_unknown_worker_goes_back_after_a_while(shop: Shop) -> None:
    job_id, lot = shop.submit()
    shop.queue.held.return_value = [(lot, 1, "wrk-lost")]
    shop.tick_after(0)
    shop.tick_after(STALE_S)
    assert shop.lot(job_id)[0] == 1
    shop.tick_after(0.1)
    assert shop.lot(job_id)[:2] == (2, "queued")


def test_lot_that_its_live_worker_dropped_goes_back_after_a_while(shop: Shop) -> None:
    work = shop.worker()
    job_id, lot = shop.submit()
    shop.begin(work, lot)
    shop.queue.held.return_value = []
    for seconds in (0, STALE_S, 0.1):
        beat(shop.database, "wrk-1", "idle", None)
        shop.tick_after(seconds)
    assert shop.lot(job_id)[:2] == (2, "queued")


def test_lot_dropped_by_a_worker_that_then_died_goes_back(shop: Shop) -> None:
    """The workflow ended with an error, so the queue holds nothing, and then the worker left."""
    work = shop.worker()
    job_id, lot = shop.submit()
    shop.begin(work, lot)
    shop.queue.held.return_value = []
    shop.tick_after(0)
    for _ in range(3):
        shop.tick_after(STALE_S + 0.1)
    assert shop.states() == {"wrk-1": "gone"}
    assert shop.lot(job_id)[:2] == (2, "queued")


def test_dropped_lot_that_is_taken_up_again_is_left_alone(shop: Shop) -> None:
    work = shop.worker()
    job_id, lot = shop.submit()
    shop.begin(work, lot)
    beat(shop.database, "wrk-1", "idle", None)
    shop.tick_after(STALE_S - 1)
    beat(shop.database, "wrk-1", "busy", lot)
    shop.tick_after(STALE_S - 1)
    beat(shop.database, "wrk-1", "idle", None)
    shop.tick_after(STALE_S - 1)
    assert shop.lot(job_id)[0] == 1


def test_waiting_lot_is_routed_to_the_first_live_worker(shop: Shop) -> None:
    job_id, lot = shop.submit(route="any", priority=3)
    shop.tick_after(0)
    assert shop.lot(job_id)[3] == "any"
    shop.queue.enqueue.assert_not_called()
    shop.worker(queue="h200")
    shop.tick_after(1)
    assert shop.lot(job_id)[3] == "h200"
    shop.queue.ensure.assert_called_with("h200")
    assert shop.queue.enqueue.call_args.args[1:] == (lot, 1, ("h200", 3 * PRIORITY_STEP))
    shop.tick_after(1)
    shop.queue.enqueue.assert_called_once()


def overdue(shop: Shop, job_id: str) -> None:
    with shop.database.transaction() as session:
        job = session.get_one(JobRow, job_id)
        job.deadline_at = now() - timedelta(seconds=1)


def test_job_past_its_deadline_before_it_began_fails(shop: Shop) -> None:
    job_id, lot = shop.submit(deadline_s=60)
    shop.tick_after(0)
    assert shop.job(job_id)[0] == "queued"
    overdue(shop, job_id)
    shop.tick_after(1)
    assert shop.job(job_id) == ("failed", "none of its cells could run")
    assert {cell[:2] for cell in shop.cells(job_id)} == {("done", "cancelled")}
    assert shop.lot(job_id)[1] == "cancelled"
    shop.queue.withdraw.assert_called_once_with([(lot, 1)])


def test_job_past_its_deadline_when_retried_gets_a_new_one(shop: Shop) -> None:
    job_id, _ = shop.submit(deadline_s=60)
    overdue(shop, job_id)
    shop.tick_after(1)
    assert Jobs(shop.database, shop.queue).retry(job_id, "h200") == 4
    shop.tick_after(1)
    assert shop.job(job_id)[0] == "queued"


def test_job_past_its_deadline_lets_its_running_lot_end(shop: Shop) -> None:
    work = shop.worker()
    job_id, lot = shop.submit(deadline_s=60)
    shop.begin(work, lot)
    overdue(shop, job_id)
    shop.tick_after(1)
    assert shop.job(job_id)[0] == "running"
    assert [cell[0] for cell in shop.cells(job_id)] == ["running"] * 2 + ["queued"] * 2


def test_job_without_deadline_is_never_overdue(shop: Shop) -> None:
    job_id, _ = shop.submit()
    shop.time += 1e6
    shop.reaper.tick()
    assert shop.job(job_id)[0] == "queued"


def test_time_in_which_the_reaper_was_away_makes_no_worker_dead(shop: Shop) -> None:
    """The database was stopped for a minute, or this process: no beat could be seen."""
    shop.worker()
    shop.tick_after(1)
    shop.time += 60
    shop.reaper.tick()
    assert shop.states() == {"wrk-1": "idle"}
    shop.tick_after(STALE_S)
    assert shop.states() == {"wrk-1": "gone"}, "what was watched since counts"


def test_rounds_that_fail_count_as_time_away(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.worker()
    shop.tick_after(1)

    def fail() -> None:
        raise sa.exc.OperationalError("SELECT", {}, Exception("the server is away"))

    with monkeypatch.context() as patched:
        patched.setattr(shop.database, "reading", fail)
        for _ in range(30):
            shop.time += 1
            with pytest.raises(sa.exc.OperationalError):
                shop.reaper.tick()
    shop.tick_after(1)
    assert shop.states() == {"wrk-1": "idle"}


def test_worker_that_was_told_to_stop_charges_its_case_with_no_death(shop: Shop) -> None:
    for attempt in range(1, 6):
        name = f"wrk-{attempt}"
        work = shop.worker(name)
        if attempt == 1:
            job_id, lot = shop.submit()
        shop.begin(work, lot, attempt)
        with shop.database.transaction() as session:
            set_worker_state(session, name, "gone", STOPPED)
        shop.tick_after(1)
        assert shop.lot(job_id)[:2] == (attempt + 1, "queued")
    assert {cell[:3] for cell in shop.cells(job_id)} == {("queued", None, 0)}


def test_deaths_of_a_poison_case_stand_in_its_log(shop: Shop) -> None:
    job_id, lot = shop.submit()
    for attempt in (1, 2, 3):
        shop.begin(shop.worker(f"wrk-{attempt}"), lot, attempt)
        shop.tick_after(0)
        shop.tick_after(STALE_S + 1)
    with shop.database.reading() as session:
        cell = list_cells(session, job_id)[0]
        assert (cell.outcome, cell.deaths) == ("failed", 3)
        lines = get_cell_log(session, cell).splitlines()
    assert lines == [
        f"attempt {n}: worker wrk-{n} died while measuring this case" for n in (1, 2, 3)
    ]


def test_lot_whose_place_in_the_queue_is_lost_is_queued_again(shop: Shop) -> None:
    job_id, lot = shop.submit()
    shop.queue.ended.return_value = [(lot, 1)]
    shop.tick_after(0)
    shop.tick_after(STALE_S)
    assert shop.lot(job_id)[:2] == (1, "queued")
    shop.tick_after(1)
    assert shop.lot(job_id)[:2] == (2, "queued")
    assert shop.cells(job_id)[0] == ("queued", None, 0, 2)
    assert shop.queue.ended.call_args.args[0] == [(lot, 1)]
