"""Looks through what was measured for changes, has them measured again, and tells about them.

One thread per service. A round looks through the jobs that have ended since the last one, decides
alerts whose confirmation has ended, and now and then looks for queues that nobody serves and for
histories that are overdue. New and changed alerts go to the webhook as JSON.
"""

import threading
import time
from collections.abc import Sequence
from datetime import timedelta

import httpx
import structlog

from ..contract.alert import AlertKind
from ..contract.catalogue import Catalogue, with_offers
from ..contract.errors import ConflictError, LossbenchError
from ..contract.words import JobState
from ..settings import Settings
from ..store.alert_findings import FoundNote
from ..store.alert_models import AlertRow
from ..store.alert_scan import overdue, scan_job
from ..store.alert_settling import have_ended, settle_alerts
from ..store.alerts import add_jobs, get_alert, mark_scanned, record, record_notes, unscanned_jobs
from ..store.database import Database
from ..store.events import now
from ..store.work_waiting import stuck_queues
from ..store.workers import offered_kernels
from .alert_confirmation import confirmation_jobs
from .alert_records import alert_view
from .submission import Sender, Submission

ROUND_S = 5.0
SLOW_ROUND_S = 600.0
"""Between looks for what has not happened: queues that nobody serves, histories without results."""
STUCK_AFTER = timedelta(minutes=15)
WEBHOOK_TIMEOUT_S = 5.0
WEBHOOK_TRIES = 3
NOBODY = Sender(None, "alerts")

_log = structlog.get_logger("lossbench.alerts")


class AlertWatch:
    """Alerts of one service; `tick` may be called without the thread."""

    def __init__(
        self, settings: Settings, database: Database, submission: Submission, shipped: Catalogue
    ) -> None:
        self._settings, self._database = settings, database
        self._submission, self._shipped = submission, shipped
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._slow_at = float("-inf")

    def start(self) -> None:
        """Run rounds. Safe to call again."""
        if self._thread is None:
            self._stopping.clear()
            self._thread = threading.Thread(target=self._run, name="alerts", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End the thread. Safe to call again."""
        self._stopping.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        last_error = ""
        while not self._stopping.wait(ROUND_S):
            try:
                self.tick()
                if time.monotonic() - self._slow_at > SLOW_ROUND_S:
                    self._slow_at = time.monotonic()
                    self.look_for_what_is_missing()
            except Exception as error:  # whatever one round met, the next must come
                said = str(error).partition("[parameters")[0]
                if said != last_error:
                    _log.error("alerts", exc_info=error)
                last_error = said

    def tick(self) -> None:
        """Look through jobs that have ended, and decide what was measured again."""
        with self._database.reading() as session:
            jobs = unscanned_jobs(session)
        for job_id in jobs:
            if self._stopping.is_set():
                return
            self._look_through(job_id)
        with self._database.transaction() as session:
            decided = settle_alerts(session)
            told = [alert_view(alert).model_dump(mode="json") for alert in decided]
        self._tell("decided", told)

    def _look_through(self, job_id: str) -> None:
        with self._database.reading() as session:
            catalogue = with_offers(self._shipped, offered_kernels(session))
            found = scan_job(session, job_id, catalogue, now())
        with self._database.transaction() as session:
            changed = record(session, found)
            mark_scanned(session, job_id)
            told = [alert_view(alert).model_dump(mode="json") for alert in changed]
            waiting = [alert.id for alert in changed if _may_be_confirmed(alert)]
        if changed:
            _log.info("changes found", job_id=job_id, alerts=[alert["id"] for alert in told])
        self._tell("found", told)
        if self._settings.confirm_alerts:
            for alert_id in waiting:
                self._confirm_by_itself(alert_id)

    def _confirm_by_itself(self, alert_id: str) -> None:
        try:
            self.confirm(alert_id, NOBODY)
        except LossbenchError as error:
            _log.warning("not measured again", alert_id=alert_id, reason=error.message)

    def confirm(self, alert_id: str, sender: Sender) -> AlertRow:
        """Submit the jobs that measure an alert again. Raises NotFoundError, ConflictError."""
        with self._database.reading() as session:
            alert = get_alert(session, alert_id)
            requests = confirmation_jobs(alert)
            if not have_ended(session, alert.job_ids):
                raise ConflictError(f"alert {alert_id} is being measured again: see its jobs")
        jobs = [
            # without an idempotency key the digest of the body is not asked for
            self._submission.submit(request, "", sender).job
            for request in requests
        ]
        with self._database.transaction() as session:
            row = add_jobs(session, alert_id, [job.id for job in jobs])
        if all(job.state is JobState.DONE for job in jobs):
            raise ConflictError(
                f"alert {alert_id} cannot be measured again here: no cell of {jobs[0].id} can run; "
                "see its reasons"
            )
        return row

    def look_for_what_is_missing(self) -> None:
        """Notes of queues that nobody serves and of histories that are overdue."""
        moment = now()
        with self._database.reading() as session:
            catalogue = with_offers(self._shipped, offered_kernels(session))
            notes = [*_stuck(stuck_queues(session, moment - STUCK_AFTER))]
            notes += overdue(session, catalogue, moment)
        with self._database.transaction() as session:
            fresh = record_notes(session, notes)
            told = [alert_view(alert).model_dump(mode="json") for alert in fresh]
        self._tell("found", told)

    def _tell(self, event: str, alerts: Sequence[object]) -> None:
        """POST each alert to the webhook; a receiver that is away for long misses it."""
        url = self._settings.webhook_url
        if url is None or not alerts:
            return
        with httpx.Client(timeout=WEBHOOK_TIMEOUT_S) as client:
            for alert in alerts:
                self._post(client, url, {"event": event, "alert": alert})

    def _post(self, client: httpx.Client, url: str, body: dict[str, object]) -> None:
        for attempt in range(WEBHOOK_TRIES):
            try:
                client.post(url, json=body).raise_for_status()
            except httpx.HTTPError as error:
                # the address may hold a secret, so it is not in the log
                why = type(error).__name__
                if self._stopping.wait(2.0**attempt):
                    return
            else:
                return
        _log.warning("webhook did not take an alert", reason=why, tries=WEBHOOK_TRIES)


def _may_be_confirmed(alert: AlertRow) -> bool:
    return alert.kind == AlertKind.CHANGE.value and alert.state == "candidate" and not alert.job_ids


def _stuck(queues: Sequence[tuple[str, int, object]]) -> Sequence[FoundNote]:
    return [
        FoundNote(
            AlertKind.STUCK_QUEUE,
            f"stuck_queue:{queue}:{since:%Y-%m-%d}",
            f"{count} lots wait in queue {queue}, and no live worker takes them; start one "
            f"(lossbench worker --queue {queue}), or cancel their jobs",
            {"lots": count},
        )
        for queue, count, since in queues
    ]
