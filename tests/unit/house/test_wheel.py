"""The built wheel holds every module and data file, and every module of it imports."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
ROOMS = ("kernels", "service", "worker", "web")
RUN_BY_ALEMBIC = "lossbench.service.store.migrations.env"
DATA = (
    "*.json",
    "*.html",
    "*.css",
    "*.js",
    "*.svg",
    "py.typed",
    "*.mako",
    "*.jsonl.gz",
    "*.txt.gz",
)
IMPORT_ALL = """
import importlib, pathlib, sys
root = pathlib.Path(sys.argv[1])
for name in sys.argv[2:]:
    module = importlib.import_module(name)
    if module.__file__ and root not in pathlib.Path(module.__file__).parents:
        sys.exit(f"{name} came from {module.__file__}")
print(len(sys.argv) - 2)
"""


def module_name(path: Path) -> str:
    parts = ("lossbench", *path.with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def project_files(*patterns: str) -> set[Path]:
    found = {path for room in ROOMS for p in patterns for path in (ROOT / room).rglob(p)}
    return {path.relative_to(ROOT) for path in found if "__pycache__" not in path.parts}


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    # from a copy: setuptools leaves a build folder, and would pack what it left the next time
    source = folder / "source"
    left_out = shutil.ignore_patterns(
        ".git", ".venv", "build", "*.egg-info", "__pycache__", ".*_cache"
    )
    shutil.copytree(ROOT, source, symlinks=True, ignore=left_out)
    pip = [sys.executable, "-P", "-m", "pip", "--disable-pip-version-check"]
    subprocess.run(
        [*pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(source)],
        check=True,
        timeout=240,
    )
    (wheel,) = folder.glob("lossbench-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


@pytest.mark.slow
def test_wheel_holds_every_module_and_data_file(unpacked: Path) -> None:
    package = unpacked / "lossbench"
    inside = {path.relative_to(package) for path in package.rglob("*.*")}
    missing = (project_files("*.py") | project_files(*DATA)) - inside
    assert not missing


@pytest.mark.slow
def test_wheel_imports_every_module_from_itself(unpacked: Path) -> None:
    names = sorted({module_name(path) for path in project_files("*.py")} - {RUN_BY_ALEMBIC})
    done = subprocess.run(
        [sys.executable, "-P", "-c", IMPORT_ALL, str(unpacked), *names],
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(unpacked)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(len(names))
    assert len(names) > 100
