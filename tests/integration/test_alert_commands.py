"""`lossbench alerts` and `lossbench kernels new` against a service on a socket."""

import json
from collections.abc import Callable, Iterator

import pytest
from typer.testing import CliRunner

from lossbench.service.cli.main import app
from lossbench.service.cli.output import console
from lossbench.service.client import LossbenchClient
from lossbench.service.contract.catalogue import load_catalogue
from lossbench.service.contract.errors import LossbenchError

from .shared_sites import VOCAB, Site, open_site

Run = Callable[..., str]


@pytest.fixture(scope="module")
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    """A service that found one slower release of liger."""
    for site in open_site(request, load_catalogue()):
        for version, took in (("0.6.0", 20.0), ("0.6.5", 30.0)):
            site.measure({"liger": took}, contenders=[f"liger@{version}"])
            site.context.alerts.tick()
        yield site


@pytest.fixture(scope="module")
def address(site: Site) -> str:
    return str(site.service.listen())


@pytest.fixture
def run(address: str, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command that must succeed; gives what it printed."""
    monkeypatch.setenv("LOSSBENCH_URL", address)
    monkeypatch.setattr(console, "width", 200)

    def invoke(*arguments: str) -> str:
        found = CliRunner().invoke(app, list(arguments))
        assert found.exit_code == 0, (found.output, found.exception)
        return found.output

    return invoke


def test_alerts_are_listed_shown_set_and_confirmed(run: Run, address: str) -> None:
    assert "liger 0.6.0 -> 0.6.5: slower by 50 % on 1 case" in run("alerts", "list")
    (listed,) = json.loads(run("alerts", "list", "--json", "--kernel", "liger"))
    shown = run("alerts", "show", listed["id"])
    assert "0.75× the baseline" in shown
    assert "not yet" in shown
    run("alerts", "set", listed["id"], "--owner", "ada", "--note", "bisecting")
    whole = json.loads(run("alerts", "show", listed["id"], "--json"))
    assert (whole["owner"], whole["note"], whole["same_today"]) == ("ada", "bisecting", True)
    assert "job-" in run("alerts", "confirm", listed["id"])
    with LossbenchClient(address) as client, pytest.raises(LossbenchError, match="measured again"):
        client.confirm_alert(listed["id"])
    assert "no alerts" in run("alerts", "list", "--state", "fixed")


def test_new_releases_are_those_whose_code_has_no_result(run: Run, tmp_path: object) -> None:
    found = json.loads(run("kernels", "new", "--kernel", "liger", "--json"))
    assert found["job_id"] is None
    assert found["releases"][0] == f"liger@{load_catalogue().kernels['liger'].versions[-1]}"
    assert "liger@0.6.5" not in found["releases"]
    assert "liger@0.7.0" not in found["releases"], "the same code as 0.6.5"
    assert "liger@0.5.9" not in found["releases"], "the same code as 0.6.0, which was measured"
    assert "liger@0.5.5" in found["releases"]


def test_new_releases_are_submitted_with_a_job_file(run: Run, tmp_path: object, site: Site) -> None:
    file = f"{tmp_path}/job.yaml"
    with open(file, "w") as out:
        out.write(f"contenders: [flce]\nshapes: [{{tokens: 8, hidden: 64, vocab: {VOCAB}}}]\n")
    said = run("kernels", "new", "--kernel", "cce", "--submit", file, "--json")
    # the service's log line of the new job comes before
    found = json.loads(said[said.index("\n{") :])
    cells = site.get(f"/jobs/{found['job_id']}/cells")["items"]
    assert {cell["contender"] for cell in cells} == set(found["releases"])
    assert all(name.startswith("cce@") for name in found["releases"])
