"""Server-sent events and long polls over a real socket: order, resume, limits, end."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import httpx
import pytest

from lossbench.service.api import event_hub
from lossbench.service.api.event_hub import EventHub
from lossbench.service.contract.words import Outcome
from lossbench.service.store.database import Database
from lossbench.service.store.events import add_event, newest_event_id, now, prune_events
from lossbench.service.store.models import EventRow

BODY: dict[str, Any] = {
    "contenders": ["flce", "liger@0.8.5"],
    "shapes": [{"tokens": 1024, "hidden": 512, "vocab": 4096}],
}
JOBS = "/api/v1/jobs"


@pytest.fixture
def live(any_service: Any) -> Iterator[Any]:
    """A service on a socket with its threads running, and a client of it."""
    any_service.context.start()
    any_service.address = any_service.listen()
    with httpx.Client(base_url=any_service.address, trust_env=False, timeout=10) as http:
        any_service.http = http
        yield any_service
        any_service.context.hub.stop()


def submit(service: Any) -> str:
    answer = service.http.post(JOBS, json={**BODY, "reuse": False})
    return str(answer.json()["id"])


def parsed(text: str) -> list[dict[str, str]]:
    blocks = [block for block in text.split("\n\n") if block]
    return [dict(line.split(": ", 1) for line in block.split("\n")) for block in blocks]


def follow(service: Any, job_id: str, last_id: str | None = None) -> list[dict[str, str]]:
    headers = {"Last-Event-ID": last_id} if last_id else {}
    answer = service.http.get(f"{JOBS}/{job_id}/events", headers=headers)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["x-accel-buffering"] == "no"
    assert "content-encoding" not in answer.headers
    return parsed(answer.text)


def test_stream_of_an_ended_job_tells_it_all_and_closes(live: Any) -> None:
    worker = live.worker()
    job_id = submit(live)
    worker.answer(job_id)
    events = follow(live, job_id)
    assert events[0] == {"retry": "3000"}
    kinds = [event["event"] for event in events[1:]]
    assert kinds[0] == "state"
    assert kinds[-1] == "done"
    assert kinds.count("done") == 1
    assert set(kinds) == {"state", "cell", "done"}
    ids = [int(event["id"]) for event in events[1:]]
    assert ids == sorted(set(ids))


def test_stream_while_a_job_runs_sends_events_as_they_come(live: Any) -> None:
    worker = live.worker()
    job_id = submit(live)
    with ThreadPoolExecutor(1) as pool:
        following = pool.submit(follow, live, job_id)
        while live.context.hub.streams == 0:
            time.sleep(0.01)
        worker.answer(job_id)
        live_events = following.result(timeout=10)
    assert live_events == follow(live, job_id)
    assert live_events[-1]["event"] == "done"


@pytest.mark.parametrize("seen", [1, 3])
def test_stream_resumed_sends_only_what_follows(live: Any, seen: int) -> None:
    worker = live.worker()
    job_id = submit(live)
    worker.answer(job_id)
    whole = follow(live, job_id)[1:]
    assert follow(live, job_id, whole[seen - 1]["id"])[1:] == whole[seen:]


def test_stream_resumed_behind_the_end_has_no_content(live: Any) -> None:
    worker = live.worker()
    job_id = submit(live)
    worker.answer(job_id)
    last = follow(live, job_id)[-1]["id"]
    headers = {"Last-Event-ID": last}
    answer = live.http.get(f"{JOBS}/{job_id}/events", headers=headers)
    assert (answer.status_code, answer.content) == (204, b"")


def test_pruning_every_event_gives_no_number_twice(live: Any) -> None:
    """Streams wait for numbers above those they saw: with lower ones they would be silent."""
    live.worker().answer(submit(live))
    with live.context.database.transaction() as session:
        before = newest_event_id(session)
        assert prune_events(session, now() + timedelta(hours=1)) == before - 1
    job_id = submit(live)
    live.worker("worker-2").answer(job_id)
    seen = [int(event["id"]) for event in follow(live, job_id)[1:]]
    assert len(seen) > 2
    assert min(seen) > before


def test_stream_of_a_retried_job_ends_at_its_last_done(live: Any) -> None:
    worker = live.worker()
    job_id = submit(live)
    worker.answer(job_id, lambda _cell: Outcome.FAILED)
    live.http.post(f"{JOBS}/{job_id}/retry")
    with ThreadPoolExecutor(1) as pool:
        following = pool.submit(follow, live, job_id)
        while live.context.hub.streams == 0:
            time.sleep(0.01)
        worker.answer(job_id)
        events = following.result(timeout=10)
    assert [event.get("event") for event in events].count("done") == 1
    assert events[-1]["event"] == "done"
    assert '"done"' in events[-1]["data"]


def test_stream_of_an_ended_job_without_events_still_says_done(live: Any) -> None:
    job_id = submit(live)
    live.http.post(f"{JOBS}/{job_id}/cancel")
    with live.context.database.transaction() as session:
        prune_events(session, now())
    events = follow(live, job_id)
    assert (events[-1]["event"], events[-1]["data"]) == ("done", '{"state": "cancelled"}')


@pytest.mark.parametrize("bad", ["x", "-1", "1.5", "9" * 30])
def test_stream_with_a_bad_event_id_is_refused(shared_service: Any, bad: str) -> None:
    headers = {"Last-Event-ID": bad}
    answer = shared_service.http.get(f"{JOBS}/job-1/events", headers=headers)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "/header/Last-Event-ID"


def test_stream_in_silence_pings(make_service: Callable[..., Any], sqlite_url: str) -> None:
    service = make_service(sqlite_url)
    service.context.start()
    service.context.events._ping_s = 0.05
    address = service.listen()
    job_id = submit(service)
    with httpx.stream("GET", f"{address}{JOBS}/{job_id}/events", trust_env=False) as answer:
        lines = answer.iter_lines()
        assert ": ping" in (next(lines) for _ in range(10))
    deadline = time.monotonic() + 5
    while service.context.hub.streams:
        assert time.monotonic() < deadline, "a reader that left kept its place"
        time.sleep(0.01)


def test_streams_over_the_limit_are_refused_with_retry_after(
    make_service: Callable[..., Any], sqlite_url: str
) -> None:
    service = make_service(sqlite_url, max_streams=1)
    service.context.start()
    address = service.listen()
    job_id = submit(service)
    with httpx.Client(base_url=address, trust_env=False) as http:
        with http.stream("GET", f"{JOBS}/{job_id}/events") as first:
            assert first.status_code == 200
            for path in (f"{JOBS}/{job_id}/events", f"{JOBS}/{job_id}?wait=5"):
                answer = http.get(path)
                assert answer.status_code == 503
                assert answer.json()["type"] == "/docs/errors#too-many-streams"
                assert answer.headers["retry-after"] == "5"
        deadline = time.monotonic() + 5
        while http.get(f"{JOBS}/{job_id}?wait=0.01").status_code != 200:
            assert time.monotonic() < deadline


def test_stream_ends_when_the_service_stops(
    make_service: Callable[..., Any], sqlite_url: str
) -> None:
    service = make_service(sqlite_url)
    service.context.start()
    address = service.listen()
    job_id = submit(service)
    with httpx.stream("GET", f"{address}{JOBS}/{job_id}/events", trust_env=False) as answer:
        stopping = threading.Timer(0.1, service.context.stop)
        stopping.start()
        assert "done" not in "".join(answer.iter_text())
        stopping.join()


def test_wait_returns_when_the_state_changes(live: Any) -> None:
    job_id = submit(live)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(live.http.get, f"{JOBS}/{job_id}", params={"wait": 20})
        while live.context.hub.streams == 0:
            time.sleep(0.01)
        began = time.monotonic()
        live.http.post(f"{JOBS}/{job_id}/cancel")
        job = waiting.result(timeout=10).json()
    assert job["state"] == "cancelled"
    assert time.monotonic() - began < 5


def test_wait_without_change_answers_in_time_and_an_ended_job_at_once(live: Any) -> None:
    job_id = submit(live)
    began = time.monotonic()
    job = live.http.get(f"{JOBS}/{job_id}", params={"wait": 0.3}).json()
    assert job["state"] == "queued"
    assert 0.3 <= time.monotonic() - began < 10
    live.http.post(f"{JOBS}/{job_id}/cancel")
    began = time.monotonic()
    live.http.get(f"{JOBS}/{job_id}", params={"wait": 30})
    assert time.monotonic() - began < 10


def test_hub_when_ids_become_visible_out_of_order_hands_each_round_once(
    any_service: Any,
) -> None:
    database: Database = any_service.context.database
    job_id = str(any_service.http.post(JOBS, json=BODY).json()["id"])
    hub = EventHub(database, max_streams=2)
    hub._read_tail()
    with database.transaction() as session:
        start = hub._last
        for number in (start + 3, start + 1):
            row = EventRow(id=number, job_id=job_id, kind="log", data={}, created_at=now())
            session.add(row)
    assert [event.id for event in hub._read_new()[0]] == [start + 1, start + 3]
    with database.transaction() as session:
        row = EventRow(id=start + 2, job_id=job_id, kind="log", data={}, created_at=now())
        session.add(row)
    assert [event.id for event in hub._read_new()[0]] == [start + 2]
    assert hub._read_new()[0] == []


def test_hub_asks_the_database_only_while_somebody_listens(
    service: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[int] = []
    real = event_hub.events_after

    def counted(*args: Any, **kwargs: Any) -> Any:
        reads.append(1)
        return real(*args, **kwargs)

    monkeypatch.setattr(event_hub, "events_after", counted)
    service.context.start()
    time.sleep(0.5)
    assert reads == []


def test_hub_after_a_database_error_serves_on(live: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    real = event_hub.events_after
    failing = iter([True, True])

    def shaky(*args: Any, **kwargs: Any) -> Any:
        if "limit" in kwargs and kwargs["limit"] == event_hub.BATCH and next(failing, False):
            raise RuntimeError("gone for a moment")
        return real(*args, **kwargs)

    monkeypatch.setattr(event_hub, "events_after", shaky)
    job_id = submit(live)
    with ThreadPoolExecutor(1) as pool:
        following = pool.submit(follow, live, job_id)
        while live.context.hub.streams == 0:
            time.sleep(0.01)
        with live.context.database.transaction() as session:
            add_event(session, job_id, "log", {"line": "hello"})
        live.http.post(f"{JOBS}/{job_id}/cancel")
        kinds = [event.get("event") for event in following.result(timeout=10)]
    assert kinds[-1] == "done"
    assert "log" in kinds
