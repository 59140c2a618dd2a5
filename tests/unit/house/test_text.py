"""No file names a path of one machine, or the host of a package registry."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

# written in parts, so that this file does not find itself
MACHINE_PATHS = tuple(f"/{name}/" for name in ("work", "root", "home", "Users"))
REGISTRIES = ("pypi" + ".org", "python" + "hosted.org", "npmjs" + ".org", "npmjs" + ".com")
CPU_INDEX = "download.py" + "torch.org"
CPU_INDEX_PLACE = "Makefile"
_PATH = re.compile(r"(?<![\w.\-}])(" + "|".join(map(re.escape, MACHINE_PATHS)) + r")[\w.$~{]")


def text_faults(path: str, text: str) -> Iterator[str]:
    """`path:line: what` for each machine path and registry host."""
    for number, line in enumerate(text.splitlines(), 1):
        if found := _PATH.search(line):
            yield f"{path}:{number}: a path of one machine: {found.group()}..."
        for host in REGISTRIES:
            if host in line:
                yield f"{path}:{number}: the host of a registry: {host}"
        if CPU_INDEX in line and path != CPU_INDEX_PLACE:
            yield f"{path}:{number}: {CPU_INDEX} belongs to the {CPU_INDEX_PLACE} only"


def test_no_machine_paths_and_no_registry_hosts(root: Path, listed: tuple[Path, ...]) -> None:
    faults: list[str] = []
    for path in listed:
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        faults += text_faults(path.relative_to(root).as_posix(), text)
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize(
    "line",
    [
        f"open('{MACHINE_PATHS[0]}shared/x')",
        f"cd {MACHINE_PATHS[1]}a",
        f"{MACHINE_PATHS[2]}ana/lossbench",
        f"https://{REGISTRIES[0]}/simple",
        f"--index-url https://{CPU_INDEX}/whl/cpu",
    ],
)
def test_machine_path_or_host_is_found(line: str) -> None:
    assert list(text_faults("README.md", line))


def test_cpu_index_is_allowed_in_the_makefile() -> None:
    assert not list(text_faults(CPU_INDEX_PLACE, f"CPU_INDEX := https://{CPU_INDEX}/whl/cpu"))
    assert not list(text_faults("a.md", "see docs/home/notes and the framework/root/x"))
