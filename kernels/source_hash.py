"""Hash of the code that a call runs, read from files and never imported.

Syntax trees without docstrings: comments, blank lines and formatting do not count. Empty fields are
left out, since releases of Python differ in which they list.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

SIGNS = 12
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
Read = Callable[[str], str | None]
"""Text of a file by its path with forward slashes, or None where there is none."""


def code_hash(folder: Path, modules: Sequence[str]) -> str:
    """12 hexadecimal digits for the code of these modules below `folder`, in the order given.

    A module that is not there counts as such: releases add and drop files.

    Raises: ValueError if there is none of them, or one is no Python.
    """

    def read(path: str) -> str | None:
        file = folder / path
        return file.read_text(encoding="utf-8") if file.is_file() else None

    return code_hash_of(read, modules)


def code_hash_of(read: Read, modules: Sequence[str]) -> str:
    """As `code_hash`, of files that `read` gives: a wheel need not be unpacked."""
    digest, found = hashlib.sha256(), 0
    for module in modules:
        text = _text_of(read, module)
        if text is None:
            digest.update(b"absent\0")
            continue
        found += 1
        try:
            tree = ast.parse(text)
        except SyntaxError as error:
            raise ValueError(
                f"{module} is not Python: {error.msg} (line {error.lineno})"
            ) from error
        digest.update(_written(_without_docstrings(tree)).encode() + b"\0")
    if not found:
        raise ValueError(f"none of its modules is there: {', '.join(modules) or 'none named'}")
    return digest.hexdigest()[:SIGNS]


def files_hash(folder: Path) -> str:
    """12 hexadecimal digits for the `*.py` files below a folder: their places and bytes.

    Hidden folders and caches do not count.

    Raises: ValueError for a folder without Python files.
    """
    digest, found = hashlib.sha256(), 0
    for path in _python_files(folder):
        found += 1
        content = path.read_bytes()
        place = path.relative_to(folder).as_posix()
        digest.update(f"{place}\0{len(content)}\0".encode() + content)
    if not found:
        raise ValueError(f"{folder} holds no Python files")
    return digest.hexdigest()[:SIGNS]


def _python_files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.is_dir() and not path.is_symlink():
            if not path.name.startswith(".") and path.name != "__pycache__":
                yield from _python_files(path)
        elif path.suffix == ".py" and path.is_file():
            yield path


def _text_of(read: Read, module: str) -> str | None:
    place = module.replace(".", "/")
    text = read(f"{place}.py")
    return read(f"{place}/__init__.py") if text is None else text


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:]
    return tree


def _written(value: object) -> str:
    if isinstance(value, ast.AST):
        fields = ((name, getattr(value, name, None)) for name in value._fields)
        inside = ",".join(f"{name}={_written(v)}" for name, v in fields if v not in (None, []))
        return f"{type(value).__name__}({inside})"
    if isinstance(value, list):
        return f"[{','.join(map(_written, value))}]"
    return repr(value)
