"""Writes the generated pages of docs/reference: settings.md and cli.md. Run by `make docs`.

Their sources are the field descriptions of `Settings` and the help texts of the commands; a house
test compares the pages with what this file would write.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from lossbench.service.cli.main import app
from lossbench.service.settings import Settings

REFERENCE = Path(__file__).parent / "reference"
NOTE = "<!-- Written by `make docs`; edit its source instead. -->"

SETTINGS_INTRO = """# Settings

{note}

Every setting is an environment variable. A flag of a command, where there is one, goes before it.

| variable | type | default | what it does |
|---|---|---|---|
{rows}

## Notes

- An empty value counts as unset where the default is empty.
- A database URL that begins with `postgresql://` uses the driver psycopg, which is installed.
- `LOSSBENCH_URL` and `LOSSBENCH_TOKEN` are read by the commands that talk to a service; the service
  itself reads neither.
- The measuring processes of a worker see neither `LOSSBENCH_TOKEN` nor `LOSSBENCH_DATABASE_URL`.
"""

CLI_INTRO = """# Command line

{note}

One script, `lossbench`. Exit codes: 0 all is well; 1 the answer is no, such as a cell that failed;
2 wrong usage or bad input, said in one line. Commands that print data take `--json`. What a command
reads from its environment: [settings](settings.md). Job files: [job-file.md](job-file.md).

{commands}
"""


def settings_page() -> str:
    """Text of settings.md."""
    rows = []
    for name, field in Settings.model_fields.items():
        default = _default_text(name, field.default)
        kind = _type_text(field.annotation)
        rows.append(f"| `LOSSBENCH_{name.upper()}` | {kind} | {default} | {field.description} |")
    return SETTINGS_INTRO.format(note=NOTE, rows="\n".join(rows))


def _default_text(name: str, default: Any) -> str:
    if name == "data_dir":
        return "`$XDG_DATA_HOME/lossbench`, else `~/.local/share/lossbench`"
    if default is None:
        return "empty"
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def _type_text(annotation: Any) -> str:
    text = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    words = {"str": "text", "int": "whole number", "float": "number", "bool": "true or false"}
    bare = text.replace(" | None", "").rpartition(".")[2]
    return words.get(bare, bare.lower())


def commands() -> Iterator[tuple[str, Any]]:
    """Every command that can be run: (`lossbench db upgrade`, command), in the order of --help."""
    yield from _walk("lossbench", typer.main.get_command(app))


def _walk(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    inside = getattr(command, "commands", None)
    if inside is None:
        yield path, command
        return
    for name, child in inside.items():
        yield from _walk(f"{path} {name}", child)


def cli_page() -> str:
    """Text of cli.md."""
    parts = [_command_text(path, command) for path, command in commands()]
    return CLI_INTRO.format(note=NOTE, commands="\n\n".join(parts))


def _command_text(path: str, command: Any) -> str:
    about = re.sub(r"[ \t]+", " ", (command.help or "").strip())
    lines = [f"## `{path}`", "", about]
    rows = [_param_row(param) for param in command.params if not getattr(param, "hidden", False)]
    rows = [row for row in rows if "`--help`" not in row]
    if rows:
        lines += ["", "| argument or flag | default | what it does |", "|---|---|---|", *rows]
    return "\n".join(lines)


def _param_row(param: Any) -> str:
    names = ", ".join(f"`{name}`" for name in [*param.opts, *param.secondary_opts])
    if param.param_type_name == "argument":
        names = f"`{(param.metavar or param.name or '').strip('[]').upper()}`"
    unset = param.default in (None, False, [], ()) or "Sentinel" in type(param.default).__name__
    default = "" if unset else f"`{str(param.default).lower()}`"
    if param.required:
        default = "required"
    return f"| {names} | {default} | {getattr(param, 'help', None) or ''} |"


PAGES = {"settings.md": settings_page, "cli.md": cli_page}


def main() -> None:
    """Write every generated page that has changed."""
    for name, make in PAGES.items():
        target = REFERENCE / name
        text = make()
        changed = not target.exists() or target.read_text(encoding="utf-8") != text
        if changed:
            target.write_text(text, encoding="utf-8")
        sys.stdout.write(f"{'wrote' if changed else 'unchanged'}: docs/reference/{name}\n")


if __name__ == "__main__":
    main()
