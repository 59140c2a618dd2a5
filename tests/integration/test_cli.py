"""The commands as a user types them: real processes, exit codes, one line for what is wrong."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from lossbench.service.store.database import Database, upgrade_schema

TINY = ["-s", "32x16x64", "--dtype", "float32", "-p", "1"]


class Shell:
    """Runs `lossbench` with a data directory of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.variables = {
            "PATH": os.environ["PATH"],
            "LOSSBENCH_DATA_DIR": str(folder),
            "PYTHONSAFEPATH": "1",
            "COLUMNS": "160",
        }

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-P", "-m", "lossbench.service.cli.main", *arguments]

    def run(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments),
            env=self.variables | variables,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def refused(self, *arguments: str, **variables: str) -> str:
        """The one line on standard error of a command that must exit with 2."""
        done = self.run(*arguments, **variables)
        assert done.returncode == 2, done.stderr
        assert "Traceback" not in done.stderr
        (line,) = done.stderr.strip().splitlines()
        return line


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Shell, str]]:
    """A service with a worker on a free port, and its address."""
    shell = Shell(tmp_path_factory.mktemp("served"))
    process = subprocess.Popen(
        shell.command("serve", "--with-worker", "--no-auth", "--port", "0"),
        env=shell.variables,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    found = re.search(r"http://\S+", process.stdout.readline())
    assert found
    yield shell, found.group()
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=20) == 0


def test_submit_watched_to_its_end_prints_job_cells_and_results(served: tuple[Shell, str]) -> None:
    shell, url = served
    arguments = ["submit", "-c", "torch-naive,torch-upcast", *TINY, "--watch", "--json"]
    done = shell.run(*arguments, "--url", url)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["job"]["state"] == "done"
    assert [cell["outcome"] for cell in report["cells"]] == ["ok", "ok"]
    assert all(result["latency_ms"] > 0 for result in report["results"])
    again = shell.run("watch", report["job"]["id"], "--url", url)
    assert again.returncode == 0
    assert "torch-upcast@" in again.stdout


def test_submit_dry_run_stores_nothing(served: tuple[Shell, str]) -> None:
    shell, url = served
    done = shell.run("submit", "-c", "flce", "-s", "llama-3-8b:64", "--dry-run", "--url", url)
    assert done.returncode == 0
    assert "1 cells" in done.stdout


def test_run_without_a_server_prints_records(shell: Shell) -> None:
    done = shell.run("run", "-c", "torch-naive", "-c", "flce", *TINY, "--json")
    assert done.returncode == 0, done.stderr
    naive, flce = json.loads(done.stdout)
    assert naive["record"]["measurement"]["latency"]["n"] >= 20
    assert flce["record"]["flags"][-1] == "interpreted"
    assert flce["record"]["measurement"] is None


def test_run_when_a_package_cannot_be_installed_fails_that_cell_only(shell: Shell) -> None:
    (shell.folder / "wheels").mkdir()
    wheels = str(shell.folder / "wheels")
    arguments = ["run", "-c", "torch-naive", "-c", "liger@0.5.0", *TINY, "--json"]
    done = shell.run(*arguments, LOSSBENCH_WHEEL_DIR=wheels)
    assert done.returncode == 1
    outcomes = {cell["cell"].split(" ")[0]: cell for cell in json.loads(done.stdout)}
    assert outcomes["torch-naive"]["outcome"] == "ok"
    assert outcomes["liger@0.5.0"]["outcome"] == "failed"
    assert "pip download" in outcomes["liger@0.5.0"]["reason"]


def test_serve_when_the_port_is_taken_says_so(shell: Shell) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert f"port {port} is in use" in shell.refused("serve", "--no-auth", "--port", port)


def test_commands_when_the_data_directory_cannot_be_written_say_so(shell: Shell) -> None:
    blocked = shell.folder / "file"
    blocked.write_text("in the way")
    for command in (["serve", "--port", "0"], ["db", "upgrade"], ["run", "-c", "flce", *TINY]):
        line = shell.refused(*command, LOSSBENCH_DATA_DIR=str(blocked))
        assert "cannot be written" in line
        assert "LOSSBENCH_DATA_DIR" in line


def test_commands_when_the_schema_is_newer_say_so(shell: Shell) -> None:
    database = Database(f"sqlite:///{shell.folder / 'lossbench.db'}")
    upgrade_schema(database)
    with database.transaction() as session:
        session.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    database.close()
    for command in (["serve", "--port", "0"], ["worker"], ["db", "upgrade"]):
        assert "upgrade lossbench" in shell.refused(*command)


def test_worker_without_a_schema_says_what_to_do(shell: Shell) -> None:
    assert "lossbench db upgrade" in shell.refused("worker")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("contenders: [flce\n", "line 2"),
        ("- flce\n", "mapping"),
        ("contenders: [flce]\nshapes: [{tokens: 8, hidden: 8, vocab: 8}]\ndtype: x\n", "dtypes"),
        ("contenders: [flce]\nshapes: [{tokens: -8, hidden: 8, vocab: 8}]\n", "/shapes/0/tokens"),
    ],
)
def test_job_file_with_a_fault_names_the_place(shell: Shell, text: str, expected: str) -> None:
    path = shell.folder / "job.yaml"
    path.write_text(text)
    assert expected in shell.refused("run", str(path))


def test_submit_without_a_service_says_how_to_start_one(shell: Shell) -> None:
    line = shell.refused("submit", "-c", "flce", *TINY, "--url", "http://127.0.0.1:9")
    assert "lossbench serve" in line


def test_token_is_made_listed_and_revoked(shell: Shell) -> None:
    made = json.loads(shell.run("token", "create", "ci", "--json").stdout)
    assert made["token"].startswith("lb_")
    listed = shell.run("token", "list", "--json").stdout
    assert made["token"] not in listed
    assert json.loads(listed)[0]["id"] == made["id"]
    assert shell.run("token", "revoke", made["id"]).returncode == 0
    assert json.loads(shell.run("token", "list", "--json").stdout)[0]["revoked_at"] is not None


def test_backup_copies_the_database_once(shell: Shell) -> None:
    assert shell.run("db", "upgrade").returncode == 0
    target = str(shell.folder / "copy.db")
    assert shell.run("db", "backup", target).returncode == 0
    assert "exists already" in shell.refused("db", "backup", target)
