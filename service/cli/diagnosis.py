"""What this machine can measure, and what is missing: the findings of `lossbench doctor`."""

import importlib.util
import shutil
import sysconfig
from pathlib import Path
from typing import NamedTuple

from ..contract.errors import LossbenchError
from ..settings import Settings
from ..store.database import Database, check_schema


class Finding(NamedTuple):
    """One thing looked at; `good` None means a note."""

    subject: str
    good: bool | None
    text: str


def diagnose(settings: Settings) -> list[Finding]:
    """Look at the data directory, database, torch, Triton, compiler, device and plugins."""
    return [
        _data_directory(settings),
        _database(settings),
        _package("torch", "measuring needs it: pip install 'lossbench[worker]'"),
        _package("triton", "the Triton kernels need it: pip install 'lossbench[worker]'"),
        _compiler(),
        _headers(),
        _device(),
        *_own_contenders(settings),
    ]


def _data_directory(settings: Settings) -> Finding:
    try:
        return Finding("data directory", True, str(settings.prepared_data_dir()))
    except LossbenchError as error:
        return Finding("data directory", False, error.message)


def _database(settings: Settings) -> Finding:
    try:
        database = Database.from_settings(settings)
        current = check_schema(database)
        name = database.engine.url.render_as_string()
        database.close()
    except LossbenchError as error:
        return Finding("database", False, error.message)
    return Finding("database", True if current else None, name + ("" if current else " (empty)"))


def _package(name: str, why: str) -> Finding:
    if importlib.util.find_spec(name) is None:
        return Finding(name, False, f"not installed; {why}")
    from importlib.metadata import version

    return Finding(name, True, version(name))


def _compiler() -> Finding:
    found = next((c for c in ("g++", "clang++", "c++") if shutil.which(c)), None)
    if found:
        return Finding("C++ compiler", True, found)
    text = "none; torch.compile and Triton need one (apt-get install g++), else `unsupported`"
    return Finding("C++ compiler", False, text)


def _headers() -> Finding:
    header = Path(sysconfig.get_paths()["include"]) / "Python.h"
    if header.exists():
        return Finding("Python.h", True, str(header))
    return Finding(
        "Python.h", None, "missing; Triton on a GPU needs it (apt-get install python3-dev)"
    )


def _own_contenders(settings: Settings) -> list[Finding]:
    """Plugins that are used and that are not, and the operator's contenders."""
    from lossbench.worker.known_contenders import known_contenders

    try:
        known = known_contenders(settings)
    except LossbenchError as error:
        return [Finding("contenders", False, error.message)]
    found = [Finding("plugin", False, fault) for fault in known.faults]
    names = ", ".join(f"{s.name}@{s.versions[-1]}" if s.versions else s.name for s in known.specs)
    if names:
        found.append(Finding("contenders", True, f"beside the shipped ones: {names}"))
    return found


def _device() -> Finding:
    if importlib.util.find_spec("torch") is None:
        return Finding("device", None, "not looked at without torch")
    from lossbench.worker.device import probe_device

    try:
        environment, wrong = probe_device(quick=True)
    except LossbenchError as error:
        return Finding("device", False, error.message)
    if wrong:
        return Finding("device", False, f"{environment.device_name}: {wrong}")
    rate = environment.facts.get("gemm_tflops")
    text = (
        f"{environment.device_name}, {environment.memory_bytes / 2**30:.0f} GiB, {rate:.3g} TFLOP/s"
    )
    if environment.device_type == "cpu":
        text += "; no GPU: torch kernels are timed on the CPU, Triton kernels only checked"
    return Finding("device", True, text)
