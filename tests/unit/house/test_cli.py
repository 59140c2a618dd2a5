"""Every command has help with an example and a heading; commands that pages name are real."""

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from typer.testing import CliRunner

from lossbench.service.cli.main import app

COMMAND_LINE = re.compile(r"^    (lossbench .+)$", re.MULTILINE)
PAGES = ("README.md", "CONTRIBUTING.md", "docs/quickstart.md", "docs/howto")


@pytest.fixture(scope="module")
def commands(generate: ModuleType) -> dict[str, Any]:
    """Every command by its full name."""
    return dict(generate.commands())


def help_faults(name: str, command: Any) -> list[str]:
    """What a command's help lacks."""
    text = command.help or ""
    faults = [] if text.strip() else [f"{name}: no help"]
    found = re.search(r"Example: `(.+?)`", text)
    if found is None:
        faults.append(f"{name}: no example")
    elif not found[1].startswith(name):
        faults.append(f"{name}: the example is of another command")
    nameless = [p.name for p in command.params if not getattr(p, "help", None) and p.name != "help"]
    return faults + [f"{name}: {parameter} has no help" for parameter in nameless]


def line_faults(line: str, commands: dict[str, Any]) -> list[str]:
    """What is wrong with a command line of a page: unknown command or flags."""
    words = shlex.split(line.rstrip("& "), comments=True)
    name = next((n for n in commands if words[: len(n.split())] == n.split()), None)
    if name is None:
        return [f"{line}: no such command"]
    flags = {f for p in commands[name].params for f in (*p.opts, *p.secondary_opts)} | {"--help"}
    given = [word.partition("=")[0] for word in words[len(name.split()) :] if word.startswith("-")]
    return [f"{line}: no flag {flag}" for flag in given if flag not in flags]


def lines_of(text: str) -> Sequence[str]:
    """Command lines of a page."""
    return COMMAND_LINE.findall(text)


def test_every_command_has_help_with_an_example(commands: dict[str, Any]) -> None:
    assert len(commands) >= 15
    assert not [fault for name, command in commands.items() for fault in help_faults(name, command)]


def test_every_command_answers_help_with_exit_0(commands: dict[str, Any]) -> None:
    runner = CliRunner()
    for name in ["lossbench", *commands]:
        result = runner.invoke(app, [*name.split()[1:], "--help"])
        assert result.exit_code == 0, f"{name}: {result.output}"


def test_every_command_has_a_heading(root: Path, commands: dict[str, Any]) -> None:
    text = (root / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    assert not [name for name in commands if f"## `{name}`" not in text.splitlines()]


def test_examples_and_pages_use_real_commands(root: Path, commands: dict[str, Any]) -> None:
    examples = [re.search(r"Example: `(.+?)`", c.help or "") for c in commands.values()]
    lines = [found[1] for found in examples if found]
    for name in PAGES:
        files = sorted((root / name).glob("*.md")) if (root / name).is_dir() else [root / name]
        lines += [line for file in files for line in lines_of(file.read_text(encoding="utf-8"))]
    assert len(lines) > 20
    assert not [fault for line in lines for fault in line_faults(line, commands)]


class _Command:
    help = "Does it.\n\nExample: `lossbench tea`"
    params = ()


def test_help_without_example_is_found() -> None:
    command = _Command()
    assert not help_faults("lossbench tea", command)
    assert help_faults("lossbench coffee", command)
    command.help = "Does it."
    assert help_faults("lossbench tea", command) == ["lossbench tea: no example"]


def test_unreal_command_line_is_found(commands: dict[str, Any]) -> None:
    assert not line_faults("lossbench run a.yaml -p 1 &  # so", commands)
    assert line_faults("lossbench brew", commands)
    assert line_faults("lossbench run --turbo", commands)
