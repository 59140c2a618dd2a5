"""The typed client against a real service on a socket."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from lossbench.service.api.security import AuthMode
from lossbench.service.client import ConnectionBrokenError, LossbenchClient
from lossbench.service.contract.errors import (
    ConflictError,
    InvalidRequestError,
    NotAuthenticatedError,
    NotFoundError,
    SetupError,
    TooManyRequestsError,
    UnknownNameError,
)
from lossbench.service.contract.job import JobRequest
from lossbench.service.contract.words import JobState, Outcome

BODY: dict[str, Any] = {
    "contenders": ["flce", "liger@0.8.5"],
    "shapes": [{"tokens": 1024, "hidden": 512, "vocab": 4096}],
}


@pytest.fixture
def running(service: Any) -> Any:
    service.context.start()
    service.address = service.listen()
    return service


@pytest.fixture
def client(running: Any) -> Iterator[LossbenchClient]:
    with LossbenchClient(running.address, retry_wait_s=0.01) as client:
        yield client


def test_client_submits_watches_and_reads_a_job(running: Any, client: LossbenchClient) -> None:
    worker = running.worker()
    plan = client.submit(BODY, dry_run=True)
    assert plan.cells_to_run == 2
    job = client.submit(JobRequest.model_validate(BODY))
    assert job.state is JobState.QUEUED
    answering = threading.Timer(0.2, worker.answer, [job.id])
    answering.start()
    events = list(client.watch(job.id))
    answering.join()
    assert [event.kind for event in events][-1] == "done"
    assert client.job(job.id).outcomes == {Outcome.OK: 2}
    assert [view.id for view in client.jobs()] == [job.id]
    assert [cell.outcome for cell in client.cells(job.id)] == [Outcome.OK] * 2
    results = list(client.results(job=job.id, pass_="forward_backward", kernel=["flce", "liger"]))
    assert {result.kernel for result in results} == {"flce", "liger"}
    assert client.compare("liger", ["flce"], job=job.id).items[0].candidates[0].ratio == 1.0
    assert [kernel.name for kernel in client.kernels()] == ["flce", "liger", "torch-naive"]
    assert [machine.id for machine in client.machines()] == ["worker-1"]


def test_client_results_and_comparison_walk_every_page(
    running: Any, client: LossbenchClient
) -> None:
    worker = running.worker()
    job = client.submit({**BODY, "sweep": {"tokens": list(range(1, 8))}})
    worker.answer(job.id)
    assert len({result.id for result in client.results(limit=3)}) == 14
    assert len(client.compare("liger", ["flce"], limit=2).items) == 7


def test_client_cancels_and_retries(running: Any, client: LossbenchClient) -> None:
    running.worker()
    job = client.submit(BODY)
    assert client.cancel(job.id).state is JobState.CANCELLED
    assert client.retry(job.id).cells_requeued == 2
    with pytest.raises(ConflictError, match="still queued"):
        client.retry(job.id)


def test_client_turns_problems_into_errors_with_one_line(client: LossbenchClient) -> None:
    with pytest.raises(UnknownNameError) as caught:
        client.submit({**BODY, "contenders": ["flcee"]})
    assert caught.value.faults[0].pointer == "/contenders/0/kernel"
    assert "did you mean 'flce'" in caught.value.message
    assert "\n" not in caught.value.message
    with pytest.raises(InvalidRequestError, match="did you mean 'kernel'"):
        list(client.results(kernell="flce"))
    with pytest.raises(NotFoundError, match="job-1"):
        client.job("job-1")
    with pytest.raises(NotFoundError):
        client.job("../results?x=/1")
    with pytest.raises(NotFoundError):
        list(client.watch("job-1"))


def test_client_with_a_token_writes_and_without_is_refused(
    make_service: Callable[..., Any], sqlite_url: str
) -> None:
    service = make_service(sqlite_url, AuthMode.TOKENS, writes_per_minute=2)
    address = service.listen()
    with LossbenchClient(address) as stranger, pytest.raises(NotAuthenticatedError):
        stranger.submit(BODY)
    with LossbenchClient(address, service.token()) as owner:
        owner.submit(BODY)
        owner.submit(BODY)
        with pytest.raises(TooManyRequestsError) as caught:
            owner.submit(BODY)
    assert caught.value.retry_after_s > 5


def test_client_without_a_service_says_how_to_start_one() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        client = LossbenchClient(url)
        for call in (client.kernels, lambda: client.submit(BODY)):
            with pytest.raises(SetupError) as caught:
                call()
            assert caught.value.message == (
                f"no service answers at {url}; start one with `lossbench serve`"
            )
        client.close()


@pytest.mark.parametrize("url", ["127.0.0.1:8765", "ftp://x", "http://", "http://[::1"])
def test_client_with_a_bad_address_says_so(url: str) -> None:
    with pytest.raises(SetupError):
        LossbenchClient(url).kernels()


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(200, text="<html>"),
        httpx.Response(200, json={"items": [{"a": 1}], "next_cursor": None}),
        httpx.Response(500, text="proxy"),
    ],
)
def test_client_of_something_else_says_so(answer: httpx.Response) -> None:
    transport = httpx.MockTransport(lambda _request: answer)
    with (
        LossbenchClient("http://localhost", transport=transport) as client,
        pytest.raises(SetupError, match=r"as lossbench|as this version of lossbench"),
    ):
        client.kernels()


def test_client_repeats_a_broken_submit_under_one_key(running: Any) -> None:
    keys: list[str] = []
    inner = httpx.HTTPTransport()

    def shaky(request: httpx.Request) -> httpx.Response:
        keys.append(request.headers["idempotency-key"])
        answer = inner.handle_request(request)
        answer.read()
        if len(keys) < 3:
            raise httpx.ReadError("cut", request=request)
        return answer

    transport = httpx.MockTransport(shaky)
    with LossbenchClient(running.address, transport=transport, retry_wait_s=0.01) as client:
        job = client.submit(BODY)
    inner.close()
    assert len(keys) == 3
    assert len(set(keys)) == 1
    with LossbenchClient(running.address) as client:
        assert [view.id for view in client.jobs()] == [job.id]


def test_client_watch_resumes_behind_the_last_event_and_gives_up_in_the_end() -> None:
    asked: list[str | None] = []

    def shaky(request: httpx.Request) -> httpx.Response:
        asked.append(request.headers.get("last-event-id"))
        if len(asked) == 1:
            text = 'retry: 3000\n\n: ping\n\nevent: log\ndata: {"line": "a"}\nid: 7\n\nevent: ce'
            return httpx.Response(200, text=text)
        raise httpx.ReadError("cut", request=request)

    transport = httpx.MockTransport(shaky)
    client = LossbenchClient("http://localhost", transport=transport, retry_wait_s=0.001)
    events = client.watch("job-1")
    first = next(events)
    assert (first.id, first.kind, first.data) == (7, "log", {"line": "a"})
    with pytest.raises(ConnectionBrokenError):
        next(events)
    assert asked[0] is None
    assert set(asked[1:]) == {"7"}
    assert len(asked) < 10


def test_client_watch_of_a_finished_story_ends() -> None:
    transport = httpx.MockTransport(lambda _request: httpx.Response(204))
    client = LossbenchClient("http://localhost", transport=transport)
    assert list(client.watch("job-1", last_event_id=9)) == []


def test_client_watch_survives_a_restart_of_the_service(
    running: Any, client: LossbenchClient
) -> None:
    worker = running.worker()
    job = client.submit(BODY)
    seen: list[int] = []

    def watch() -> None:
        seen.extend(event.id for event in client.watch(job.id))

    watching = threading.Thread(target=watch)
    watching.start()
    while running.context.hub.streams == 0:
        time.sleep(0.01)
    running.context.hub.stop()
    running.context.hub.start()
    worker.answer(job.id)
    watching.join(timeout=10)
    assert not watching.is_alive()
    assert seen == sorted(set(seen))
    assert len(seen) > 3
