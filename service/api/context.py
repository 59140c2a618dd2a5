"""ServiceContext: everything one service process holds, and the threads that it runs."""

import threading
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

import structlog

from ..contract.catalogue import Catalogue, load_catalogue, with_offers
from ..settings import Settings
from ..store.database import Database, upgrade_schema
from ..store.idempotency import IdempotencyKeys
from ..store.jobs import Jobs
from ..store.overviews import prune_idempotency
from ..store.queue import LotQueue, migrate_queue
from ..store.reaper import Reaper
from ..store.workers import offered_kernels
from .alert_watch import AlertWatch
from .event_hub import EventHub
from .event_stream import JobEvents
from .metrics import Metrics
from .rate_limit import RateLimiter
from .security import Authenticator, AuthMode
from .submission import Limits, Submission

PRUNE_EVERY_S = 600.0
KEEP_ANSWERS = timedelta(hours=24)
SILENT_REAPER_S = 30.0

_log = structlog.get_logger("lossbench.api")


class ServiceContext:
    """One service process: settings, store, queue, catalogue, event hub, reaper.

    Start one service per database: rate limits, sessions, reaper and event fan-out live in it.
    """

    def __init__(
        self,
        settings: Settings,
        auth: AuthMode,
        database: Database,
        queue: LotQueue,
        catalogue: Catalogue,
    ) -> None:
        self.settings, self.database, self.queue = settings, database, queue
        self._shipped = catalogue
        self._offered: tuple[Sequence[Mapping[str, Any]], Catalogue] | None = None
        self.jobs = Jobs(database, queue)
        self.authenticator = Authenticator(database, auth)
        self.limiter = RateLimiter(settings.writes_per_minute)
        self.metrics = Metrics(database, queue)
        self.hub = EventHub(database, settings.max_streams)
        self.events = JobEvents(database, self.hub)
        self.submission = Submission(database, self.jobs, catalogue, Limits.of(settings))
        self.alerts = AlertWatch(settings, database, self.submission, catalogue)
        self.metrics.streams.set_function(lambda: self.hub.streams)
        self._reaper = Reaper(database, queue, settings.stale_after_s, settings.max_attempts)
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._round_at = time.monotonic()

    @classmethod
    def create(cls, settings: Settings, auth: AuthMode, catalogue: Catalogue | None = None) -> Self:
        """Connect, bring the schema and the queue's tables up to date. Raises SetupError."""
        database = Database.from_settings(settings)
        upgrade_schema(database)
        migrate_queue(database)
        found = catalogue if catalogue is not None else load_catalogue()
        return cls(settings, auth, database, LotQueue(database), found)

    @property
    def catalogue(self) -> Catalogue:
        """The shipped kernels and those that live workers offer now."""
        with self.database.reading() as session:
            offers = offered_kernels(session)
        # every request asks, and what workers offer changes when one starts
        known = self._offered
        if known is None or known[0] != offers:
            known = self._offered = (offers, with_offers(self._shipped, offers))
        return known[1]

    def start(self) -> None:
        """Run reaper and event hub. Safe to call again."""
        if self._thread is not None:
            return
        self._stopping.clear()
        IdempotencyKeys(self.database).abandon_all()
        self.hub.start()
        self._round_at = time.monotonic()
        self._thread = threading.Thread(target=self._reap, name="reaper", daemon=True)
        self._thread.start()
        self.alerts.start()

    def stop(self) -> None:
        """End every event stream and the threads. Safe to call again."""
        self._stopping.set()
        self.alerts.stop()
        self.hub.stop()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()

    def close(self) -> None:
        """Stop, and give back all connections."""
        self.stop()
        self.queue.close()
        self.database.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def reaper_alive(self) -> bool:
        """Whether the reaper has come round lately."""
        return self._thread is not None and time.monotonic() - self._round_at < SILENT_REAPER_S

    def _reap(self) -> None:
        pruned_at = float("-inf")
        last_error = ""
        while not self._stopping.wait(self.settings.heartbeat_s):
            self._round_at = time.monotonic()
            self.metrics.reaper_rounds.inc()
            try:
                self._reaper.tick()
                if self._round_at - pruned_at > PRUNE_EVERY_S:
                    pruned_at = self._round_at
                    with self.database.transaction() as session:
                        prune_idempotency(session, KEEP_ANSWERS)
            except Exception as error:  # whatever one round met, the next must come
                self.metrics.reaper_errors.inc()
                # the same fault every second is said once, not in thousands of tracebacks
                known = str(error).partition("[parameters")[0] == last_error
                last_error = str(error).partition("[parameters")[0]
                if not known:
                    _log.error("reaper", exc_info=error)
