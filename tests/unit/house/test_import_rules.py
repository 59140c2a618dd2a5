"""Every import rule of pyproject.toml fails when it is broken: proved on a broken copy."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

BREAKS = {
    "kernels": ("kernels/broken.py", "import lossbench.service.contract.words\n"),
    "service": ("service/statistics/broken.py", "import torch\n"),
    "web": ("web/broken.py", "import lossbench.worker.timing\n"),
    "worker": ("worker/broken.py", "import lossbench.service.api.app\n"),
    "layers": ("service/contract/broken.py", "import lossbench.service.store.jobs\n"),
    "queue": ("service/store/broken.py", "def late():\n    import dbos\n"),
}
"""Contract id -> (file that breaks it, its text)."""


def broken_contracts(folder: Path) -> list[str]:
    """Names of the contracts that import-linter finds broken in a copy of the project."""
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    variables = dict(os.environ, PYTHONPATH=str(folder), COLUMNS="400")
    done = subprocess.run(
        command, cwd=folder, env=variables, capture_output=True, text=True, check=False
    )
    output = done.stdout + done.stderr
    assert "Contracts:" in output, output
    found = re.findall(r"^(.+) BROKEN", output, re.MULTILINE)
    assert bool(done.returncode) == bool(found)
    return found


@pytest.fixture(scope="module")
def copy(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The four rooms under one `lossbench` folder, with the project's rules."""
    folder = tmp_path_factory.mktemp("imports")
    for room in ("kernels", "service", "worker", "web"):
        ignored = shutil.ignore_patterns("__pycache__", "static", "templates")
        shutil.copytree(root / room, folder / "lossbench" / room, ignore=ignored)
    shutil.copy(root / "pyproject.toml", folder)
    return folder


def test_import_rules_each_fail_when_broken(root: Path, copy: Path) -> None:
    import tomllib

    pyproject = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    names = {c["id"]: c["name"] for c in pyproject["tool"]["importlinter"]["contracts"]}
    assert set(names) == set(BREAKS), "a rule has no proof here"
    assert broken_contracts(copy) == []
    for path, text in BREAKS.values():
        (copy / "lossbench" / path).write_text(text, encoding="utf-8")
    assert set(broken_contracts(copy)) == set(names.values())
