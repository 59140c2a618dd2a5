"""A typed client of the REST API, for the command line and for scripts.

with LossbenchClient("http://127.0.0.1:8765") as client:
    job = client.submit({"contenders": ["flce"], "shapes": [...]})
    for event in client.watch(job.id):
        print(event.kind, event.data)
"""

import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, overload

import httpx

from ..api.aggregate_records import Fronts, SeriesPoints, SeriesView, ShapeMap
from ..api.claim_records import ClaimDetail, ClaimView
from ..api.proof_records import ProofView
from ..api.recommend_records import Recommendation
from ..api.records import Comparison, DryRun, KernelDetail, KernelView, MachineView, Retried
from ..api.view_records import ViewStatus
from ..contract import errors
from ..contract.alert import AlertDetail, AlertView
from ..contract.comparison import ComparisonView
from ..contract.errors import SetupError
from ..contract.job import JobRequest
from ..contract.result import CellView, JobView, Result
from .transport import (
    Connection,
    ConnectionBrokenError,
    JobEvent,
    Params,
    StreamEndedError,
    Value,
    error_of,
    part_of,
    query_of,
    unreachable,
)

__all__ = ["ConnectionBrokenError", "JobEvent", "LossbenchClient"]

MOST_RETRIES = 5


class LossbenchClient(Connection):
    """Speaks to one service. Every failure is a LossbenchError with one clear line."""

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
            JobView, "GET", f"/jobs/{part_of(job_id)}", {"wait": wait_s} if wait_s else None
        )

    def jobs(self, limit: int = 100) -> list[JobView]:
        """The newest jobs."""
        items = self._json("GET", "/jobs", {"limit": limit})["items"]
        return [self._parsed(JobView, item) for item in items]

    def cells(self, job_id: str) -> list[CellView]:
        """All cells of a job, in order."""
        return list(self._paged(CellView, f"/jobs/{part_of(job_id)}/cells", {}))

    def results(self, **filters: Value | Sequence[Value] | None) -> Iterator[Result]:
        """Results that match, page after page. `pass_` stands for the filter `pass`."""
        return self._paged(Result, "/results", query_of(filters))

    def result(self, result_id: str) -> Result:
        """One result."""
        return self._send(Result, "GET", f"/results/{part_of(result_id)}")

    def invalidate(self, result_id: str, reason: str) -> Result:
        """Take a result out of use; needs the scope `admin`."""
        body = {"invalid_reason": reason}
        return self._send(Result, "PATCH", f"/results/{part_of(result_id)}", None, body)

    def recommend(self, **query: Value | None) -> Recommendation:
        """The contender to use: `model`, or `hidden` and `vocab`; `tokens`; `gpu`; options."""
        return self._send(Recommendation, "GET", "/recommend", query)

    def series(self, **filters: Value | Sequence[Value] | None) -> Iterator[SeriesView]:
        """Series of the results that match, the latest measured first."""
        return self._paged(SeriesView, "/series", query_of(filters))

    def series_points(self, series_id: str, **query: Value | Sequence[Value]) -> SeriesPoints:
        """The newest points of a series, at most 1,000, as columns."""
        return self._send(SeriesPoints, "GET", f"/series/{part_of(series_id)}/points", query)

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
        return self._send(ViewStatus, "GET", f"/views/{part_of(view_hash)}")

    def proofs(self, **filters: Value | Sequence[Value] | None) -> Iterator[ProofView]:
        """What devices showed that they can tell apart, newest first."""
        return self._paged(ProofView, "/proofs", query_of(filters))

    def nvbench(self, result_id: str) -> dict[str, Any]:
        """A result in the form of NVBench's JSON files."""
        found: dict[str, Any] = self._json("GET", f"/results/{part_of(result_id)}/nvbench")
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
            with self._http.stream("GET", path, params=query_of(query)) as response:
                if response.is_error:
                    response.read()
                    raise error_of(response)
                yield from response.iter_bytes()
        except httpx.TransportError as error:
            raise unreachable(self.url, error) from error

    def compare(
        self, base: str, candidates: Sequence[str], **filters: Value | Sequence[Value] | None
    ) -> Comparison:
        """Contenders side by side, with all rows."""
        query: dict[str, Any] = {**query_of(filters), "base": base, "cand": list(candidates)}
        query.setdefault("limit", 1000)
        found = self._send(Comparison, "GET", "/compare", query)
        rows, cursor = list(found.items), found.next_cursor
        while cursor:
            more = self._send(Comparison, "GET", "/compare", {**query, "cursor": cursor})
            rows, cursor = [*rows, *more.items], more.next_cursor
        return found.model_copy(update={"items": tuple(rows), "next_cursor": None})

    def comparisons(self, **filters: Value | Sequence[Value] | None) -> Iterator[ComparisonView]:
        """Comparisons that match, newest first. `pass_` stands for the filter `pass`."""
        return self._paged(ComparisonView, "/comparisons", query_of(filters))

    def page_answers(self, path: str) -> bool:
        """Whether the page at this path, such as `/jobs/ID`, is served whole."""
        try:
            answer = self._http.get(f"{self.url}{path}", headers={"Accept": "text/html"})
        except httpx.HTTPError:
            return False
        return answer.status_code == 200 and "</html>" in answer.text

    def cancel(self, job_id: str) -> JobView:
        """End a job."""
        return self._send(JobView, "POST", f"/jobs/{part_of(job_id)}/cancel")

    def retry(self, job_id: str) -> Retried:
        """Run the failed cells of a job again."""
        return self._send(Retried, "POST", f"/jobs/{part_of(job_id)}/retry")

    def kernels(self) -> list[KernelView]:
        """Kernels of the service's catalogue."""
        return list(self._paged(KernelView, "/kernels", {}))

    def kernel(self, name: str) -> KernelDetail:
        """One kernel, with what was measured of it."""
        return self._send(KernelDetail, "GET", f"/kernels/{part_of(name)}")

    def alerts(self, **filters: Value | Sequence[Value] | None) -> Iterator[AlertView]:
        """Alerts that match, newest first."""
        return self._paged(AlertView, "/alerts", query_of(filters))

    def alert(self, alert_id: str) -> AlertDetail:
        """One alert with its cases."""
        return self._send(AlertDetail, "GET", f"/alerts/{part_of(alert_id)}")

    def confirm_alert(self, alert_id: str) -> AlertDetail:
        """Have its cases measured again, head to head."""
        return self._send(AlertDetail, "POST", f"/alerts/{part_of(alert_id)}/confirm")

    def change_alert(self, alert_id: str, **fields: str) -> AlertDetail:
        """Set `state`, `owner` or `note`; an empty text takes owner or note away."""
        return self._send(AlertDetail, "PATCH", f"/alerts/{part_of(alert_id)}", None, fields)

    def claims(self, **filters: Value | Sequence[Value] | None) -> Iterator[ClaimView]:
        """Claims with their verdicts of now."""
        return self._paged(ClaimView, "/claims", query_of(filters))

    def claim(self, claim_id: str) -> ClaimDetail:
        """One claim with its job, its rule and its evidence."""
        return self._send(ClaimDetail, "GET", f"/claims/{part_of(claim_id)}")

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
            except StreamEndedError:
                return
            except (httpx.TransportError, errors.TooManyRequestsError) as error:
                failures += 1
                if failures > MOST_RETRIES:
                    raise unreachable(self.url, error) from error
            else:
                failures += 1
                if failures > MOST_RETRIES:
                    raise SetupError(f"{self.url} closes the events of {job_id} again and again")
            time.sleep(self._retry_wait_s * 2**failures)
