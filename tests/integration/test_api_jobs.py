"""Jobs through the API: submit, dry run, idempotency, pages, cancel, retry."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from lossbench.service.contract.words import Outcome
from lossbench.service.store.events import now
from lossbench.service.store.models import IdempotencyRow, JobRow

SHAPE = {"tokens": 1024, "hidden": 512, "vocab": 4096}
BODY: dict[str, Any] = {"contenders": ["flce", "liger@0.8.5"], "shapes": [SHAPE], "processes": 3}
JOBS = "/api/v1/jobs"


def count_jobs(service: Any) -> int:
    with service.context.database.reading() as session:
        return session.scalar(sa.select(sa.func.count()).select_from(JobRow)) or 0


def submit(service: Any, **changes: Any) -> dict[str, Any]:
    answer = service.http.post(JOBS, json={**BODY, **changes})
    assert answer.status_code == 202, answer.text
    job: dict[str, Any] = answer.json()
    return job


def test_submit_valid_body_stores_a_queued_job(any_service: Any) -> None:
    answer = any_service.http.post(JOBS, json=BODY)
    assert answer.status_code == 202
    job = answer.json()
    assert answer.headers["location"] == f"{JOBS}/{job['id']}"
    assert (job["state"], job["cells_total"], job["cells_queued"]) == ("queued", 2, 2)
    assert any_service.http.get(answer.headers["location"]).json()["id"] == job["id"]


def test_submit_yaml_body_gives_the_same_job(service: Any) -> None:
    text = "contenders: [flce, liger@0.8.5]\nshapes: [{tokens: 1024, hidden: 512, vocab: 4096}]\n"
    answer = service.http.post(JOBS, content=text, headers={"Content-Type": "application/yaml"})
    assert answer.status_code == 202
    assert answer.json()["cells_total"] == 2


def test_submit_when_a_worker_answers_ends_done_with_counts(any_service: Any) -> None:
    worker = any_service.worker()
    job = submit(any_service)
    worker.answer(job["id"])
    done = any_service.http.get(f"{JOBS}/{job['id']}").json()
    assert (done["state"], done["outcomes"], done["remaining_s"]) == ("done", {"ok": 2}, 0.0)
    cells = any_service.http.get(f"{JOBS}/{job['id']}/cells").json()["items"]
    assert [cell["pass"] for cell in cells] == ["forward_backward"] * 2
    result = any_service.http.get(f"/api/v1/results/{cells[0]['result_id']}").json()
    assert (result["contender"], result["latency_ms"]) == ("flce", 20.0)
    log = any_service.http.get(f"{JOBS}/{job['id']}/cells/0/log")
    assert log.headers["content-type"] == "text/plain; charset=utf-8"
    assert log.text == "line one\n"


def test_dry_run_stores_nothing_and_says_what_would_run(any_service: Any) -> None:
    body = {**BODY, "options": {"softcap": 30}, "contenders": ["torch-naive", "flce"]}
    answer = any_service.http.post(JOBS, params={"dry_run": "true"}, json=body)
    assert answer.status_code == 200
    plan = answer.json()
    assert (plan["cells_total"], plan["cells_refused"], plan["cells_to_run"]) == (2, 1, 1)
    refused = plan["cells"][1]
    assert (refused["position"], refused["outcome"]) == (1, "unsupported")
    assert "softcap" in refused["reason"]
    assert plan["estimated_minutes"] > 0
    assert plan["estimated_peak_bytes"] > 0
    assert count_jobs(any_service) == 0


def test_dry_run_after_a_measured_job_names_the_known_results(any_service: Any) -> None:
    worker = any_service.worker()
    worker.answer(submit(any_service)["id"])
    plan = any_service.http.post(JOBS, params={"dry_run": "true"}, json=BODY).json()
    assert plan["cells_known"] == 2
    assert all(cell["known_result_id"].startswith("run-") for cell in plan["cells"])
    again = submit(any_service)
    assert (again["state"], again["outcomes"]) == ("done", {"ok": 2})


def test_submit_without_reuse_measures_known_cells_again(service: Any) -> None:
    worker = service.worker()
    worker.answer(submit(service)["id"])
    assert submit(service, reuse=False)["state"] == "queued"


def test_idempotency_same_key_and_body_gives_one_job(any_service: Any) -> None:
    headers = {"Idempotency-Key": "k-1"}
    first = any_service.http.post(JOBS, json=BODY, headers=headers)
    spaced = json.dumps(BODY, indent=3)
    second = any_service.http.post(
        JOBS, content=spaced, headers={**headers, "Content-Type": "application/json"}
    )
    assert (first.status_code, second.status_code) == (202, 202)
    assert second.json() == first.json()
    assert second.headers["idempotent-replayed"] == "true"
    assert second.headers["location"] == first.headers["location"]
    assert "idempotent-replayed" not in first.headers
    assert count_jobs(any_service) == 1


def test_idempotency_same_key_other_body_is_refused(any_service: Any) -> None:
    headers = {"Idempotency-Key": "k-1"}
    any_service.http.post(JOBS, json=BODY, headers=headers)
    answer = any_service.http.post(JOBS, json={**BODY, "priority": 1}, headers=headers)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["code"] == "idempotency_key_reused"
    assert count_jobs(any_service) == 1


def test_idempotency_while_the_first_runs_is_a_conflict(any_service: Any) -> None:
    keys = any_service.context.submission._keys
    digest = digest_of(any_service, "k-1")
    keys.begin("local", "k-2", digest, "job-never-made")
    answer = any_service.http.post(JOBS, json=BODY, headers={"Idempotency-Key": "k-2"})
    assert answer.status_code == 409
    assert "still running" in answer.json()["detail"]


def digest_of(service: Any, key: str) -> str:
    service.http.post(JOBS, json=BODY, headers={"Idempotency-Key": key})
    with service.context.database.reading() as session:
        return str(session.get_one(IdempotencyRow, ("local", key)).body_hash)


@pytest.mark.parametrize("committed", [True, False])
def test_idempotency_after_a_crash_makes_exactly_one_job(any_service: Any, committed: bool) -> None:
    digest = digest_of(any_service, "k-1")
    job_id = submit(any_service)["id"] if committed else "job-never-made"
    any_service.context.submission._keys.begin("local", "k-2", digest, job_id)
    with any_service.context.database.transaction() as session:
        row = session.get_one(IdempotencyRow, ("local", "k-2"))
        row.created_at = now() - timedelta(minutes=5)
    before = count_jobs(any_service)
    answer = any_service.http.post(JOBS, json=BODY, headers={"Idempotency-Key": "k-2"})
    assert answer.status_code == 202
    assert answer.json()["id"] == job_id
    assert count_jobs(any_service) == before + (not committed)


def test_idempotency_after_a_refused_body_lets_the_key_be_used_again(service: Any) -> None:
    headers = {"Idempotency-Key": "k-1"}
    bad = {**BODY, "contenders": ["flcee"]}
    assert service.http.post(JOBS, json=bad, headers=headers).status_code == 422
    assert service.http.post(JOBS, json=BODY, headers=headers).status_code == 202


def test_idempotency_of_twenty_at_once_makes_one_job(any_service: Any) -> None:
    def send(_: int) -> int:
        answer = any_service.http.post(JOBS, json=BODY, headers={"Idempotency-Key": "k-1"})
        return int(answer.status_code)

    with ThreadPoolExecutor(8) as pool:
        statuses = list(pool.map(send, range(20)))
    assert set(statuses) <= {202, 409}
    assert 202 in statuses
    assert count_jobs(any_service) == 1


def test_jobs_list_walks_every_job_once_newest_first(any_service: Any) -> None:
    ids = [submit(any_service)["id"] for _ in range(5)]
    seen: list[str] = []
    url: str | None = f"{JOBS}?limit=2"
    while url:
        answer = any_service.http.get(url)
        seen += [job["id"] for job in answer.json()["items"]]
        link = answer.headers.get("link")
        assert (link is None) == (answer.json()["next_cursor"] is None)
        url = link.partition(">")[0].removeprefix("<") if link else None
    assert sorted(seen) == sorted(ids)
    assert seen == sorted(ids, reverse=True)


def test_cells_list_walks_every_cell_in_order(service: Any) -> None:
    job = submit(service, sweep={"tokens": list(range(1, 8))})
    url, seen = f"{JOBS}/{job['id']}/cells", []
    cursor: str | None = None
    while True:
        params = {"limit": 3, **({"cursor": cursor} if cursor else {})}
        page = service.http.get(url, params=params).json()
        seen += [cell["position"] for cell in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == list(range(14))


def test_cancel_queued_job_cancels_its_cells(any_service: Any) -> None:
    job = submit(any_service)
    answer = any_service.http.post(f"{JOBS}/{job['id']}/cancel")
    assert answer.status_code == 200
    assert (answer.json()["state"], answer.json()["outcomes"]) == ("cancelled", {"cancelled": 2})
    again = any_service.http.post(f"{JOBS}/{job['id']}/cancel")
    assert again.status_code == 409
    assert "cancelled already" in again.json()["detail"]


def test_retry_runs_only_the_failed_cells(any_service: Any) -> None:
    worker = any_service.worker()
    job = submit(any_service)

    def half(cell: Any) -> Any:
        if cell.contender.kernel == "flce":
            return Outcome.FAILED
        return worker.record(cell)

    worker.answer(job["id"], half)
    assert any_service.http.get(f"{JOBS}/{job['id']}").json()["outcomes"] == {"failed": 1, "ok": 1}
    answer = any_service.http.post(f"{JOBS}/{job['id']}/retry")
    assert (answer.status_code, answer.json()["cells_requeued"]) == (202, 1)
    cells = any_service.http.get(f"{JOBS}/{job['id']}/cells").json()["items"]
    assert [cell["state"] for cell in cells] == ["queued", "done"]
    worker.answer(job["id"])
    assert any_service.http.get(f"{JOBS}/{job['id']}").json()["outcomes"] == {"ok": 2}
    assert any_service.http.post(f"{JOBS}/{job['id']}/retry").status_code == 409


def test_retry_of_a_running_job_is_a_conflict(service: Any) -> None:
    job = submit(service)
    assert service.http.post(f"{JOBS}/{job['id']}/retry").status_code == 409


@pytest.mark.parametrize("tail", ["", "/cells", "/events", "/cells/0/log"])
def test_unknown_job_is_not_found(service: Any, tail: str) -> None:
    answer = service.http.get(f"{JOBS}/job-nowhere{tail}")
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"


def test_job_over_the_cell_limit_is_refused_with_the_count(
    make_service: Callable[..., Any], sqlite_url: str
) -> None:
    service = make_service(sqlite_url, max_cells=10)
    answer = service.http.post(JOBS, json={**BODY, "sweep": {"tokens": list(range(1, 7))}})
    assert answer.status_code == 422
    assert "12 cells" in answer.json()["detail"]
    assert answer.json()["type"] == "/docs/errors#job-too-large"


def test_log_with_secrets_is_masked(service: Any) -> None:
    from lossbench.service.api.job_routes import mask_secrets

    text = "lb_abcdefghijklmnopqrstuv postgresql://me:pw@host/db Authorization: Bearer xyz token=q"
    masked = mask_secrets(text)
    for secret in ("lb_abc", "me:pw", "xyz", "=q"):
        assert secret not in masked
