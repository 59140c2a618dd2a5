"""The pages of one kernel and of one machine: facts, results, failures; drift, sight, health."""

import html
import math
import re
from typing import Any

import httpx
import pytest

from lossbench.service.contract.run import Environment
from lossbench.service.store.proofs import ProofKind, insert_proof

from .conftest import ENVIRONMENT
from .looking import PAGES, ids_of, read


def test_kernel_has_facts_versions_results_and_failures(live_service: Any) -> None:
    shown = read(live_service, "/kernels/liger")
    assert "liger-kernel" in shown
    assert 'href="/kernels/liger@0.6.5"' in shown
    assert "versions not measured here" in shown
    known = shown.partition('id="failures"')[2]
    assert "liger<wbr>@0.8.5" in known.partition("Reported")[0]
    assert "a frozen input: the weight gets no gradient" in known
    assert "its error is too large to count" in known


def test_version_shows_only_its_own_results_and_faults(live_service: Any) -> None:
    shown = read(live_service, "/kernels/liger@0.6.5")
    assert shown.count("<small>forward + backward, NVIDIA H200</small>") == 2
    assert "liger<wbr>@0.8.5" not in shown
    assert "repaired in 0.3.0" not in shown
    assert "runs the code of" in read(live_service, "/kernels/liger@0.7.0")


def test_kernel_that_failed_says_why(live_service: Any) -> None:
    shown = read(live_service, "/kernels/torch-upcast")
    assert "CUDA out of memory" in shown.partition('id="failures"')[2]


def test_unknown_kernel_and_version_name_the_nearest(live_service: Any) -> None:
    for path, hint in (("/kernels/ligre", "liger"), ("/kernels/liger@0.8.55", "0.8.5")):
        answer = httpx.get(live_service.address + path, headers={"Accept": "text/html"})
        assert answer.status_code == 404
        assert hint in answer.text


def test_kernel_nobody_measured_says_what_to_do(live_service: Any) -> None:
    shown = read(live_service, "/kernels/quack")
    assert "Nothing of quack was measured" in shown
    assert 'href="/jobs/new"' in shown


def test_machine_shows_drift_health_and_flags(live_service: Any) -> None:
    shown = read(live_service, "/machines/wrk-h200")
    assert "Nine in ten times of the same baseline" in shown
    assert "1,515 MHz" in shown
    assert "the power limit held the clock down" in shown
    assert "lossbench doctor --measure" in shown
    run = httpx.get(f"{live_service.address}/api/v1/results/{ids_of(live_service)[0]}").json()
    same = read(live_service, f"/machines/{run['environment_id']}")
    assert "Nine in ten times of the same baseline" in same
    assert f'href="/machines/{run["environment_id"]}"' in read(live_service, "/machines")


def test_machine_shows_the_smallest_difference_it_can_see(guarded_service: Any) -> None:
    environment = Environment.model_validate(ENVIRONMENT)
    made = {
        "case": "N8192-H4096-V128256-bfloat16", "call_ms": 42.0, "processes": 24,
        "detectable": {"3": 0.05, "8": 0.011, "16": 0.0071, "24": 0.0052},
    }  # fmt: skip
    with guarded_service.context.database.transaction() as session:
        insert_proof(session, ProofKind.DOCTOR, environment, True, {"classes": [made]})
        tested = {"log_ratios": [math.log(1.002)], "limit": 0.01}
        insert_proof(session, ProofKind.SELF_TEST, environment, True, tested)
    shown = read(guarded_service, "/machines/wrk-h200")
    assert "two runs of the same code differ by 0.20 %" in shown
    for share in ("5.0", "1.1", "0.71", "0.52"):
        assert f"{share} %" in shown


def test_machine_that_is_none_is_not_found(live_service: Any) -> None:
    answer = httpx.get(f"{live_service.address}/machines/nobody", headers={"Accept": "text/html"})
    assert answer.status_code == 404
    assert "there is no machine" in answer.text


@pytest.mark.parametrize(
    "name",
    ["overview", "report", "compare", "compare-three", "shapes", "pareto", "history", "kernel",
     "version", "machine", "result"],
)  # fmt: skip
def test_everything_that_a_view_offers_to_take_along_is_there(live_service: Any, name: str) -> None:
    shown = read(live_service, PAGES[name](live_service))
    row = shown.partition('aria-label="Take it along"')[2].partition("</section>")[0]
    links = [html.unescape(link) for link in re.findall(r'href="(/api/v1/[^"]+)"', row)]
    paths = [link.partition("?")[0] for link in links]
    assert paths[:2] == ["/api/v1/export/results.csv", "/api/v1/export/results.parquet"]
    assert len(paths) == 3
    for link in links:
        answer = httpx.get(live_service.address + link)
        assert answer.status_code == 200, f"{link}: {answer.text[:300]}"
    for copied in ("link", "command", "markdown"):
        assert re.search(f'data-copies="(view-)?{copied}"', row)
    asked = re.search(r"curl -s '([^']+)'", html.unescape(row))
    if asked is not None:
        assert httpx.get(asked.group(1)).status_code == 200
