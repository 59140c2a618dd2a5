"""A typed client of the REST API, for the command line and for scripts.

with LossbenchClient("http://127.0.0.1:8765") as client:
    job = client.submit({"contenders": ["flce"], "shapes": [...]})
    for event in client.watch(job.id):
        print(event.kind, event.data)
"""

import json
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self, TypeVar, overload
from urllib.parse import quote

import httpx
from pydantic import BaseModel, ValidationError

from .api.aggregate_records import Fronts, SeriesPoints, SeriesView, ShapeMap
from .api.problem_reading import error_of_problem
from .api.proof_records import ProofView
from .api.recommend_records import Recommendation
from .api.records import Comparison, DryRun, KernelView, MachineView, Retried
from .api.view_records import ViewStatus
from .contract import errors
from .contract.comparison import ComparisonView
from .contract.errors import LossbenchError, SetupError
from .contract.job import JobRequest
from .contract.result import CellView, JobView, Result

TIMEOUT_S = 60.0
STREAM_SILENCE_S = 45.0
"""Three pings of the service without one arriving: the connection is dead."""
MOST_RETRIES = 5

M = TypeVar("M", bound=BaseModel)
Value = str | int | float | bool
Params = Mapping[str, Value | Sequence[Value] | None]


class JobEvent(NamedTuple):
    """One event of a job: `state`, `cell`, `log` or `done`."""

    id: int
    kind: str
    data: dict[str, Any]


class LossbenchClient:
    """Speaks to one service. Every failure is a LossbenchError with one clear line."""

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

    @overload
    def submit(
        self,
        request: JobRequest | Mapping[str, Any],
        dry_run: Literal[False] = False,
        idempotency_key: str | None = None,
    ) -> JobView: ...

    @overload
    def submit(
        self,
        request: JobRequest | Mapping[str, Any],
        dry_run: Literal[True],
        idempotency_key: str | None = None,
    ) -> DryRun: ...

    def submit(
        self,
        request: JobRequest | Mapping[str, Any],
        dry_run: bool = False,
        idempotency_key: str | None = None,
    ) -> JobView | DryRun:
        """Submit a job; or with `dry_run` learn what it would do.

        A broken connection is tried again under the same idempotency key: there is one job.
        """
        plain = request.model_dump(mode="json") if isinstance(request, JobRequest) else request
        if dry_run:
            return self._send(DryRun, "POST", "/jobs", {"dry_run": "true"}, plain)
        headers = {"Idempotency-Key": idempotency_key or secrets.token_hex(16)}
        for attempt in range(MOST_RETRIES):
            try:
                return self._send(JobView, "POST", "/jobs", None, plain, headers)
            except ConnectionBrokenError:
                if attempt == MOST_RETRIES - 1:
                    raise
                time.sleep(self._retry_wait_s * 2**attempt)
        raise SetupError(f"{self.url} broke the connection {MOST_RETRIES} times")

    def job(self, job_id: str, wait_s: float = 0) -> JobView:
        """A job; with `wait_s` (0 .. 30) once its state changes or the time is over."""
        return self._send(
            JobView, "GET", f"/jobs/{_part(job_id)}", {"wait": wait_s} if wait_s else None
        )

    def jobs(self, limit: int = 100) -> list[JobView]:
        """The newest jobs."""
        items = self._json("GET", "/jobs", {"limit": limit})["items"]
        return [self._parsed(JobView, item) for item in items]

    def cells(self, job_id: str) -> list[CellView]:
        """All cells of a job, in order."""
        return list(self._paged(CellView, f"/jobs/{_part(job_id)}/cells", {}))

    def results(self, **filters: Value | Sequence[Value] | None) -> Iterator[Result]:
        """Results that match, page after page. `pass_` stands for the filter `pass`."""
        return self._paged(Result, "/results", _query(filters))

    def result(self, result_id: str) -> Result:
        """One result."""
        return self._send(Result, "GET", f"/results/{_part(result_id)}")

    def invalidate(self, result_id: str, reason: str) -> Result:
        """Take a result out of use; needs the scope `admin`."""
        body = {"invalid_reason": reason}
        return self._send(Result, "PATCH", f"/results/{_part(result_id)}", None, body)

    def recommend(self, **query: Value | None) -> Recommendation:
        """The contender to use: `model`, or `hidden` and `vocab`; `tokens`; `gpu`; options."""
        return self._send(Recommendation, "GET", "/recommend", query)

    def series(self, **filters: Value | Sequence[Value] | None) -> Iterator[SeriesView]:
        """Series of the results that match, the latest measured first."""
        return self._paged(SeriesView, "/series", _query(filters))

    def series_points(self, series_id: str, **query: Value | Sequence[Value]) -> SeriesPoints:
        """The newest points of a series, at most 1,000, as columns."""
        return self._send(SeriesPoints, "GET", f"/series/{_part(series_id)}/points", query)

    def shape_map(self, **filters: Value | Sequence[Value] | None) -> ShapeMap:
        """Who is fastest at which shape."""
        return self._send(ShapeMap, "GET", "/shape-map", filters)

    def pareto(self, **filters: Value | Sequence[Value] | None) -> Fronts:
        """Memory against time, case by case."""
        return self._send(Fronts, "GET", "/pareto", filters)

    def make_view(self, path: str, query: Mapping[str, Any]) -> ViewStatus:
        """Keep `/compare` or `/results` with this query under a permalink."""
        return self._send(ViewStatus, "POST", "/views", None, {"path": path, "query": query})

    def view(self, view_hash: str) -> ViewStatus:
        """A permalink, and what has become of its results since."""
        return self._send(ViewStatus, "GET", f"/views/{_part(view_hash)}")

    def proofs(self, **filters: Value | Sequence[Value] | None) -> Iterator[ProofView]:
        """What devices showed that they can tell apart, newest first."""
        return self._paged(ProofView, "/proofs", _query(filters))

    def nvbench(self, result_id: str) -> dict[str, Any]:
        """A result in the form of NVBench's JSON files."""
        found: dict[str, Any] = self._json("GET", f"/results/{_part(result_id)}/nvbench")
        return found

    def import_table(self, table: bytes, query: Params) -> dict[str, Any]:
        """Send a table of another benchmark; the answer counts its rows."""
        headers = {"Content-Type": "text/csv"}
        answered: dict[str, Any] = self._json("POST", "/imports", query, table, headers)
        return answered

    def exported(self, ending: str, query: Params) -> Iterator[bytes]:
        """Results that match as the bytes of a file; `ending` is `csv` or `parquet`."""
        path = f"/export/results.{ending}"
        try:
            with self._http.stream("GET", path, params=_query(query)) as response:
                if response.is_error:
                    response.read()
                    raise _error_of(response)
                yield from response.iter_bytes()
        except httpx.TransportError as error:
            raise _unreachable(self.url, error) from error

    def compare(
        self, base: str, candidates: Sequence[str], **filters: Value | Sequence[Value] | None
    ) -> Comparison:
        """Contenders side by side, with all rows."""
        query: dict[str, Any] = {**_query(filters), "base": base, "cand": list(candidates)}
        query.setdefault("limit", 1000)
        found = self._send(Comparison, "GET", "/compare", query)
        rows, cursor = list(found.items), found.next_cursor
        while cursor:
            more = self._send(Comparison, "GET", "/compare", {**query, "cursor": cursor})
            rows, cursor = [*rows, *more.items], more.next_cursor
        return found.model_copy(update={"items": tuple(rows), "next_cursor": None})

    def comparisons(self, **filters: Value | Sequence[Value] | None) -> Iterator[ComparisonView]:
        """Comparisons that match, newest first. `pass_` stands for the filter `pass`."""
        return self._paged(ComparisonView, "/comparisons", _query(filters))

    def page_answers(self, path: str) -> bool:
        """Whether the page at this path, such as `/jobs/ID`, is served whole."""
        try:
            answer = self._http.get(f"{self.url}{path}", headers={"Accept": "text/html"})
        except httpx.HTTPError:
            return False
        return answer.status_code == 200 and "</html>" in answer.text

    def cancel(self, job_id: str) -> JobView:
        """End a job."""
        return self._send(JobView, "POST", f"/jobs/{_part(job_id)}/cancel")

    def retry(self, job_id: str) -> Retried:
        """Run the failed cells of a job again."""
        return self._send(Retried, "POST", f"/jobs/{_part(job_id)}/retry")

    def kernels(self) -> list[KernelView]:
        """Kernels of the service's catalogue."""
        return list(self._paged(KernelView, "/kernels", {}))

    def machines(self) -> list[MachineView]:
        """Workers of the service, newest first."""
        return list(self._paged(MachineView, "/machines", {}))

    def watch(self, job_id: str, last_event_id: int | None = None) -> Iterator[JobEvent]:
        """Events of a job until it has ended; a broken stream resumes behind the last event."""
        failures = 0
        while True:
            try:
                for event in self._stream(job_id, last_event_id):
                    last_event_id, failures = event.id, 0
                    yield event
                    if event.kind == "done":
                        return
            except _StreamEndedError:
                return
            except (httpx.TransportError, errors.TooManyRequestsError) as error:
                failures += 1
                if failures > MOST_RETRIES:
                    raise _unreachable(self.url, error) from error
            else:
                failures += 1
                if failures > MOST_RETRIES:
                    raise SetupError(f"{self.url} closes the events of {job_id} again and again")
            time.sleep(self._retry_wait_s * 2**failures)

    def _stream(self, job_id: str, last_event_id: int | None) -> Iterator[JobEvent]:
        headers = {"Accept": "text/event-stream"}
        if last_event_id is not None:
            headers["Last-Event-ID"] = str(last_event_id)
        timeout = httpx.Timeout(TIMEOUT_S, read=STREAM_SILENCE_S)
        with self._http.stream(
            "GET", f"/jobs/{_part(job_id)}/events", headers=headers, timeout=timeout
        ) as response:
            if response.status_code == 204:
                raise _StreamEndedError
            if response.is_error:
                response.read()
                raise _error_of(response)
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
                method, path, params=_query(query or {}), headers=headers, **sent
            )
        except httpx.TransportError as error:
            raise _unreachable(self.url, error) from error
        if response.is_error:
            raise _error_of(response)
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


class _StreamEndedError(Exception):
    """The service says that nothing follows."""


def _query(filters: Params) -> dict[str, Any]:
    """Query parameters without the ones left out; times and words as text."""
    return {name.rstrip("_"): value for name, value in filters.items() if value is not None}


def _part(text: str) -> str:
    return quote(text, safe="")


def _stranger(url: str) -> SetupError:
    return SetupError(f"{url} answers, but not as this version of lossbench; check LOSSBENCH_URL")


def _unreachable(url: str, error: Exception) -> LossbenchError:
    if isinstance(error, LossbenchError):
        return error
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        return SetupError(f"no service answers at {url}; start one with `lossbench serve`")
    if isinstance(error, httpx.TimeoutException):
        return ConnectionBrokenError(f"{url} did not answer within {TIMEOUT_S:g} s")
    if isinstance(error, httpx.UnsupportedProtocol):
        return SetupError(f"{url!r} is not an address such as http://127.0.0.1:8765")
    return ConnectionBrokenError(f"{url} broke the connection ({type(error).__name__})")


def _error_of(response: httpx.Response) -> LossbenchError:
    """The error that a problem document stands for."""
    try:
        found = error_of_problem(response.json(), response.headers)
    except ValueError:
        found = None
    if found is not None:
        return found
    return SetupError(f"{response.url} answered {response.status_code}, not as lossbench does")
