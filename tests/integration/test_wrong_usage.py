"""What is typed or set wrongly ends with one line and exit code 2, never with a traceback."""

from pathlib import Path

import pytest

from .test_sets import Commands


@pytest.fixture
def commands(tmp_path: Path) -> Commands:
    return Commands(tmp_path)


@pytest.mark.parametrize(
    ("text", "name", "told"),
    [
        ("contenders: [\x01]", "odd.yaml", "not YAML"),
        ("contenders: [a\n", "open.yaml", "line 2"),
        ("[" * 5000, "deep.yaml", "nested too deeply"),
        ("[" * 100_000, "deep.json", "nested too deeply"),
    ],
)
def test_file_that_is_no_job(commands: Commands, text: str, name: str, told: str) -> None:
    path = commands.folder / name
    path.write_text(text)
    assert told in commands.refused("submit", str(path), "--dry-run")


@pytest.mark.parametrize("words", [("db", "backup", "copy.db"), ("db", "prune")])
def test_database_that_is_not_there_is_not_made(commands: Commands, words: tuple[str, ...]) -> None:
    assert "there is no database" in commands.refused(*words)
    assert not list(commands.folder.glob("*.db*"))


def test_backup_into_no_folder_is_refused(commands: Commands) -> None:
    assert commands.run("db", "upgrade").returncode == 0
    assert "no such folder" in commands.refused("db", "backup", "/nowhere/copy.db")


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("LOSSBENCH_PORT", "abc"),
        ("LOSSBENCH_OPEN_READING", "maybe"),
        ("LOSSBENCH_HEARTBEAT_S", "0"),
    ],
)
def test_setting_that_does_not_fit_is_named(commands: Commands, variable: str, value: str) -> None:
    commands.set(variable, value)
    assert variable in commands.refused("serve")


def test_option_that_is_no_value_is_named(commands: Commands) -> None:
    line = commands.refused("submit", "-c", "torch-naive", "-s", "8x8x32", "-o", "softcap=[")
    assert "softcap=[" in line
