"""Server-sent events of one job, and the long poll that is their twin."""

import asyncio
import json
import time
from collections.abc import AsyncIterator

from fastapi.sse import EventSourceResponse, format_sse_event
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ..contract.errors import Fault, InvalidRequestError
from ..contract.result import JobView
from ..contract.words import JobState
from ..store.database import Database
from ..store.events import events_after, newest_event_id
from ..store.jobs import get_job
from ..store.overviews import newest_done_id
from ..store.views import job_views
from .event_hub import BATCH, MOST_WAITING, Event, EventHub, Subscription

PING_S = 15.0
RETRY_MS = 3000


class JobEvents:
    """Follows jobs for streams and long polls. Holds no database session while it waits."""

    def __init__(self, database: Database, hub: EventHub, ping_s: float = PING_S) -> None:
        self._database, self._hub, self._ping_s = database, hub, ping_s

    async def stream(self, job_id: str, last_event_id: str | None) -> Response:
        """The answer to `GET /jobs/{id}/events`."""
        last_id = _parse_last_id(last_event_id)
        ended = await run_in_threadpool(self._ended, job_id)
        if ended and last_id is not None:
            behind = await run_in_threadpool(self._stored, job_id, last_id)
            if not behind:
                return Response(status_code=204)
        loop = asyncio.get_running_loop()
        subscription = await run_in_threadpool(self._hub.subscribe, job_id, loop)
        return _Stream(self._sse(subscription, last_id or 0), self._hub, subscription)

    async def wait(self, job_id: str, seconds: float) -> JobView:
        """The job, once its state changes or has ended, or after `seconds`."""
        view = await run_in_threadpool(self.view, job_id)
        if not seconds or view.state.ended:
            return view
        loop = asyncio.get_running_loop()
        subscription = await run_in_threadpool(self._hub.subscribe, job_id, loop)
        end = time.monotonic() + seconds
        try:
            # a change between the first look and the subscription has no event to wake us
            before, view = view.state, await run_in_threadpool(self.view, job_id)
            while view.state is before and (left := end - time.monotonic()) > 0:
                event = await _next(subscription, left)
                if event is not None and event.kind in ("state", "done"):
                    view = await run_in_threadpool(self.view, job_id)
                if subscription.closed:
                    break
        finally:
            self._hub.unsubscribe(subscription)
        return await run_in_threadpool(self.view, job_id)

    def view(self, job_id: str) -> JobView:
        """The job as it is now. Raises NotFoundError."""
        with self._database.reading() as session:
            return job_views(session, [get_job(session, job_id)])[0]

    def _ended(self, job_id: str) -> bool:
        with self._database.reading() as session:
            return JobState(get_job(session, job_id).state).ended

    def _stored(self, job_id: str, last_id: int) -> list[Event]:
        with self._database.reading() as session:
            return [Event.of(row) for row in events_after(session, last_id, job_id, BATCH)]

    def _is_last(self, done: Event) -> bool:
        """Whether a `done` ends the story: a retry opens the job again behind an older one."""
        with self._database.reading() as session:
            job = get_job(session, done.job_id)
            return JobState(job.state).ended and newest_done_id(session, done.job_id) <= done.id

    def _closing(self, job_id: str) -> Event | None:
        """A `done` for an ended job whose events were deleted; None while it is open."""
        with self._database.reading() as session:
            job = get_job(session, job_id)
            if not JobState(job.state).ended:
                return None
            return Event(newest_event_id(session), job_id, "done", {"state": job.state})

    async def _sse(self, subscription: Subscription, last_id: int) -> AsyncIterator[bytes]:
        yield format_sse_event(retry=RETRY_MS)
        sent: set[int] = set()
        highest = last_id
        async for event in self._events(subscription, last_id):
            if event is None:
                yield format_sse_event(comment="ping")
                continue
            if event.id in sent:
                continue
            sent.add(event.id)
            if len(sent) > 2 * MOST_WAITING:
                sent = {known for known in sent if known > highest - MOST_WAITING}
            if event.kind == "done" and not await run_in_threadpool(self._is_last, event):
                continue
            # ids never fall, so that a resume by the last one sent misses nothing behind it
            highest = max(highest, event.id)
            data = json.dumps(event.data, allow_nan=False)
            yield format_sse_event(data_str=data, event=event.kind, id=str(highest))
            if event.kind == "done":
                return

    async def _events(
        self, subscription: Subscription, last_id: int
    ) -> AsyncIterator[Event | None]:
        """Stored events, then live ones; None stands for a silence as long as a ping."""
        place = last_id
        while True:
            stored = await run_in_threadpool(self._stored, subscription.job_id, place)
            for event in stored:
                yield event
            if len(stored) < BATCH:
                break
            place = stored[-1].id
        if last_id == 0 and not stored:
            closing = await run_in_threadpool(self._closing, subscription.job_id)
            if closing is not None:
                yield closing
        while True:
            event_or_none = await _next(subscription, self._ping_s)
            if subscription.closed and event_or_none is None:
                return
            yield event_or_none


async def _next(subscription: Subscription, timeout_s: float) -> Event | None:
    try:
        return await subscription.next(timeout_s)
    except TimeoutError:
        return None


def _parse_last_id(text: str | None) -> int | None:
    if text is None or text == "":
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        fault = Fault("/header/Last-Event-ID", "bad_event_id", "this is not an event id")
        raise InvalidRequestError([fault])
    return int(text)


class _Stream(EventSourceResponse):
    """Gives its place back however the stream ends, even before it began."""

    def __init__(
        self, content: AsyncIterator[bytes], hub: EventHub, subscription: Subscription
    ) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(content, headers=headers)
        self._hub, self._subscription = hub, subscription

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._hub.unsubscribe(self._subscription)
