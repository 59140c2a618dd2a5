"""Claims from stored results to API, pages and command: undecided, decided, flipped, taken back."""

from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from lossbench.service.cli import following
from lossbench.service.cli.main import app
from lossbench.service.client import LossbenchClient
from lossbench.service.contract.catalogue import load_catalogue
from lossbench.service.contract.claim import load_claims
from lossbench.service.contract.words import Outcome

from .conftest import InProcess
from .shared_sites import ENGINES, Site, open_site

SLOWED, QUACK = "liger-slowed-down-after-0-6-1", "quack-default-fails-at-h-4096"


@pytest.fixture(scope="module", params=ENGINES)
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    yield from open_site(request, load_catalogue())


def measure(site: Site, claim_id: str, answer: Any) -> str:
    """Run the job of a claim; `answer` gives ms, or an outcome, for a contender's text."""
    body = {**load_claims()[claim_id].job, "reuse": False}
    posted = site.http.post("/api/v1/jobs", json=body)
    assert posted.status_code == 202, posted.text

    def answered(cell: Any) -> Any:
        given = answer(cell.contender.text)
        return given if isinstance(given, Outcome) else site.worker.record(cell, given)

    job_id = str(posted.json()["id"])
    site.worker.answer(job_id, answered)
    return job_id


def test_claim_is_untested_then_holds_then_fails_and_invalid_results_do_not_count(
    site: Site,
) -> None:
    before = site.get(f"/claims/{SLOWED}")
    assert (before["verdict"], before["measured_at"]) == ("untested", None)
    assert before["reason"].startswith("not measured: liger@0.6.2 on N8192")

    measure(site, SLOWED, lambda name: {"liger@0.6.1": 20.0, "liger@0.6.2": 40.0}[name])
    holds = site.get(f"/claims/{SLOWED}")
    assert (holds["verdict"], holds["value"]) == ("holds here", pytest.approx(2.0))
    assert holds["value_low"] < 2.0 < holds["value_high"]
    assert [row["value"] for row in holds["findings"][0]["evidence"]] == [40.0, 20.0]
    page = site.http.get(f"/claims/{SLOWED}")
    assert page.status_code == 200
    for row in holds["findings"][0]["evidence"]:
        assert f'href="/results/{row["result_id"]}"' in page.text

    measure(site, SLOWED, lambda name: 20.0)
    fails = site.get(f"/claims/{SLOWED}")
    assert (fails["verdict"], fails["value"]) == ("fails here", pytest.approx(1.0))

    newest = fails["findings"][0]["evidence"][0]["result_id"]
    answer = site.http.patch(f"/api/v1/results/{newest}", json={"invalid_reason": "a test"})
    assert answer.status_code == 200, answer.text
    # the older result of the slow release counts again
    assert site.get(f"/claims/{SLOWED}")["verdict"] == "holds here"


def test_failed_cell_without_a_result_decides_and_is_overtaken_by_a_good_one(site: Site) -> None:
    def broken(name: str) -> float | Outcome:
        return Outcome.FAILED if name == "quack@0.6.5" else 20.0

    job_id = measure(site, QUACK, broken)
    holds = site.get(f"/claims/{QUACK}")
    assert holds["verdict"] == "holds here", holds["reason"]
    evidence = holds["findings"][0]["evidence"][0]
    assert (evidence["result_id"], evidence["job_id"]) == (None, job_id)
    assert f'href="/jobs/{job_id}"' in site.http.get(f"/claims/{QUACK}").text
    measure(site, QUACK, lambda name: 20.0)
    assert site.get(f"/claims/{QUACK}")["verdict"] == "fails here"


def test_list_is_paged_and_filtered(site: Site) -> None:
    every = site.get("/claims")
    assert [each["id"] for each in every["items"]] == list(load_claims())
    assert every["next_cursor"] is None
    first = site.get("/claims", limit=20)
    rest = site.get("/claims", limit=20, cursor=first["next_cursor"])
    assert first["items"] + rest["items"] == every["items"]
    for verdict in ("holds here", "fails here", "untested"):
        some = site.get("/claims", verdict=verdict)["items"]
        assert some == [each for each in every["items"] if each["verdict"] == verdict]


@pytest.mark.parametrize("path", ["/api/v1/claims/none", "/claims/none"])
def test_unknown_claim_is_one_clear_problem(site: Site, path: str) -> None:
    answer = site.http.get(path)
    assert answer.status_code == 404
    assert "there is no claim" in answer.text


def test_page_shows_every_claim_with_a_sign_and_a_word(site: Site) -> None:
    text = site.http.get("/claims").text
    for claim in load_claims().values():
        assert f'href="/claims/{claim.id}"' in text
        assert str(claim.source) in text
    assert '<span aria-hidden="true">?</span> untested' in text


def test_command_lists_shows_and_submits(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def client(url: str | None) -> LossbenchClient:
        transport = InProcess(site.service.app, site.service._portal)
        return LossbenchClient("http://localhost:8765", transport=transport)

    monkeypatch.setattr(following, "client_for", client)
    runner = CliRunner()
    listed = runner.invoke(app, ["claims", "--json"])
    assert listed.exit_code == 0, listed.output
    shown = runner.invoke(app, ["claims", SLOWED])
    assert load_claims()[SLOWED].title in shown.output
    before = len(site.get("/jobs", limit=1000)["items"])
    dry = runner.invoke(app, ["claims", SLOWED, "--run", "--dry-run"])
    assert "2 cells:" in dry.output
    assert len(site.get("/jobs", limit=1000)["items"]) == before
    sent = runner.invoke(app, ["claims", SLOWED, "--run"])
    assert "/jobs/job-" in sent.output
    assert len(site.get("/jobs", limit=1000)["items"]) == before + 1
    without = runner.invoke(app, ["claims", "casts-inside-are-redundant", "--run"])
    assert "cannot run here" in without.output
