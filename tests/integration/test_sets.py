"""Sets between the engines, through the API that shows them, and from the command line."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lossbench.service.contract.contender import Contender
from lossbench.service.contract.errors import ConflictError
from lossbench.service.contract.words import Outcome
from lossbench.service.store.set_export import Wanted, collect_set
from lossbench.service.store.set_files import read_set, write_set
from lossbench.service.store.set_loading import load_set

from .stored_training import store_training

SHAPE = {"tokens": 1024, "hidden": 512, "vocab": 4096}
BODY: dict[str, Any] = {
    "contenders": ["flce", "liger@0.8.5", "liger@0.6.5"],
    "shapes": [SHAPE],
    "labels": {"suite": "first"},
}
API = "/api/v1"


@pytest.fixture
def other_url(request: pytest.FixtureRequest, database_url: str, tmp_path: Path) -> str:
    """URL of a fresh database on the engine that `database_url` is not of."""
    if database_url.startswith("sqlite"):
        return str(request.getfixturevalue("postgres_server").fresh_url())
    shutil.copy(request.getfixturevalue("sqlite_template"), tmp_path / "other.db")
    return f"sqlite:///{tmp_path / 'other.db'}"


def measured_job(service: Any) -> str:
    """A job with two results and a cell that failed without one."""
    worker = service.worker()
    posted = service.http.post(f"{API}/jobs", json=BODY)
    assert posted.status_code == 202, posted.text
    job_id = str(posted.json()["id"])
    failing = Contender.parse("liger@0.6.5").text

    def answer(cell: Any) -> Any:
        return Outcome.FAILED if cell.contender.text == failing else worker.record(cell)

    worker.answer(job_id, answer)
    return job_id


def got(service: Any, path: str) -> Any:
    answer = service.http.get(f"{API}{path}")
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_job_of_one_engine_is_shown_by_a_service_on_the_other(
    any_service: Any, make_service: Callable[..., Any], other_url: str, tmp_path: Path
) -> None:
    job_id = measured_job(any_service)
    path = tmp_path / "first.jsonl.gz"
    with any_service.context.database.reading() as session:
        write_set(path, *collect_set(session, Wanted(labels=("suite=first",))))
    other = make_service(other_url)
    for times in range(2):
        loaded = load_set(other.context.database, read_set(path))
        assert loaded.new == ({"runs": 2, "jobs": 1} if times == 0 else {"runs": 0, "jobs": 0})
    here, there = got(any_service, f"/jobs/{job_id}"), got(other, f"/jobs/{job_id}")
    assert there == {**here, "labels": {"set": "first", "suite": "first"}}
    for list_ in (f"/jobs/{job_id}/cells", "/results", "/results?label=suite%3Dfirst"):
        assert got(other, list_) == got(any_service, list_), list_
    results = got(other, "/results?label=set%3Dfirst")["items"]
    assert len(results) == 2
    for result in results:
        samples = f"/results/{result['id']}/samples"
        assert got(other, samples) == got(any_service, samples)
    plot = got(other, f"/plots/latency?job={job_id}")
    assert plot["data"]


def test_loaded_job_cannot_be_retried_where_it_has_no_lots(
    any_service: Any, make_service: Callable[..., Any], other_url: str, tmp_path: Path
) -> None:
    job_id = measured_job(any_service)
    path = tmp_path / "first.jsonl.gz"
    with any_service.context.database.reading() as session:
        write_set(path, *collect_set(session, Wanted()))
    other = make_service(other_url)
    load_set(other.context.database, read_set(path))
    refused = other.http.post(f"{API}/jobs/{job_id}/retry")
    assert refused.status_code == 409
    assert "can run here" in refused.json()["detail"]
    assert any_service.http.post(f"{API}/jobs/{job_id}/retry").status_code == 202


def test_result_as_nvbench_has_the_times_of_its_samples(any_service: Any) -> None:
    measured_job(any_service)
    result = got(any_service, "/results?kernel=flce")["items"][0]
    found = got(any_service, f"/results/{result['id']}/nvbench")
    (state,) = found["benchmarks"][0]["states"]
    means = [s["data"] for s in state["summaries"] if s["tag"] == "nv/cold/time/gpu/mean"]
    assert means == [[{"name": "value", "type": "float64", "value": "0.02"}]]
    assert found["devices"][0]["name"] == "NVIDIA H200"
    missing = any_service.http.get(f"{API}/results/run-none/nvbench")
    assert missing.status_code == 404


def test_training_is_left_out_of_a_set_and_refused_where_it_is_named(
    any_service: Any, make_service: Callable[..., Any], other_url: str, tmp_path: Path
) -> None:
    measured_job(any_service)
    with any_service.context.database.transaction() as session:
        training = store_training(session)
    path = tmp_path / "all.jsonl.gz"
    with any_service.context.database.reading() as session:
        write_set(path, *collect_set(session, Wanted()))
        with pytest.raises(ConflictError, match="trains; a set holds results"):
            collect_set(session, Wanted(jobs=(training,)))
    other = make_service(other_url)
    assert load_set(other.context.database, read_set(path)).new == {"runs": 2, "jobs": 1}


class Commands:
    """Runs `lossbench` with a data directory of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._variables = {
            "PATH": os.environ["PATH"],
            "LOSSBENCH_DATA_DIR": str(folder),
            "PYTHONSAFEPATH": "1",
            "COLUMNS": "160",
        }

    def set(self, name: str, value: str) -> None:
        """Set an environment variable of the commands."""
        self._variables[name] = value

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-P", "-m", "lossbench.service.cli.main", *arguments],
            env=self._variables,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def refused(self, *arguments: str) -> str:
        """The one line of a command that must exit with 2."""
        done = self.run(*arguments)
        assert done.returncode == 2, done.stderr
        (line,) = done.stderr.strip().splitlines()
        return line


@pytest.fixture
def commands(tmp_path: Path) -> Commands:
    return Commands(tmp_path)


def test_shipped_sets_loaded_and_exported_again_keep_their_records(commands: Commands) -> None:
    first = commands.run("db", "load")
    assert "set h200-checks: 35 checks new, 0 known" in first.stdout, first.stderr
    assert "set h200-first: 46 runs new, 0 known" in first.stdout
    target = str(commands.folder / "again.jsonl.gz")
    exported = commands.run("db", "export", target, "--checks", "--device", "NVIDIA H200")
    assert "35 checks" in exported.stdout, exported.stderr
    again = commands.run("db", "load", target)
    assert "set again: 0 runs new, 46 known; 0 checks new, 35 known" in again.stdout
    assert "exists already" in commands.refused("db", "export", target, "--checks")


def test_set_commands_with_a_fault_say_so_in_one_line(commands: Commands) -> None:
    target = str(commands.folder / "a.jsonl.gz")
    assert "nothing matches" in commands.refused("db", "export", target)
    assert "no job" in commands.refused("db", "export", target, "--job", "job-1")
    assert "name=value" in commands.refused("db", "export", target, "--label", "suite")
    Path(target).write_text("tea")
    assert "not a whole gzip file" in commands.refused("db", "load", target)
