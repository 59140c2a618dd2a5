"""The connection of the client: requests, pages and streams, and what their failures mean."""

import json
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar
from urllib.parse import quote

import httpx
from pydantic import BaseModel, ValidationError

from ..api.problem_reading import error_of_problem
from ..contract.errors import LossbenchError, SetupError

TIMEOUT_S = 60.0
STREAM_SILENCE_S = 45.0
"""Three pings of the service without one arriving: the connection is dead."""

M = TypeVar("M", bound=BaseModel)
Value = str | int | float | bool
Params = Mapping[str, Value | Sequence[Value] | None]


class JobEvent(NamedTuple):
    """One event of a job: `state`, `cell`, `log` or `done`."""

    id: int
    kind: str
    data: dict[str, Any]


class Connection:
    """One service's address, and how to speak to it."""

    def __init__(
        self,
        url: str,
        token: str | None = None,
        transport: httpx.BaseTransport | None = None,
        retry_wait_s: float = 0.5,
    ) -> None:
        self.url = url.rstrip("/")
        self._retry_wait_s = retry_wait_s
        headers = {"Accept": "application/json", "User-Agent": "lossbench-client"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        try:
            self._http = httpx.Client(
                base_url=f"{self.url}/api/v1",
                headers=headers,
                timeout=TIMEOUT_S,
                transport=transport,
                # a proxy of the environment must not see local services, nor their tokens
                trust_env=False,
            )
        except (httpx.InvalidURL, ValueError) as error:
            raise SetupError(f"{url!r} is not an address such as http://127.0.0.1:8765") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give back the connections."""
        self._http.close()

    def _stream(self, job_id: str, last_event_id: int | None) -> Iterator[JobEvent]:
        headers = {"Accept": "text/event-stream"}
        if last_event_id is not None:
            headers["Last-Event-ID"] = str(last_event_id)
        timeout = httpx.Timeout(TIMEOUT_S, read=STREAM_SILENCE_S)
        with self._http.stream(
            "GET", f"/jobs/{part_of(job_id)}/events", headers=headers, timeout=timeout
        ) as response:
            if response.status_code == 204:
                raise StreamEndedError
            if response.is_error:
                response.read()
                raise error_of(response)
            fields: dict[str, str] = {}
            for line in response.iter_lines():
                if line:
                    name, _, value = line.partition(":")
                    fields[name] = value.removeprefix(" ")
                    continue
                if "event" in fields:
                    data = json.loads(fields.get("data", "null"))
                    yield JobEvent(int(fields.get("id", "0")), fields["event"], data)
                fields = {}

    def _paged(self, model: type[M], path: str, query: Mapping[str, Any]) -> Iterator[M]:
        cursor: str | None = None
        while True:
            page = {"limit": 1000, **query}
            if cursor:
                page["cursor"] = cursor
            answer = self._json("GET", path, page)
            yield from (self._parsed(model, item) for item in answer["items"])
            cursor = answer["next_cursor"]
            if not cursor:
                return

    def _send(
        self,
        model: type[M],
        method: str,
        path: str,
        query: Params | None = None,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> M:
        return self._parsed(model, self._json(method, path, query, body, headers))

    def _json(
        self,
        method: str,
        path: str,
        query: Params | None = None,
        body: Mapping[str, Any] | bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        sent: dict[str, Any] = {"content" if isinstance(body, bytes) else "json": body}
        try:
            response = self._http.request(
                method, path, params=query_of(query or {}), headers=headers, **sent
            )
        except httpx.TransportError as error:
            raise unreachable(self.url, error) from error
        if response.is_error:
            raise error_of(response)
        try:
            return response.json()
        except ValueError as error:
            raise _stranger(self.url) from error

    def _parsed(self, model: type[M], data: Any) -> M:
        try:
            return model.model_validate(data)
        except ValidationError as error:
            raise _stranger(self.url) from error


class ConnectionBrokenError(SetupError):
    """The connection broke before the answer came."""


class StreamEndedError(Exception):
    """The service says that nothing follows."""


def query_of(filters: Params) -> dict[str, Any]:
    """Query parameters without the ones left out; times and words as text."""
    return {name.rstrip("_"): value for name, value in filters.items() if value is not None}


def part_of(text: str) -> str:
    """A text as one part of a path."""
    return quote(text, safe="")


def _stranger(url: str) -> SetupError:
    return SetupError(f"{url} answers, but not as this version of lossbench; check LOSSBENCH_URL")


def unreachable(url: str, error: Exception) -> LossbenchError:
    """What a failure to reach the service means."""
    if isinstance(error, LossbenchError):
        return error
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        return SetupError(f"no service answers at {url}; start one with `lossbench serve`")
    if isinstance(error, httpx.TimeoutException):
        return ConnectionBrokenError(f"{url} did not answer within {TIMEOUT_S:g} s")
    if isinstance(error, httpx.UnsupportedProtocol):
        return SetupError(f"{url!r} is not an address such as http://127.0.0.1:8765")
    return ConnectionBrokenError(f"{url} broke the connection ({type(error).__name__})")


def error_of(response: httpx.Response) -> LossbenchError:
    """The error that a problem document stands for."""
    try:
        found = error_of_problem(response.json(), response.headers)
    except ValueError:
        found = None
    if found is not None:
        return found
    return SetupError(f"{response.url} answered {response.status_code}, not as lossbench does")
