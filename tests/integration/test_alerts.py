"""Alerts from stored results to the API: found, measured again, decided, fixed, told."""

import threading
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from lossbench.service.api.alert_watch import AlertWatch
from lossbench.service.contract.catalogue import load_catalogue
from lossbench.service.contract.run import MemoryReport
from lossbench.service.contract.words import Grade, Verdict

from .conftest import make_environment
from .referee import Referee
from .shared_sites import ENGINES, Site, open_site

OLD, SLOW, NEW = "0.6.0", "0.6.5", "0.8.5"


@pytest.fixture(scope="module", params=ENGINES)
def shared(request: pytest.FixtureRequest) -> Iterator[Site]:
    yield from open_site(request, load_catalogue())


@pytest.fixture
def site(shared: Site) -> Site:
    """The site, with a hidden size that no other test has, and nothing left to look through."""
    shared.context.alerts.tick()
    return shared.renewed()


def release(site: Site, version: str, latency_ms: float, **changes: Any) -> None:
    """Measure this release of liger; `changes` are fields of its record."""

    def answer(cell: Any) -> Any:
        record = site.worker.record(cell, latency_ms)
        return record.model_copy(update=changes) if changes else record

    site.measure(contenders=[f"liger@{version}"], answer=answer)
    site.context.alerts.tick()


def memory(mebibytes: int) -> MemoryReport:
    names = ("base", "peak_forward", "held", "peak_backward", "outputs", "workspace")
    return MemoryReport.model_validate({f"{name}_bytes": mebibytes * 2**20 for name in names})


def alerts(site: Site, **query: Any) -> list[dict[str, Any]]:
    """Alerts about this test's shape, whole, the newest first."""
    listed = site.get("/alerts", **query)["items"]
    whole = [site.get(f"/alerts/{each['id']}") for each in listed]
    mark = f"-H{site.hidden}-"
    return [
        {**each, "cases": own}
        for each in whole
        if (own := [case for case in each["cases"] if mark in case["case"]])
    ]


def measured_again(site: Site, alert_id: str, **changes: Any) -> dict[str, Any]:
    """Confirm an alert, with comparisons whose fields are these."""
    answer = site.http.post(f"/api/v1/alerts/{alert_id}/confirm")
    assert answer.status_code == 202, answer.text
    (job,) = answer.json()["job_ids"]
    referee = Referee(site.service, site.worker)
    referee.settle(job, **changes)
    site.context.alerts.tick()
    found: dict[str, Any] = site.get(f"/alerts/{alert_id}")
    return found


def test_slower_release_is_found_measured_again_confirmed_and_fixed(site: Site) -> None:
    release(site, OLD, 20.0)
    assert alerts(site) == []
    release(site, SLOW, 30.0)
    (slower,) = alerts(site)
    assert (slower["kind"], slower["state"]) == ("change", "candidate")
    assert (slower["before_version"], slower["after_version"]) == (OLD, SLOW)
    (case,) = slower["cases"]
    assert (case["metric"], case["direction"]) == ("time", "worse")
    assert case["ratio"] == pytest.approx(1.5)
    assert case["ratio_low"] < 1.5 < case["ratio_high"]
    assert 0 < case["p_value"] <= case["adjusted_p_value"] < 0.001
    assert (case["before"], case["after"]) == ("0.5× the baseline", "0.75× the baseline")
    assert slower["same_today"] is True

    logs = tuple(0.4 + 0.001 * number for number in range(16))
    decided = measured_again(
        site, slower["id"], ratio=1.49, log_ratios=logs, processes=16, verdict=Verdict.SLOWER
    )
    assert decided["state"] == "confirmed"
    assert decided["cases"][0]["confirmed"] is True
    assert decided["cases"][0]["ratio"] == 1.49
    assert decided["cases"][0]["comparison_id"] is not None

    # the confirmation's own result of the slower release, 20 ms, is the newest now
    release(site, NEW, 10.0)
    faster, slower = alerts(site)
    assert (faster["worse"], faster["better"]) == ([], ["time"])
    assert faster["cases"][0]["ratio"] == pytest.approx(0.5)
    assert (slower["state"], slower["note"]) == ("fixed", f"undone by {NEW}")


def test_gain_of_an_older_release_measured_later_undoes_nothing(site: Site) -> None:
    release(site, "0.8.0", 20.0, memory=memory(100))
    release(site, "0.8.4", 20.0, memory=memory(130))
    (larger,) = alerts(site)
    assert larger["state"] == "confirmed"
    release(site, "0.2.0", 20.0, memory=memory(200))
    gain, larger = alerts(site)
    assert (gain["before_version"], gain["better"]) == ("0.2.0", ["memory"])
    assert larger["state"] == "confirmed"
    release(site, "0.8.5", 20.0, memory=memory(100))
    fixed = site.get(f"/alerts/{larger['id']}")
    assert (fixed["state"], fixed["note"]) == ("fixed", "undone by 0.8.5")


def test_change_that_is_not_seen_again_is_dismissed(site: Site) -> None:
    release(site, "0.5.0", 20.0)
    release(site, "0.5.5", 30.0)
    (alert,) = alerts(site)
    decided = measured_again(
        site, alert["id"], ratio=1.0, verdict=Verdict.NO_DIFFERENCE, log_ratios=(0.001, -0.001, 0.0)
    )
    assert decided["state"] == "dismissed"
    assert "no case was seen again" in decided["note"]
    again = site.http.post(f"/api/v1/alerts/{alert['id']}/confirm")
    assert again.status_code == 409
    assert "only a candidate is confirmed" in again.json()["detail"]


def test_comparison_without_a_verdict_leaves_a_candidate(site: Site) -> None:
    release(site, "0.4.0", 20.0)
    release(site, "0.4.1", 30.0)
    (alert,) = alerts(site)
    decided = measured_again(site, alert["id"], verdict=Verdict.INCONCLUSIVE)
    assert (decided["state"], decided["cases"][0]["confirmed"]) == ("candidate", None)
    again = site.http.post(f"/api/v1/alerts/{alert['id']}/confirm")
    assert (again.status_code, len(again.json()["job_ids"])) == (202, 2)
    meanwhile = site.http.post(f"/api/v1/alerts/{alert['id']}/confirm")
    assert meanwhile.status_code == 409
    assert "is being measured again" in meanwhile.json()["detail"]


def test_memory_and_error_are_exact_and_need_no_second_measurement(site: Site) -> None:
    release(site, "0.8.1", 20.0, memory=memory(100))

    def answer(cell: Any) -> Any:
        record = site.worker.record(cell, 20.0)
        errors = record.errors.model_copy(update={"grade": Grade.COARSE})
        return record.model_copy(update={"memory": memory(130), "errors": errors})

    site.measure(contenders=["liger@0.8.2"], answer=answer)
    site.context.alerts.tick()
    (alert,) = alerts(site)
    assert (alert["state"], alert["worse"]) == ("confirmed", ["memory", "error"])
    grown, coarse = sorted(alert["cases"], key=lambda case: str(case["metric"]), reverse=True)
    assert (grown["before"], grown["after"]) == ("100.0 MiB", "130.0 MiB")
    assert grown["ratio"] == pytest.approx(1.3)
    assert coarse["after"] == "coarse"
    assert alert["same_today"] is True
    assert "more workspace by 30 % on 1 case; less exact on 1 case" in alert["title"]


def test_invalidated_result_takes_its_cases_away(site: Site) -> None:
    release(site, "0.2.0", 20.0)
    release(site, "0.3.0", 30.0)
    (alert,) = alerts(site)
    site.invalidate(alert["cases"][0]["after_result_id"])
    left = site.get(f"/alerts/{alert['id']}")
    assert (left["state"], left["cases"]) == ("dismissed", [])
    assert left["note"] == "its results were invalidated"


def test_older_result_stands_in_for_an_invalidated_one(site: Site) -> None:
    release(site, "0.8.2", 20.0)
    release(site, "0.8.3", 26.0)
    release(site, "0.8.3", 30.0)
    (alert,) = alerts(site)
    (case,) = alert["cases"]
    assert case["ratio"] == pytest.approx(1.3), "the case that was found first stays"
    site.invalidate(case["after_result_id"])
    site.context.alerts.tick()
    (again,) = alerts(site)
    assert (again["id"], again["state"]) == (alert["id"], "candidate")
    assert again["cases"][0]["ratio"] == pytest.approx(1.5)


def test_person_sets_state_owner_and_note_and_bad_ones_are_refused(site: Site) -> None:
    release(site, "0.5.3", 20.0)
    release(site, "0.5.5", 30.0)
    (alert,) = alerts(site)
    path = f"/api/v1/alerts/{alert['id']}"
    body = {"state": "dismissed", "owner": "ada", "note": "known: see the changelog"}
    answer = site.http.patch(path, json=body)
    assert answer.status_code == 200, answer.text
    assert {name: answer.json()[name] for name in body} == body
    kept = site.http.patch(path, json={"owner": ""}).json()
    assert (kept["owner"], kept["note"]) == (None, body["note"])
    refused = site.http.patch(path, json={"state": "gone"})
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["pointer"] == "/state"
    assert site.http.get("/api/v1/alerts/alt-none").status_code == 404
    for moment in ("5", "2026-11-30T02:30:00"):
        unclear = site.http.get("/api/v1/alerts", params={"since": moment})
        assert (unclear.status_code, unclear.json()["errors"][0]["pointer"]) == (
            422,
            "/query/since",
        )
    listed = site.get("/alerts", state="dismissed", kernel="liger")["items"]
    assert alert["id"] in [each["id"] for each in listed]


def test_lots_that_nobody_takes_become_one_note(site: Site) -> None:
    site.http.post(
        "/api/v1/jobs",
        json={"contenders": ["flce"], "shapes": [{"tokens": 8, "hidden": 8, "vocab": 16}],
              "accelerator": "b200"},
    )  # fmt: skip
    watch = site.context.alerts
    watch.look_for_what_is_missing()
    assert site.get("/alerts", kind="stuck_queue")["items"] == []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("lossbench.service.api.alert_watch.STUCK_AFTER", timedelta(seconds=-60))
        watch.look_for_what_is_missing()
        watch.look_for_what_is_missing()
    (note,) = site.get("/alerts", kind="stuck_queue")["items"]
    assert "no live worker takes them" in note["title"]
    assert "b200" in note["title"]


class Receiver(HTTPServer):
    """Takes POSTs; the first one fails."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.failures = 1
        super().__init__(("127.0.0.1", 0), Taking)


class Taking(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        failing = self.server.failures > 0
        self.server.failures -= 1
        if not failing:
            self.server.bodies.append(body)
        self.send_response(500 if failing else 204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def test_alerts_go_to_the_webhook_and_are_sent_again_when_it_fails(site: Site) -> None:
    receiver = Receiver()
    thread = threading.Thread(target=receiver.serve_forever)
    thread.start()
    context = site.context
    address = f"http://127.0.0.1:{receiver.server_port}/hook"
    settings = context.settings.model_copy(update={"webhook_url": address})
    watch = AlertWatch(settings, context.database, context.submission, context.catalogue)
    try:
        site.measure({"liger": 20.0}, contenders=["liger@0.6.2"])
        site.measure({"liger": 30.0}, contenders=["liger@0.6.3"])
        watch.tick()
    finally:
        receiver.shutdown()
        thread.join()
        receiver.server_close()
    (body,) = receiver.bodies
    assert b'"event":"found"' in body.replace(b" ", b"")
    assert b"liger 0.6.2 -> 0.6.3: slower by 50 % on 1 case" in body


def test_pages_list_an_alert_show_its_cases_and_take_a_form(site: Site) -> None:
    release(site, "0.5.9", 20.0)
    release(site, "0.6.3", 30.0)
    (alert,) = alerts(site)
    listed = site.http.get("/alerts?state=candidate")
    assert listed.status_code == 200
    assert f'href="/alerts/{alert["id"]}"' in listed.text
    assert "liger 0.5.9 -&gt; 0.6.3: slower by 50 % on 1 case" in listed.text
    shown = site.http.get(f"/alerts/{alert['id']}")
    assert "Measure it again, head to head" in shown.text
    assert "1.50×" in shown.text
    assert (
        "today&#39;s code says the same" in shown.text or "today's code says the same" in shown.text
    )
    form = {"state": "dismissed", "owner": "ada", "note": "<b>known</b>"}
    answer = site.http.post(f"/alerts/{alert['id']}", data=form, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, f"/alerts/{alert['id']}")
    again = site.http.get(f"/alerts/{alert['id']}").text
    assert "&lt;b&gt;known&lt;/b&gt;" in again
    assert "Measure it again" not in again
    assert site.http.get("/alerts/alt-none").status_code == 404


def test_comparison_on_another_device_decides_nothing(site: Site) -> None:
    release(site, "0.5.3", 20.0)
    release(site, "0.5.6", 30.0)
    (alert,) = alerts(site)
    elsewhere = make_environment("NVIDIA L40S", "another")
    decided = measured_again(site, alert["id"], environment=elsewhere)
    assert (decided["state"], decided["cases"][0]["confirmed"]) == ("candidate", None)
