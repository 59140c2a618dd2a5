"""The hash of code that runs: what changes it, and what does not."""

from pathlib import Path

import pytest

from lossbench.kernels.source_hash import code_hash, files_hash

CODE = """
def loss(x, scale=1.0):
    y = x * scale
    return y
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A package with one module."""
    (tmp_path / "own" / "ops").mkdir(parents=True)
    (tmp_path / "own" / "__init__.py").write_text("raise SystemExit('it was imported')\n")
    return tmp_path


def hash_of(folder: Path, code: str, name: str = "own/ops/loss.py") -> str:
    (folder / name).write_text(code)
    return code_hash(folder, ["own.ops.loss"])


@pytest.mark.parametrize(
    "code",
    [
        CODE + "\n\n# a remark\n",
        CODE.replace("x * scale", "(x *\n         scale)"),
        CODE.replace("):\n", '):\n    """Says what it does."""\n'),
        '"""The module."""\n' + CODE,
    ],
)
def test_code_hash_ignores_comments_layout_and_docstrings(folder: Path, code: str) -> None:
    assert hash_of(folder, code) == hash_of(folder, CODE)


@pytest.mark.parametrize(
    "code",
    [
        CODE.replace("1.0", "1"),
        CODE.replace("*", "+"),
        CODE.replace("return y", "return -y"),
        CODE.replace("scale", "factor"),
        CODE + "'a text that is no docstring'\n",
        CODE.replace("return y", "return None"),
    ],
)
def test_code_hash_changes_with_the_code(folder: Path, code: str) -> None:
    assert hash_of(folder, code) != hash_of(folder, CODE)


def test_code_hash_is_the_same_on_every_python(folder: Path) -> None:
    """Stored with results: a number that an upgrade of Python must not change."""
    assert hash_of(folder, CODE) == "b6f1eb416118"


def test_code_hash_finds_modules_and_packages(folder: Path) -> None:
    as_module = hash_of(folder, CODE)
    (folder / "own" / "ops" / "loss.py").unlink()
    (folder / "own" / "ops" / "loss").mkdir()
    assert hash_of(folder, CODE, "own/ops/loss/__init__.py") == as_module


def test_code_hash_counts_a_module_that_is_not_there(folder: Path) -> None:
    alone = hash_of(folder, CODE)
    with_gap = code_hash(folder, ["own.ops.loss", "own.ops.later"])
    (folder / "own" / "ops" / "later.py").write_text("")
    assert len({alone, with_gap, code_hash(folder, ["own.ops.loss", "own.ops.later"])}) == 3


def test_code_hash_of_nothing_or_no_python_is_refused(folder: Path) -> None:
    with pytest.raises(ValueError, match=r"none of its modules is there: own\.gone"):
        code_hash(folder, ["own.gone"])
    with pytest.raises(ValueError, match="none named"):
        code_hash(folder, [])
    with pytest.raises(ValueError, match=r"own\.ops\.loss is not Python: .* \(line 1\)"):
        hash_of(folder, "def (")


def test_files_hash_follows_places_and_bytes(folder: Path) -> None:
    first = files_hash(folder)
    (folder / "own" / "a.py").write_text("# a remark counts here\n")
    second = files_hash(folder)
    (folder / "own" / "a.py").rename(folder / "own" / "ops" / "a.py")
    assert len({first, second, files_hash(folder)}) == 3
    assert len(first) == 12


def test_files_hash_follows_no_link_out_of_the_folder(folder: Path, tmp_path: Path) -> None:
    before = files_hash(folder / "own")
    (folder / "own" / "loop").symlink_to(folder / "own")
    assert files_hash(folder / "own") == before
