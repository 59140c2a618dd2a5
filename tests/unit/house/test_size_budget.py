"""Size budget: what does not fit on a few screens is not read. Exceptions are in allowed.txt."""

import ast
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

MOST_FILE_LINES = 400
MOST_FUNCTION_LINES = 50
MOST_KERNEL_LINES = 120
MOST_PARAMETERS = 7
LOSS_CALL = (("input", "weight", "target"), ("x", "weight", "target"))
"""First parameters of a call in torch's form: its length is the field's, not ours."""

Findings = dict[tuple[str, str], str]
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


def too_long_file(path: str, text: str) -> Iterator[tuple[str, str, str]]:
    """(rule, place, finding) for a file above the budget."""
    lines = len(text.splitlines())
    if lines > MOST_FILE_LINES:
        yield "file-lines", path, f"{lines} lines, at most {MOST_FILE_LINES}"


def functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, FunctionNode]]:
    """Every function with its qualified name, nested ones included."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, FunctionNode):
            yield prefix + node.name, node
            yield from functions(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.ClassDef):
            yield from functions(node, f"{prefix}{node.name}.")
        else:
            yield from functions(node, prefix)


def own_lines(function: FunctionNode) -> int:
    """Lines of a function without those of functions inside it, which count by themselves."""
    inside = [node for name, node in functions(function) if "." not in name]
    return _lines(function) - sum(_lines(node) for node in inside)


def _lines(node: FunctionNode) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def is_kernel(function: FunctionNode) -> bool:
    """Whether it is compiled by Triton."""
    return any("triton.jit" in ast.unparse(decorator) for decorator in function.decorator_list)


def parameters(function: FunctionNode) -> list[str]:
    """Names of the parameters a caller gives."""
    given = function.args
    names = [a.arg for a in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return names[1:] if names[:1] in (["self"], ["cls"]) else names


def too_large_functions(path: str, tree: ast.Module) -> Iterator[tuple[str, str, str]]:
    """(rule, place, finding) for functions above the budget."""
    for name, function in functions(tree):
        place = f"{path}::{name}"
        kernel = is_kernel(function)
        most = MOST_KERNEL_LINES if kernel else MOST_FUNCTION_LINES
        if (lines := own_lines(function)) > most:
            yield "function-lines", place, f"{lines} lines, at most {most}"
        names = parameters(function)
        loss_call = path.startswith("kernels/") and tuple(names[:3]) in LOSS_CALL
        is_test = path.startswith("tests/")  # fixtures and parametrised values
        many = len(names) > MOST_PARAMETERS
        if many and not (kernel or loss_call or is_test):
            yield "parameters", place, f"{len(names)} parameters, at most {MOST_PARAMETERS}"


def read_allowed(lines: Iterable[str]) -> Findings:
    """{(rule, place): reason}. Raises ValueError for a line without a reason."""
    allowed = {}
    for line in lines:
        if not line.strip() or line.startswith("#"):
            continue
        rule, place, reason = (part.strip() for part in line.split("|"))
        if len(reason) < 10:
            raise ValueError(f"{line!r} gives no reason")
        allowed[rule, place] = reason
    return allowed


@pytest.fixture(scope="module")
def allowed() -> Findings:
    """The exceptions."""
    file = Path(__file__).with_name("allowed.txt")
    return read_allowed(file.read_text(encoding="utf-8").splitlines())


@pytest.fixture(scope="module")
def findings(every_source: Sequence[Any], root: Path) -> Findings:
    """Everything above the budget, allowed or not."""
    found = [
        finding
        for source in every_source
        for finding in (
            *too_long_file(source.path, source.text),
            *too_large_functions(source.path, source.tree),
        )
    ]
    for pattern in ("*.js", "*.css", "*.html"):
        for path in sorted((root / "web").rglob(pattern)):
            text = path.read_text(encoding="utf-8")
            found += too_long_file(path.relative_to(root).as_posix(), text)
    return {(rule, place): finding for rule, place, finding in found}


def test_size_budget_is_kept(findings: Findings, allowed: Findings) -> None:
    over = [f"{place}: {text}" for (rule, place), text in findings.items()
            if (rule, place) not in allowed]  # fmt: skip
    assert not over, "\n".join(over)


def test_size_exceptions_are_all_needed(findings: Findings, allowed: Findings) -> None:
    assert not [line for line in allowed if line not in findings], "remove them from allowed.txt"


def test_file_of_401_lines_is_found() -> None:
    assert list(too_long_file("a.py", "x\n" * 401))
    assert not list(too_long_file("a.py", "x\n" * 400))


def _function(body_lines: int, head: str = "def f():") -> ast.Module:
    return ast.parse("\n".join([head, *["    x = 1"] * body_lines]))


def test_function_of_51_lines_is_found() -> None:
    assert list(too_large_functions("a.py", _function(50)))
    assert not list(too_large_functions("a.py", _function(49)))


def test_kernel_of_121_lines_is_found() -> None:
    assert not list(too_large_functions("kernels/a.py", _function(119, "@triton.jit\ndef f():")))
    assert list(too_large_functions("kernels/a.py", _function(120, "@triton.jit\ndef f():")))


def test_nested_function_counts_by_itself() -> None:
    inner = "\n".join(["def f():", "    def g():", *["        x = 1"] * 60])
    assert [place for _, place, _ in too_large_functions("a.py", ast.parse(inner))] == ["a.py::f.g"]


@pytest.mark.parametrize(
    ("path", "head", "found"),
    [
        ("service/a.py", "def f(a, b, c, d, e, f, g, h):", True),
        ("service/a.py", "def f(self, a, b, c, d, e, f, g):", False),
        ("service/a.py", "def f(a, *, b, c, d, e, f, g, h):", True),
        ("kernels/a.py", "def f(input, weight, target, a, b, c, d, e):", False),
        ("service/a.py", "def f(input, weight, target, a, b, c, d, e):", True),
    ],
)
def test_eight_parameters_are_found(path: str, head: str, found: bool) -> None:
    assert bool(list(too_large_functions(path, _function(1, head)))) == found


def test_exception_without_reason_is_refused() -> None:
    with pytest.raises(ValueError, match="no reason"):
        read_allowed(["file-lines | a.py | because"])
