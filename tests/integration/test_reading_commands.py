"""`lossbench recommend`, `lossbench results`, and the client's reading methods."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from lossbench.service.cli.main import app
from lossbench.service.cli.output import console
from lossbench.service.client import LossbenchClient
from lossbench.service.contract.errors import InvalidRequestError, NotFoundError, UnknownNameError

from .conftest import InProcess
from .shared_sites import VOCAB, Site, open_site


@pytest.fixture(scope="module")
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    """A site over SQLite with results of flce, liger@0.8.5 and torch-naive on one shape."""
    for site in open_site(request):
        site.measure(contenders=["flce", "liger@0.8.5", "torch-naive"])
        yield site


@pytest.fixture
def client(site: Site, portal: Any) -> Iterator[LossbenchClient]:
    transport = InProcess(site.service.app, portal)
    with LossbenchClient("http://localhost:8765", transport=transport) as client:
        yield client


@pytest.fixture
def run(site: Site, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a command against the site's own socket; gives (exit code, output)."""
    address = getattr(site, "address", None) or site.service.listen()
    site.address = address  # type: ignore[attr-defined]
    monkeypatch.setenv("LOSSBENCH_URL", address)
    # read when the console was made, which is when the first test of a process imported it
    monkeypatch.setattr(console, "width", 200)

    def command(*words: str) -> tuple[int, str]:
        done = CliRunner().invoke(app, list(words))
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done.exit_code, done.output

    return command


def test_recommend_command_prints_the_contender_the_evidence_and_the_lines(
    site: Site, run: Any
) -> None:
    shape = f"1024x{site.hidden}x{VOCAB}"
    code, text = run("recommend", "-s", shape, "--gpu", "h200")
    assert (code, text.splitlines()[0][:16]) == (0, "Use flce@2.11.0 ")
    assert "loss_function = build('flce', None, {})" in text
    code, text = run("recommend", "-s", shape, "--json", "--max-workspace", "1GiB")
    assert json.loads(text)["use"]["contender"] == "flce@2.11.0"
    code, text = run("recommend", "-s", shape, "--max-workspace", "1KiB")
    assert code == 1
    assert "Left out" in text
    code, text = run("recommend", "-s", f"2048x{site.hidden}x{VOCAB}")
    assert "is not measured here. This is the nearest measured shape" in text
    assert "lossbench submit -c" in text
    with pytest.raises(InvalidRequestError, match="--model and --tokens"):
        run("recommend", "--model", "gemma-2-2b")


def test_results_command_takes_the_filters_of_the_api(run: Any) -> None:
    code, text = run("results", "--filter", "kernel=flce", "--filter", "kernel=liger")
    assert code == 0
    assert ("flce@2.11.0" in text, "liger@0.8.5" in text, "torch-naive" in text) == (
        True, True, False,
    )  # fmt: skip
    code, text = run("results", "--sort", "latency_ms", "--limit", "1", "--json")
    (found,) = json.loads(text)
    assert found["kernel"] == "flce"
    code, text = run("results", found["id"])
    assert json.loads(text) == found
    with pytest.raises(InvalidRequestError, match="did you mean 'kernel'"):
        run("results", "--filter", "kernl=flce")


def test_client_reads_aggregates_as_records(site: Site, client: LossbenchClient) -> None:
    shape = {"hidden": site.hidden, "vocab": VOCAB}
    found = client.recommend(tokens=1024, **shape)
    assert found.use is not None
    assert client.result(found.use.result_id).kernel == "flce"
    every = list(client.series(kernel=["flce", "liger"], hidden=site.hidden))
    assert {one.kernel for one in every} == {"flce", "liger"}
    columns = client.series_points(every[0].id, limit=10).points
    assert len(columns.result_id) == 1
    assert client.shape_map(hidden=site.hidden).cells[0].winner == "flce@2.11.0"
    assert len(client.pareto(hidden=site.hidden).items[0].points) == 3
    assert list(client.proofs(kind="pool")) == []
    view = client.make_view("/compare", {"base": "liger", "cand": ["flce"]})
    assert client.view(view.hash) == view


def test_client_turns_problems_into_errors(client: LossbenchClient) -> None:
    with pytest.raises(NotFoundError, match="there is no series"):
        client.series_points("nothing")
    with pytest.raises(UnknownNameError, match="gemma-2-2b"):
        client.recommend(model="gema-2-2b", tokens=8)


def test_client_invalidates_a_result(client: LossbenchClient, site: Site) -> None:
    (fallen,) = site.results(kernel="torch-naive")
    done = client.invalidate(fallen["id"], "throttled")
    assert (done.invalid_reason, site.results(kernel="torch-naive")) == ("throttled", [])
