"""Faults of the service: killed while it takes a job, takes back a lot, cancels, or waits."""

import contextlib
import time
import uuid
from typing import Any

import httpx
import sqlalchemy as sa
from found import Fault, Found
from stage import Job, Stage, until

from lossbench.service.store.models import JobRow

SUBMIT_POINTS = {
    "submit_begun": "service killed before it stores a job",
    "submit_uncommitted": "service killed in the middle of storing a job",
    "submit_committed": "service killed before it answers for a stored job",
}
TAKE_BACK_POINTS = {
    "take_back_begun": "service killed before it takes back a lot",
    "requeue_uncommitted": "service killed in the middle of taking back a lot",
    "not_withdrawn": "service killed between taking back and withdrawing",
}


def _post(stage: Stage, body: dict[str, Any], key: str) -> Job | None:
    """Send a job as a client that tries again does; None where no answer came."""
    with contextlib.suppress(httpx.TransportError), stage.http as http:
        answer = http.post("/jobs", json=body, headers={"Idempotency-Key": key})
        if answer.status_code in (200, 202):
            found = answer.json()
            return Job(found["id"], found["cells_total"], body["shapes"][0]["hidden"])
    return None


def _jobs(stage: Stage) -> int:
    """How many jobs the database holds."""
    with stage.database.reading() as session:
        return session.scalar(sa.select(sa.func.count()).select_from(JobRow)) or 0


def _killed_at_submit(point: str) -> Fault:
    def play(stage: Stage) -> Found:
        stage.marker(point).unlink(missing_ok=True)
        doomed = stage.service(point)
        worker = stage.worker()
        body, key = stage.body(3), uuid.uuid4().hex
        before = _jobs(stage)
        first = _post(stage, body, key)
        doomed.wait(timeout=30)
        began = time.monotonic()
        again = stage.service()
        answers: list[Job] = []

        def answered() -> bool:
            job = _post(stage, body, key)
            answers.extend([job] if job else [])
            return bool(answers)

        until(answered, "an answer to the second try", 90)
        job = answers[0]
        recovered_s = time.monotonic() - began
        stage.wait_end(job)
        found = Found([job], recovered_s, stage.said("lossbench serves"))
        made = _jobs(stage) - before
        if made != 1 or first is not None:
            found.wrong.append(f"{made} jobs from one request")
        stage.end(worker, again)
        return found

    return Fault(SUBMIT_POINTS[point], play, service=False)


def _killed_at_take_back(point: str) -> Fault:
    def play(stage: Stage) -> Found:
        stage.marker(point).unlink(missing_ok=True)
        stage.marker("measuring").unlink(missing_ok=True)
        doomed = stage.service(point)
        dies = stage.worker("measuring")
        job = stage.submit(4)
        dies.wait(timeout=30)
        other = stage.worker()
        doomed.wait(timeout=60)
        began, saved = time.monotonic(), stage.done(job)
        again = stage.service()
        stage.wait_done(job, saved + 1)
        recovered_s = time.monotonic() - began
        stage.wait_end(job)
        found = Found([job], recovered_s, stage.said("lot queued again|queued again", job))
        stage.end(other, again)
        return found

    return Fault(TAKE_BACK_POINTS[point], play, service=False)


def killed_in_mid_job(stage: Stage) -> Found:
    """The service is killed while a worker measures: the worker goes on without it."""
    service = stage.service()
    worker = stage.worker()
    job = stage.submit(10)
    stage.wait_done(job, 2)
    service.kill()
    service.wait()
    began, saved = time.monotonic(), stage.done(job)
    stage.wait_done(job, saved + 1)
    recovered_s = time.monotonic() - began
    again = stage.service()
    stage.wait_end(job)
    found = Found([job], recovered_s, stage.said("lossbench serves"))
    stage.end(worker, again)
    return found


def killed_in_cancel(stage: Stage) -> Found:
    """Killed between a cancel's commit and the queue's own bookkeeping; the next job runs."""
    stage.marker("not_withdrawn").unlink(missing_ok=True)
    doomed = stage.service("not_withdrawn")
    worker = stage.worker()
    cancelled = stage.submit(40)
    stage.wait_done(cancelled, 2)
    with contextlib.suppress(httpx.TransportError), stage.http as http:
        http.post(f"/jobs/{cancelled.id}/cancel")
    doomed.wait(timeout=30)
    began = time.monotonic()
    again = stage.service()
    job = stage.submit(3)
    stage.wait_done(job, 1)
    recovered_s = time.monotonic() - began
    stage.wait_end(job)
    found = Found([job], recovered_s, stage.said("lossbench serves"))
    if stage.state(cancelled) != "cancelled":
        found.wrong.append(f"the cancelled job is {stage.state(cancelled)}")
    if stage.verdict(cancelled).doubled:
        found.wrong.append("the cancelled job has a result too many")
    stage.end(worker, again)
    return found


FAULTS = [
    Fault("service killed in mid job", killed_in_mid_job, service=False),
    *(_killed_at_submit(point) for point in SUBMIT_POINTS),
    *(_killed_at_take_back(point) for point in TAKE_BACK_POINTS),
    Fault("service killed in the middle of a cancel", killed_in_cancel, service=False),
]
