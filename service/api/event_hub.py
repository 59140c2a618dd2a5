"""Fan-out of events: one thread reads new ones while somebody listens, and hands them round.

On PostgreSQL an event may become visible after one with a higher id (its transaction took longer),
so each round reads a window behind the last id again and drops what was handed round already.
"""

import asyncio
import threading
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import structlog

from ..store.database import Database
from ..store.events import events_after, newest_event_id
from ..store.models import EventRow
from .errors import TooManyStreamsError

POLL_S = 0.2
WINDOW = 200
"""Ids behind the last one that each round reads again."""
BATCH = 1000
MOST_WAITING = 5000
"""Events that one slow listener may have waiting before it is cut off; it resumes by id."""

_log = structlog.get_logger("lossbench.api")


class Event(NamedTuple):
    """One event of a job, as streams send it."""

    id: int
    job_id: str
    kind: str
    data: dict[str, Any]

    @classmethod
    def of(cls, row: EventRow) -> "Event":
        """The event of a table row."""
        return cls(row.id, row.job_id, row.kind, row.data)


@dataclass(eq=False)
class Subscription:
    """A listener to one job. `next` gives None when the hub closes it."""

    job_id: str
    loop: asyncio.AbstractEventLoop
    waiting: asyncio.Queue[Event | None] = field(default_factory=asyncio.Queue)
    closed: bool = False

    async def next(self, timeout_s: float) -> Event | None:
        """The next event. Raises TimeoutError."""
        if self.closed and self.waiting.empty():
            return None
        return await asyncio.wait_for(self.waiting.get(), timeout_s)

    def _put(self, event: Event | None) -> None:
        if self.closed:
            return
        if event is None or self.waiting.qsize() >= MOST_WAITING:
            self.closed = True
            self.waiting.put_nowait(None)
            return
        self.waiting.put_nowait(event)

    def offer(self, event: Event | None) -> None:
        """Hand over an event, or None to close; callable from any thread."""
        # the loop may have ended between two rounds, and its listener with it
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self._put, event)


class EventHub:
    """Listeners of a service process and the thread that serves them."""

    def __init__(self, database: Database, max_streams: int, poll_s: float = POLL_S) -> None:
        self._database, self._max_streams, self._poll_s = database, max_streams, poll_s
        self._listeners: set[Subscription] = set()
        # guards the listeners; the event loop takes it, so no database is asked while it is held
        self._wake = threading.Condition()
        self._reading = threading.Lock()
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._last = 0
        self._handed: set[int] = set()

    @property
    def streams(self) -> int:
        """How many listen now."""
        return len(self._listeners)

    def start(self) -> None:
        """Begin to serve listeners. Safe to call again."""
        with self._wake:
            if self._thread is not None:
                return
            self._stopping = False
            self._thread = threading.Thread(target=self._run, name="event-hub", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Close every stream and end the thread."""
        with self._wake:
            self._stopping = True
            thread, self._thread = self._thread, None
            listeners = list(self._listeners)
            self._wake.notify_all()
        for listener in listeners:
            listener.offer(None)
        if thread is not None:
            thread.join()

    def subscribe(self, job_id: str, loop: asyncio.AbstractEventLoop) -> Subscription:
        """Listen to a job from this moment on. Raises TooManyStreamsError."""
        with self._reading:
            with self._wake:
                if len(self._listeners) >= self._max_streams or self._stopping:
                    raise TooManyStreamsError()
                first = not self._listeners
            if first:
                self._read_tail()
            subscription = Subscription(job_id, loop)
            with self._wake:
                self._listeners.add(subscription)
                self._wake.notify_all()
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """Stop listening. Safe to call again."""
        with self._wake:
            self._listeners.discard(subscription)

    def _read_tail(self) -> None:
        """Begin behind what is stored already: listeners read that themselves."""
        with self._database.reading() as session:
            self._last = newest_event_id(session)
            tail = events_after(session, self._last - WINDOW, limit=WINDOW)
        self._handed = {row.id for row in tail}

    def _run(self) -> None:
        while True:
            with self._wake:
                if self._stopping:
                    return
                if not self._listeners:
                    self._wake.wait()
                    continue
            try:
                self._round()
            except Exception as error:  # the database may be away for a while; listeners wait
                _log.error("event hub", exc_info=error)
            with self._wake:
                if not self._stopping:
                    self._wake.wait(self._poll_s)

    def _round(self) -> None:
        """Hand round what is new."""
        more = True
        while more:
            with self._reading:
                new, more = self._read_new()
                with self._wake:
                    listeners = list(self._listeners)
            for event in new:
                for listener in listeners:
                    if listener.job_id == event.job_id:
                        listener.offer(event)

    def _read_new(self) -> tuple[list[Event], bool]:
        """Events not handed round yet, and whether more wait."""
        with self._database.reading() as session:
            rows = events_after(session, self._last - WINDOW, limit=BATCH)
        new = [Event.of(row) for row in rows if row.id not in self._handed]
        self._handed.update(event.id for event in new)
        self._last = max([self._last, *(event.id for event in new)])
        self._handed = {known for known in self._handed if known > self._last - WINDOW}
        return new, len(rows) >= BATCH
