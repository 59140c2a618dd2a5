"""Jobs from submit to end, without DBOS: the queue is a mock that records what it is told."""

import pytest
import sqlalchemy as sa

from lossbench.service.contract.catalogue import load_catalogue
from lossbench.service.contract.errors import ConflictError, LotLostError, NotFoundError
from lossbench.service.contract.plan import plan_job
from lossbench.service.contract.words import JobState, Outcome
from lossbench.service.store.database import Database
from lossbench.service.store.events import events_after
from lossbench.service.store.job_results import results_of_job
from lossbench.service.store.jobs import (
    count_cells,
    get_cell,
    get_cell_log,
    get_job,
    list_cells,
)
from lossbench.service.store.known import KnownRun
from lossbench.service.store.models import LotRow
from lossbench.service.store.queue import PRIORITY_STEP
from lossbench.service.store.results import ResultFilter, insert_run, list_runs
from lossbench.service.store.views import job_views
from lossbench.service.store.work import LOG_BYTES, CellAnswer, Work

from .desk import Desk, Make, request


@pytest.fixture
def desk(database: Database, make_record: Make) -> Desk:
    made = Desk(database)
    made.make_record = make_record
    return made


def test_submit_stores_cells_in_order_and_enqueues_its_lot(desk: Desk) -> None:
    job_id = desk.submit(priority=7, labels={"branch": "main"})
    ((lot, attempt, state),) = desk.lots(job_id)
    assert (attempt, state) == (1, "queued")
    desk.queue.ensure.assert_called_once_with("h200")
    assert desk.queue.enqueue.call_args.args[1:] == (lot, 1, ("h200", 7 * PRIORITY_STEP))
    with desk.database.reading() as session:
        cells = list_cells(session, job_id)
        assert [cell.position for cell in cells] == [0, 1, 2, 3]
        assert [cell.position for cell in list_cells(session, job_id, after=1, limit=1)] == [2]
        assert get_job(session, job_id).labels == {"branch": "main"}
        assert [event.kind for event in events_after(session, 0, job_id)] == ["state"]


def test_submit_to_no_live_worker_waits_outside_the_queue(desk: Desk) -> None:
    job_id = desk.submit(route="any")
    assert desk.queue.method_calls == []
    assert desk.lots(job_id)[0][2] == "queued"


def test_submit_lots_of_a_job_share_by_position(desk: Desk) -> None:
    desk.submit(sweep={"tokens": list(range(1, 61))}, processes=1)
    places = [call.args[3] for call in desk.queue.enqueue.call_args_list]
    assert places == [("h200", 5 * PRIORITY_STEP + k) for k in range(len(places))]
    assert len(places) >= 3


def test_submit_of_cells_known_already_ends_at_once(desk: Desk, make_record: Make) -> None:
    plan = plan_job(request(), load_catalogue())
    with desk.database.transaction() as session:
        run_id = insert_run(session, make_record("torch-naive", "N8-H4-V16-float32"))
    known = {cell.cell.key: KnownRun(run_id, "ok") for cell in plan.cells}
    job_id = desk.submit(known)
    assert desk.lots(job_id) == []
    assert desk.state(job_id) == "done"
    with desk.database.reading() as session:
        assert all(cell.reused and cell.run_id == run_id for cell in list_cells(session, job_id))
    desk.queue.enqueue.assert_not_called()


def test_job_runs_from_queued_to_done(desk: Desk) -> None:
    job_id = desk.submit()
    ((lot, _, _),) = desk.lots(job_id)
    assert desk.work.begin_lot(lot, 1) == 2
    assert desk.state(job_id) == "running"
    desk.measure(lot, 0)
    assert desk.state(job_id) == "running"
    desk.measure(lot, 1)
    desk.work.finish_lot(lot, 1)
    assert desk.state(job_id) == "done"
    assert desk.cells(job_id) == [("done", "ok")] * 4
    with desk.database.reading() as session:
        kinds = [event.kind for event in events_after(session, 0, job_id)]
        assert kinds[-1] == "done"
        assert kinds.count("cell") == 8
        assert all(run is not None for _, run in results_of_job(session, job_id))
        assert get_cell_log(session, get_cell(session, job_id, 3)) == "log\n"


def test_results_are_found_by_job_and_by_label(desk: Desk) -> None:
    job_id = desk.submit(labels={"branch": "main"})
    other = desk.submit(labels={"branch": "dev"})
    for each in (job_id, other):
        ((lot, _, _),) = desk.lots(each)
        desk.work.begin_lot(lot, 1)
        desk.measure(lot, 0)
    with desk.database.reading() as session:
        by_job = {run.id for run in list_runs(session, ResultFilter(job=[job_id]))}
        by_label = {run.id for run in list_runs(session, ResultFilter(label=["branch=main"]))}
        both = list_runs(session, ResultFilter(label=["branch=main", "branch=dev"]))
        none = list_runs(session, ResultFilter(label=["branch=nope"], job=[job_id]))
    assert by_job == by_label
    assert (len(by_job), len(both), none) == (2, 4, [])


def test_count_cells_counts_by_state_and_outcome(desk: Desk) -> None:
    job_id = desk.submit()
    ((lot, _, _),) = desk.lots(job_id)
    desk.work.begin_lot(lot, 1)
    desk.measure(lot, 0, Outcome.WRONG)
    desk.work.begin_case(lot, 1, 1)
    with desk.database.reading() as session:
        found = count_cells(session, [job_id])[job_id]
        (view,) = job_views(session, [get_job(session, job_id)])
    assert (found.total, found.queued, found.running, found.done) == (4, 0, 2, 2)
    assert found.outcomes == {"wrong": 2}
    assert (view.cells_running, view.outcomes[Outcome.WRONG]) == (2, 2)


def test_cancel_ends_open_cells_and_withdraws_lots(desk: Desk) -> None:
    job_id = desk.submit()
    ((lot, _, _),) = desk.lots(job_id)
    desk.work.begin_lot(lot, 1)
    desk.measure(lot, 0)
    task = desk.work.begin_case(lot, 1, 1)
    desk.jobs.cancel(job_id, "enough")
    assert desk.state(job_id) == "cancelled"
    assert desk.cells(job_id) == [("done", "ok")] * 2 + [("done", "cancelled")] * 2
    desk.queue.withdraw.assert_called_once_with([(lot, 1)])
    assert desk.work.still_mine(lot, 1) is False
    assert task is not None
    answers = [CellAnswer(cell.id, Outcome.FAILED, "late", None) for cell in task.cells]
    with pytest.raises(LotLostError):
        desk.work.save_case(task, answers)
    with pytest.raises(ConflictError, match="cancelled already"):
        desk.jobs.cancel(job_id)


def test_retry_runs_only_failed_timed_out_and_cancelled_cells(desk: Desk) -> None:
    job_id = desk.submit()
    ((lot, _, _),) = desk.lots(job_id)
    desk.work.begin_lot(lot, 1)
    with pytest.raises(ConflictError, match="still running"):
        desk.jobs.retry(job_id, "h200")
    desk.measure(lot, 0)
    desk.measure(lot, 1, Outcome.TIMED_OUT)
    assert desk.state(job_id) == "done"
    assert desk.jobs.retry(job_id, "h200") == 2
    assert desk.lots(job_id) == [(lot, 2, "queued")]
    assert desk.cells(job_id) == [("done", "ok")] * 2 + [("queued", None)] * 2
    assert desk.queue.enqueue.call_args.args[1:3] == (lot, 2)
    desk.work.begin_lot(lot, 2)
    assert desk.work.begin_case(lot, 2, 0) is None
    desk.measure(lot, 1, attempt=2)
    assert (desk.state(job_id), desk.cells(job_id)) == ("done", [("done", "ok")] * 4)


def test_retry_to_no_live_worker_waits_outside_the_queue(desk: Desk) -> None:
    job_id = desk.submit()
    desk.jobs.cancel(job_id)
    desk.queue.reset_mock()
    assert desk.jobs.retry(job_id, "any") == 4
    # what is enqueued under "any" no worker would ever take: the reaper routes it later
    desk.queue.enqueue.assert_not_called()
    with desk.database.reading() as session:
        assert session.scalar(sa.select(LotRow.queue)) == "any"


def test_retry_without_anything_to_run_is_refused(desk: Desk) -> None:
    job_id = desk.submit()
    ((lot, _, _),) = desk.lots(job_id)
    desk.work.begin_lot(lot, 1)
    desk.measure(lot, 0, Outcome.WRONG)
    desk.measure(lot, 1)
    with pytest.raises(ConflictError, match="no failed"):
        desk.jobs.retry(job_id, "h200")


def test_work_of_an_older_attempt_is_fenced(desk: Desk) -> None:
    job_id = desk.submit()
    ((lot, _, _),) = desk.lots(job_id)
    desk.work.begin_lot(lot, 1)
    task = desk.work.begin_case(lot, 1, 0)
    desk.jobs.cancel(job_id)
    desk.jobs.retry(job_id, "h200")
    assert task is not None
    for stale in (
        lambda: desk.work.begin_lot(lot, 1),
        lambda: desk.work.begin_case(lot, 1, 0),
        lambda: desk.work.finish_lot(lot, 1),
        lambda: desk.work.save_case(
            task, [CellAnswer(task.cells[0].id, Outcome.OK, None, desk.record("torch-naive", task))]
        ),
    ):
        with pytest.raises(LotLostError):
            stale()
    desk.work.report_visits(task, {task.cells[0].id: (3, 6)})
    with desk.database.reading() as session:
        assert get_cell(session, job_id, 0).visits_done == 0
        assert list_runs(session, ResultFilter()) == []


def test_save_case_of_an_older_attempt_is_fenced_while_the_newer_one_measures(desk: Desk) -> None:
    job_id = desk.submit()
    ((lot, _, _),) = desk.lots(job_id)
    desk.work.begin_lot(lot, 1)
    old = desk.work.begin_case(lot, 1, 0)
    assert old is not None
    desk.jobs.cancel(job_id)
    desk.jobs.retry(job_id, "h200")
    desk.work.begin_lot(lot, 2)
    assert desk.work.begin_case(lot, 2, 0) is not None
    late = CellAnswer(old.cells[0].id, Outcome.OK, None, desk.record("torch-naive", old))
    with pytest.raises(LotLostError, match="attempt 1"):
        desk.work.save_case(old, [late])
    assert desk.cells(job_id)[0] == ("running", None)
    with desk.database.reading() as session:
        assert list_runs(session, ResultFilter()) == []


def test_save_case_stores_all_or_nothing(desk: Desk) -> None:
    job_id = desk.submit()
    ((lot, _, _),) = desk.lots(job_id)
    desk.work.begin_lot(lot, 1)
    task = desk.work.begin_case(lot, 1, 0)
    assert task is not None
    good = CellAnswer(task.cells[0].id, Outcome.OK, None, desk.record("torch-naive", task))
    with pytest.raises(sa.exc.IntegrityError):
        desk.work.save_case(task, [good, CellAnswer(task.cells[1].id, Outcome.OK, None, None)])
    assert desk.cells(job_id)[:2] == [("running", None)] * 2
    with desk.database.reading() as session:
        assert list_runs(session, ResultFilter()) == []


def test_save_whose_answer_was_lost_is_recognised_and_not_made_twice(desk: Desk) -> None:
    job_id = desk.submit()
    ((lot, _, _),) = desk.lots(job_id)
    desk.work.begin_lot(lot, 1)
    task = desk.work.begin_case(lot, 1, 0)
    assert task is not None
    answers = [
        CellAnswer(cell.id, Outcome.OK, None, desk.record(cell.contender, task))
        for cell in task.cells
    ]
    desk.work._save_case(task, answers, (), again=True)  # the try before it stored nothing
    desk.work._save_case(task, answers, (), again=True)  # and this time it had
    with desk.database.reading() as session:
        assert len(list_runs(session, ResultFilter())) == len(answers)
    desk.measure(lot, 1)
    desk.work._finish_lot(lot, 1, again=False)
    desk.work._finish_lot(lot, 1, again=True)
    assert desk.lots(job_id)[0][2] == "done"


def test_attempt_that_was_delivered_twice_belongs_to_the_worker_that_came_second(
    desk: Desk,
) -> None:
    job_id = desk.submit()
    ((lot, _, _),) = desk.lots(job_id)
    desk.work.begin_lot(lot, 1)
    task = desk.work.begin_case(lot, 1, 0)
    assert task is not None
    (second := Work(desk.database, "wrk-2")).begin_lot(lot, 1)
    assert (desk.work.still_mine(lot, 1), second.still_mine(lot, 1)) == (False, True)
    answer = CellAnswer(task.cells[0].id, Outcome.OK, None, desk.record("torch-naive", task))
    with pytest.raises(LotLostError, match="taken over"):
        desk.work.save_case(task, [answer])


def test_report_visits_and_note_reach_the_followers(desk: Desk) -> None:
    job_id = desk.submit()
    ((lot, _, _),) = desk.lots(job_id)
    desk.work.begin_lot(lot, 1)
    task = desk.work.begin_case(lot, 1, 0)
    assert task is not None
    desk.work.report_visits(task, {task.cells[1].id: (3, 18)})
    desk.work.note(task, "hello")
    with desk.database.reading() as session:
        *_, visits, note = events_after(session, 0, job_id)
    assert (visits.data["visits_done"], visits.data["visits_total"]) == (3, 18)
    assert (note.kind, note.data) == ("log", {"line": "hello", "worker": "wrk-1"})


def test_save_case_keeps_the_end_of_a_long_log(desk: Desk) -> None:
    job_id = desk.submit()
    ((lot, _, _),) = desk.lots(job_id)
    desk.work.begin_lot(lot, 1)
    task = desk.work.begin_case(lot, 1, 0)
    assert task is not None
    log = "x" * LOG_BYTES + "the end"
    desk.work.save_case(
        task, [CellAnswer(cell.id, Outcome.FAILED, "r", None, log) for cell in task.cells]
    )
    with desk.database.reading() as session:
        kept = get_cell_log(session, get_cell(session, job_id, 0))
    assert (len(kept), kept[-7:]) == (LOG_BYTES, "the end")


def test_job_that_does_not_exist_is_named(desk: Desk) -> None:
    with desk.database.reading() as session:
        with pytest.raises(NotFoundError, match="job-none"):
            get_job(session, "job-none")
        with pytest.raises(NotFoundError, match="no cell 9"):
            get_cell(session, "job-none", 9)


def test_job_whose_cells_are_all_refused_is_done(desk: Desk) -> None:
    job_id = desk.submit(contenders=["liger"], dtypes=["float64"])
    assert desk.state(job_id) == JobState.DONE
    assert desk.cells(job_id) == [("done", "unsupported")] * 2
