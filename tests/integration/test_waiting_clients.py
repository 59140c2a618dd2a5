"""45 clients that wait for a job cost no thread: pages and writes stay as quick as without them."""

import socket
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from lossbench.web.app import create_app

from . import engines

WAITING, STREAMING = 25, 20
REQUESTS = 30
HUNG_S = 5.0
"""With no thread left for it a page would wait as long as they do, 30 s."""
BODY = {"contenders": ["flce"], "shapes": [{"tokens": 8, "hidden": 8, "vocab": 32}]}

database_url = engines.database_url


@pytest.fixture
def address(any_service: Any) -> Iterator[str]:
    """The API with its pages on a socket, its threads running."""
    any_service.app = create_app(any_service.context)
    any_service.context.start()
    yield any_service.listen()
    any_service.context.hub.stop()


def ask(address: str, path: str) -> socket.socket:
    """Send a GET and leave: the answer waits in the socket."""
    parts = urlsplit(address)
    waiting = socket.create_connection((parts.hostname, parts.port), timeout=30)
    waiting.sendall(
        f"GET {path} HTTP/1.1\r\nHost: {parts.netloc}\r\nConnection: close\r\n\r\n".encode()
    )
    return waiting


def answer_of(waiting: socket.socket) -> str:
    """The whole answer, to the end of the connection."""
    with waiting:
        return b"".join(iter(lambda: waiting.recv(65536), b"")).decode()


def work_ms(call: Callable[[], httpx.Response]) -> float:
    """Median of what this process, service and client, works for a request, in milliseconds.

    Processor time: what other processes do meanwhile is not in it. None of the requests may hang.
    """
    took = []
    for _ in range(REQUESTS):
        began, worked = time.monotonic(), time.process_time()
        assert call().status_code == 200
        took.append(1000 * (time.process_time() - worked))
        assert time.monotonic() - began < HUNG_S
    return statistics.median(took)


def test_45_waiting_clients_do_not_slow_a_page(any_service: Any, address: str) -> None:
    with httpx.Client(base_url=address, trust_env=False, timeout=30) as http:
        job = http.post("/api/v1/jobs", json=BODY).json()["id"]
        path = f"/api/v1/jobs/{job}"
        paths = (f"/jobs/{job}", "/api/v1/jobs")
        for each in paths:
            http.get(each)
        alone = {each: work_ms(lambda each=each: http.get(each)) for each in paths}
        asked = [ask(address, f"{path}?wait=30") for _ in range(WAITING)]
        asked += [ask(address, f"{path}/events") for _ in range(STREAMING)]
        deadline = time.monotonic() + 10
        while any_service.context.hub.streams < WAITING + STREAMING:
            assert time.monotonic() < deadline, "not all of them wait"
            time.sleep(0.01)
        crowded = {each: work_ms(lambda each=each: http.get(each)) for each in paths}
        assert any_service.context.hub.streams == WAITING + STREAMING, "some of them left meanwhile"
        for each in paths:
            quick, slow = alone[each], crowded[each]
            assert slow < max(2 * quick, quick + 10), (each, quick, slow)
        began = time.monotonic()
        assert http.post(f"{path}/cancel").status_code == 200
        answers = [answer_of(waiting) for waiting in asked]
        assert time.monotonic() - began < 5
    for answer in answers[:WAITING]:
        assert answer.startswith("HTTP/1.1 200")
        assert '"state":"cancelled"' in answer
    for answer in answers[WAITING:]:
        assert answer.startswith("HTTP/1.1 200")
        assert answer.count("event: done") == 1
