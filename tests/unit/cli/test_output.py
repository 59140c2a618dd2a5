"""What the commands print keeps brackets: they hold params, and rich would take them for markup."""

import io

import pytest
from rich.console import Console

from lossbench.service.cli import output

CONTENDER = "torch-compile-chunked@2.13.0[chunk_rows=256]"


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    text = io.StringIO()
    for name in ("console", "errors"):
        monkeypatch.setattr(output, name, Console(file=text, markup=False, width=120))
    return text


def test_table_keeps_params_in_brackets(printed: io.StringIO) -> None:
    output.print_table("N8-H8-V8[x]", ("contender", "note"), [(CONTENDER, "[bold]")])
    assert CONTENDER in printed.getvalue()
    assert "[bold]" in printed.getvalue()


def test_failure_keeps_params_in_brackets_on_one_line(printed: io.StringIO) -> None:
    output.fail(f"{CONTENDER}: no such param")
    assert printed.getvalue() == f"error: {CONTENDER}: no such param\n"


def test_table_without_rows_says_none(printed: io.StringIO) -> None:
    output.print_table("Tokens", ("id",), [])
    assert printed.getvalue() == "Tokens: none\n"
