"""Prometheus metrics, in a registry of their own. docs/reference/metrics.md lists them."""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ..contract.words import JobState
from ..store.database import Database
from ..store.overviews import jobs_by_state, workers_by_state
from ..store.queue import LotQueue

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class _StoreCollector(Collector):
    """Counts read from the database when somebody looks."""

    def __init__(self, database: Database, queue: LotQueue) -> None:
        self._database, self._queue = database, queue

    def describe(self) -> Iterable[Metric]:
        """No names ahead: a registry would otherwise collect, and so query, to find them."""
        return []

    def collect(self) -> Iterable[Metric]:
        """Jobs and workers by state, lots waiting by queue."""
        with self._database.reading() as session:
            jobs, workers = jobs_by_state(session), workers_by_state(session)
        states = {state.value: jobs.get(state.value, 0) for state in JobState}
        yield _family("lossbench_jobs", "Jobs by state.", "state", states)
        alive = {state: workers.get(state, 0) for state in ("idle", "busy", "unhealthy", "gone")}
        yield _family("lossbench_workers", "Workers by state.", "state", alive)
        depth = self._queue.depth()
        yield _family("lossbench_lots_waiting", "Lots waiting, by queue.", "queue", depth)


def _family(name: str, text: str, label: str, values: dict[str, int]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=[label])
    for value, number in values.items():
        family.add_metric([value], number)
    return family


class Metrics:
    """What one service process counts."""

    def __init__(self, database: Database, queue: LotQueue) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "lossbench_http_requests",
            "Answers by method, route and status.",
            ["method", "route", "status"],
            registry=self._registry,
        )
        self._seconds = Histogram(
            "lossbench_http_seconds",
            "Seconds from the request to the first byte of its answer.",
            ["method", "route"],
            buckets=_BUCKETS,
            registry=self._registry,
        )
        self.streams = Gauge(
            "lossbench_event_streams",
            "Open event streams and long polls.",
            registry=self._registry,
        )
        self.reaper_rounds = Counter(
            "lossbench_reaper_rounds", "Rounds of the reaper.", registry=self._registry
        )
        self.reaper_errors = Counter(
            "lossbench_reaper_errors",
            "Rounds of the reaper that ended in an error.",
            registry=self._registry,
        )
        self._registry.register(_StoreCollector(database, queue))

    def observe(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one answer."""
        known = method if method in _METHODS else "other"
        self._requests.labels(known, route, str(status)).inc()
        self._seconds.labels(known, route).observe(seconds)

    def text(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self._registry)


_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"})
