"""Rules for the code that a linter does not know."""

import ast
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

Sources = Sequence[Any]
FORBIDDEN_NAMES = ("utils", "util", "common", "helpers", "helper", "misc")
COMMITTER = "service/store/database.py"
COMMITTERS = (COMMITTER, "service/store/migrations/env.py")
"""The second is Alembic's entry, called by the first only."""
LEAST_BODY_LINES = 8


def shapeless_names(paths: Iterable[str]) -> list[str]:
    """Paths with a file or folder whose name says nothing of what is in it."""
    return [
        path
        for path in paths
        if any(part.partition(".")[0] in FORBIDDEN_NAMES for part in PurePosixPath(path).parts)
    ]


def commits(path: str, tree: ast.Module) -> Iterator[str]:
    """Calls of `commit` outside the one module that ends transactions."""
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        if node.func.attr == "commit" and path not in COMMITTERS:
            yield f"{path}:{node.lineno}: commit() belongs to {COMMITTER}"


def bare_excepts(path: str, tree: ast.Module) -> Iterator[str]:
    """Handlers that name no exception."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler) and node.type is None:
            yield f"{path}:{node.lineno}: except without an exception"


def asserts(path: str, tree: ast.Module) -> Iterator[str]:
    """`assert` statements, which `python -O` drops."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert):
            yield f"{path}:{node.lineno}: assert; raise an error that says what is wrong"


def package_faults(pyproject: dict[str, Any], paths: Iterable[str]) -> list[str]:
    """Differences between the packages listed by hand and the folders that hold Python files."""
    listed = set(pyproject["tool"]["setuptools"]["packages"])
    folders = {".".join(("lossbench", *PurePosixPath(path).parts[:-1])) for path in paths}
    missing = [f"{name} is not in pyproject.toml's packages" for name in sorted(folders - listed)]
    return missing + [f"{name} has no Python files" for name in sorted(listed - folders)]


def twins(bodies: Iterable[tuple[str, ast.Module]]) -> list[str]:
    """Functions of the same body, at least 8 lines long, docstrings aside."""
    seen: dict[str, str] = {}
    found = []
    for path, tree in bodies:
        for node in ast.walk(tree):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            body = node.body[1:] if ast.get_docstring(node) is not None else node.body
            if not body or (body[-1].end_lineno or 0) - body[0].lineno + 1 < LEAST_BODY_LINES:
                continue
            key = "\n".join(ast.dump(statement) for statement in body)
            place = f"{path}::{node.name}"
            if key in seen:
                found.append(f"{place} repeats {seen[key]}")
            seen.setdefault(key, place)
    return found


def test_file_names_say_what_is_inside(every_source: Sources) -> None:
    assert not shapeless_names(source.path for source in every_source)


def test_only_the_database_module_commits(product: Sources) -> None:
    assert not [found for source in product for found in commits(source.path, source.tree)]


def test_no_except_without_exception(every_source: Sources) -> None:
    assert not [found for s in every_source for found in bare_excepts(s.path, s.tree)]


def test_no_assert_outside_tests(product: Sources) -> None:
    assert not [found for source in product for found in asserts(source.path, source.tree)]


def test_packages_are_the_folders(root: Path, product: Sources) -> None:
    pyproject = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    assert not package_faults(pyproject, [source.path for source in product])


def test_no_two_functions_share_a_body(every_source: Sources) -> None:
    assert not twins((source.path, source.tree) for source in every_source)


@pytest.mark.parametrize("path", ["worker/utils.py", "service/helpers/x.py", "web/common.py"])
def test_shapeless_name_is_found(path: str) -> None:
    assert shapeless_names([path, "worker/timing.py"]) == [path]


def test_commit_elsewhere_is_found() -> None:
    tree = ast.parse("def f(session):\n    session.commit()\n")
    assert list(commits("service/store/jobs.py", tree))
    assert not list(commits(COMMITTER, tree))


def test_bare_except_is_found() -> None:
    assert list(bare_excepts("a.py", ast.parse("try:\n    x = 1\nexcept:\n    pass\n")))


def test_assert_is_found() -> None:
    assert list(asserts("a.py", ast.parse("def f(x):\n    assert x\n")))


def test_package_that_is_not_listed_is_found() -> None:
    pyproject = {"tool": {"setuptools": {"packages": ["lossbench.web", "lossbench.gone"]}}}
    faults = package_faults(pyproject, ["web/app.py", "web/deep/part.py"])
    assert [fault.split()[0] for fault in faults] == ["lossbench.web.deep", "lossbench.gone"]


def test_repeated_body_is_found() -> None:
    body = "\n".join(f"    x{i} = {i}" for i in range(8))
    text = f'def a():\n    """One."""\n{body}\n\ndef b():\n{body}\n'
    assert twins([("a.py", ast.parse(text))]) == ["a.py::b repeats a.py::a"]
