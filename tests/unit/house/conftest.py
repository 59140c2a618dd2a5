"""What house tests look at: the project's own files, read once."""

import ast
import importlib.util
import subprocess
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[3]
ROOMS = ("kernels", "service", "worker", "web")


@dataclass(frozen=True)
class Source:
    """One Python file: its path from the root with forward slashes, its text, its tree."""

    path: str
    text: str
    tree: ast.Module

    @classmethod
    def of(cls, path: str, text: str) -> "Source":
        """A source from its text."""
        return cls(path, text, ast.parse(text))


def _sources(*folders: str) -> tuple[Source, ...]:
    files = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return tuple(
        Source.of(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))
        for path in files
        if "__pycache__" not in path.parts
    )


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository."""
    return ROOT


@pytest.fixture(scope="session")
def product() -> tuple[Source, ...]:
    """What is installed: the four rooms."""
    return _sources(*ROOMS)


@pytest.fixture(scope="session")
def every_source(product: tuple[Source, ...]) -> tuple[Source, ...]:
    """All Python files, tests included."""
    return (*product, *_sources("docker", "docs", "tests"))


@pytest.fixture(scope="session")
def listed(root: Path) -> tuple[Path, ...]:
    """Every file that is in git or could be added to it. Skips only where there is no `.git`."""
    if not (root / ".git").exists():
        pytest.skip("not a git checkout")
    command = ["git", "-C", str(root), "ls-files", "-co", "--exclude-standard"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    paths = (root / line for line in done.stdout.splitlines())
    return tuple(path for path in paths if path.is_file() and not path.is_symlink())


@pytest.fixture(scope="session")
def generate(root: Path) -> ModuleType:
    """docs/generate.py as a module."""
    spec = importlib.util.spec_from_file_location("docs_generate", root / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
