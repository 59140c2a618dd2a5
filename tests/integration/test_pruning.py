"""`lossbench kernels prune`: old environments go, one in use never does."""

import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from lossbench.service.cli.main import app
from lossbench.service.cli.pruning import names_in_open_lots, prune_folder
from lossbench.worker.install import RECORD, SITE

DAY_S = 86_400
CONTENTS = "x" * 1000


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The folder of all environments."""
    folder = tmp_path / "contenders"
    folder.mkdir()
    return folder


def environment(root: Path, name: str, days: float, record: bool = True) -> Path:
    """An environment of 1,002 bytes that was used last so many days ago."""
    site = root / name / SITE
    site.mkdir(parents=True)
    (site / "module.py").write_text(CONTENTS, encoding="utf-8")
    if record:
        (root / name / RECORD).write_text("{}", encoding="utf-8")
    lock = root / f"{name}.lock"
    lock.touch()
    for path in (lock, root / name):
        os.utime(path, (time.time() - days * DAY_S,) * 2)
    return root / name


@contextmanager
def process_with(search_path: Path) -> Iterator[int]:
    """A process that has the folder on its path, as a measuring child does."""
    variables = {**os.environ, "PYTHONPATH": str(search_path)}
    code = "import module, sys; print(1, flush=True); sys.stdin.read()"
    (search_path / "module.py").write_text("", encoding="utf-8")
    child = subprocess.Popen(
        [sys.executable, "-c", code],
        env=variables,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdout is not None
    child.stdout.readline()
    yield child.pid
    child.communicate()


def left(root: Path) -> set[str]:
    return {path.name for path in root.iterdir() if path.is_dir()}


def test_prune_removes_what_was_not_used_and_says_its_bytes(root: Path) -> None:
    environment(root, "liger-kernel-0.6.5", 40)
    environment(root, "liger-kernel-0.8.5", 20)
    (root / "hashes.json").write_text("{}", encoding="utf-8")
    planned = prune_folder(root, 30, [], dry_run=True)
    assert left(root) == {"liger-kernel-0.6.5", "liger-kernel-0.8.5"}
    found = {each.name: each for each in prune_folder(root, 30, [])}
    assert [each.kept for each in planned] == [each.kept for each in found.values()]
    assert left(root) == {"liger-kernel-0.8.5"}
    assert (found["liger-kernel-0.6.5"].size_bytes, found["liger-kernel-0.6.5"].kept) == (
        1002,
        None,
    )
    assert found["liger-kernel-0.8.5"].kept == "used within 30 days"
    assert (root / "hashes.json").exists()


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
def test_prune_keeps_what_a_process_has_on_its_path(root: Path) -> None:
    folder = environment(root, "liger-kernel-0.6.5", 400)
    neighbour = environment(root, "liger-kernel-0.6.50", 400)
    with process_with(folder / SITE) as pid:
        os.utime(folder, (0, 0))
        found = {each.name: each.kept for each in prune_folder(root, 0, [])}
        assert found == {folder.name: f"process {pid} uses it", neighbour.name: None}
        assert left(root) == {folder.name}
    assert [each.kept for each in prune_folder(root, 0, [])] == [None]
    assert left(root) == set()


def test_prune_keeps_what_is_being_installed_or_asked_for(root: Path) -> None:
    for name in ("liger-kernel-0.6.5+0a1b2c3d", "quack-kernels-0.6.5", "requires+aa", "tmpabc"):
        environment(root, name, 400)
    environment(root, "broken", 0.5, record=False)
    with (root / "quack-kernels-0.6.5.lock").open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        needed = ["liger-kernel-0.6.5", "requires+"]
        found = {each.name: each.kept for each in prune_folder(root, 30, needed)}
    assert found == {
        "liger-kernel-0.6.5+0a1b2c3d": "a job that has not ended asks for it",
        "quack-kernels-0.6.5": "it is being installed or looked for",
        "requires+aa": "a job that has not ended asks for it",
        "tmpabc": None,
        "broken": "used within 1 days",
    }
    # to look is not to use: asked again, it is as old as before
    assert [each.kept for each in prune_folder(root, 30, [])].count(None) == 3


def test_open_lots_name_what_they_need(make_service: Any, database_url: str) -> None:
    service = make_service(database_url)
    settings = service.context.settings
    body = {
        "contenders": ["liger@0.8.5", "flce"],
        "shapes": [{"tokens": 8, "hidden": 8, "vocab": 16}],
    }
    worker = service.worker()
    job = service.http.post("/api/v1/jobs", json=body).json()["id"]
    assert names_in_open_lots(settings) == ["liger-kernel-0.8.5"]
    worker.answer(job)
    assert names_in_open_lots(settings) == []


def test_prune_command_prints_the_bytes_freed(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOSSBENCH_DATA_DIR", str(tmp_path))
    environment(root, "cut-cross-entropy-25.1.1", 40)
    runner = CliRunner()
    planned = runner.invoke(app, ["kernels", "prune", "--dry-run"])
    assert "would free 1,002 bytes" in planned.output
    done = json.loads(runner.invoke(app, ["kernels", "prune", "--json"]).output)
    assert (done["freed_bytes"], left(root)) == (1002, set())
    assert "freed 0 bytes" in runner.invoke(app, ["kernels", "prune"]).output
