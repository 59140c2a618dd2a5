"""Places in the queue, queues that nobody serves, and the list of workers."""

from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from lossbench.service.store.aggregates import device_names
from lossbench.service.store.database import Database
from lossbench.service.store.jobs import get_job, list_jobs, queue_position
from lossbench.service.store.models import WorkerRow
from lossbench.service.store.views import job_views
from lossbench.service.store.workers import list_workers, register_worker

from .desk import Desk, Make


@pytest.fixture
def desk(database: Database, make_record: Make) -> Desk:
    made = Desk(database)
    made.make_record = make_record
    return made


def test_queue_position_counts_what_runs_first(desk: Desk) -> None:
    low = desk.submit(priority=9)
    first, second = desk.submit(), desk.submit()
    urgent = desk.submit(priority=1)
    with desk.database.reading() as session:
        order = {
            job: queue_position(session, get_job(session, job))
            for job in (urgent, first, second, low)
        }
    assert order == {urgent: 0, first: 1, second: 2, low: 3}
    desk.work.begin_lot(desk.lots(low)[0][0], 1)
    with desk.database.reading() as session:
        assert queue_position(session, get_job(session, urgent)) == 1
        assert queue_position(session, get_job(session, low)) == 0
        assert [job.id for job in list_jobs(session, limit=2)] == [urgent, second]
        assert [job.id for job in list_jobs(session, before=first)] == [low]


def test_queue_position_counts_only_what_the_same_workers_run(desk: Desk) -> None:
    for_gpu, for_cpu = desk.submit(route="h200"), desk.submit(route="cpu")
    second = desk.submit(route="cpu")
    with desk.database.reading() as session:
        places = {
            job: queue_position(session, get_job(session, job))
            for job in (for_gpu, for_cpu, second)
        }
    assert places == {for_gpu: 0, for_cpu: 0, second: 1}


def test_job_for_a_queue_that_nobody_serves_says_so_and_promises_no_end(
    desk: Desk, make_environment: Callable[..., Any]
) -> None:
    register_worker(desk.database, "wrk-1", "box", ["cpu"], make_environment())
    served, lost = desk.submit(route="cpu"), desk.submit(route="h2000")
    with desk.database.reading() as session:
        views = job_views(session, [get_job(session, job) for job in (served, lost)])
    assert [view.waits_for for view in views] == [None, "h2000"]
    assert views[0].remaining_s == views[0].estimated_s
    assert views[1].remaining_s is None


def test_live_worker_is_listed_before_many_that_are_gone(
    desk: Desk, make_environment: Callable[..., Any]
) -> None:
    register_worker(desk.database, "wrk-1", "box", ["cpu"], make_environment())
    for number in range(2, 503):
        register_worker(desk.database, f"wrk-{number}", "loop", ["cpu"], make_environment())
    with desk.database.transaction() as session:
        session.execute(sa.update(WorkerRow).where(WorkerRow.id != "wrk-1").values(state="gone"))
        listed = list_workers(session)
    assert (len(listed), listed[0].id) == (500, "wrk-1")


def test_device_of_a_worker_that_measured_nothing_is_none_of_the_results(
    desk: Desk, make_environment: Callable[..., Any]
) -> None:
    job_id = desk.submit(sweep={})
    ((lot, attempt, _),) = desk.lots(job_id)
    desk.work.begin_lot(lot, attempt)
    desk.measure(lot, 0)
    waiting = make_environment("elsewhere", "NVIDIA B200")
    register_worker(desk.database, "wrk-9", "box", ["b200"], waiting)
    with desk.database.reading() as session:
        assert device_names(session) == ["NVIDIA H200"]
