"""Contender environments: each `kernel@version` of a package in a folder of its own.

A folder appears whole or not at all: pip installs beside it, one rename puts it in place. A lock
keeps two workers from installing the same one at once. The SHA-256 of every wheel at its first
install is kept and must match later.
"""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from lossbench.kernels.plugins import is_exact
from lossbench.service.contract.errors import InstallError

PIP_TIMEOUT_S = 600
SITE = "site-packages"
"""QuACK finds out who it is from its path, so every folder ends in this name."""
FOLDER = "contenders"
"""Below the data directory."""
RECORD = "installed.json"
"""Written last: a folder that holds it is whole."""


@dataclass(frozen=True)
class Installed:
    """An installed contender: what to put first on the path, and the wheels it came from."""

    search_path: Path
    wheel_sha256: str | None
    requires_sha256: Mapping[str, str] = field(default_factory=dict)


class Installer:
    """Installs contenders' packages under a data directory, from an index or a folder of wheels."""

    def __init__(self, data_dir: Path, wheel_dir: Path | None = None) -> None:
        self._root = data_dir / FOLDER
        self._wheel_dir = wheel_dir

    @property
    def root(self) -> Path:
        """Folder of all contenders."""
        return self._root

    def find(self, package: str, version: str) -> Path | None:
        """Where a package lies that is installed already, without what others require of it."""
        folder = self._root / exact_pin(package, version).replace("==", "-")
        return folder / SITE if (folder / RECORD).exists() else None

    def install(self, package: str, version: str, requires: Sequence[str] = ()) -> Installed:
        """The installed package with what it `requires` (`name==version`) beside it.

        Raises InstallError in one line.
        """
        pin = exact_pin(package, version)
        return self._installed(pin.replace("==", "-"), [pin, *requires], pin)

    def install_requires(self, requires: Sequence[str]) -> Installed:
        """Only what a contender requires, for one whose own files lie elsewhere."""
        return self._installed("requires", list(requires), None)

    def download(self, target: Path, pins: Sequence[str]) -> dict[str, Path]:
        """The wheel of each `name==version`, in `target`. Raises InstallError."""
        for pin in pins:
            if not is_exact(pin):
                raise InstallError(f"{pin!r} is not name==version")
        source = ["--no-index", "--find-links", str(self._wheel_dir)] if self._wheel_dir else []
        run_pip("download", "--no-deps", *source, "--dest", str(target), "--", *pins)
        wheels = {_identity_of(wheel): wheel for wheel in target.glob("*.whl")}
        found = {pin: wheels.get(_identity(pin)) for pin in pins}
        if missing := [pin for pin, wheel in found.items() if wheel is None]:
            raise InstallError(f"{missing[0]}: pip brought {len(wheels)} wheels, none of it")
        return {pin: wheel for pin, wheel in found.items() if wheel is not None}

    def _installed(self, name: str, pins: list[str], own: str | None) -> Installed:
        if more := sorted(pin for pin in pins if pin != own):
            name += "+" + hashlib.sha256(" ".join(more).encode()).hexdigest()[:8]
        folder = self._root / name
        self._root.mkdir(parents=True, exist_ok=True)
        with locked(self._root / f"{name}.lock"):
            if not (folder / RECORD).exists():
                self._install_into(folder, pins)
            facts = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        hashes = dict(facts["wheels"])
        own_sha256 = hashes.pop(own) if own else None
        return Installed(folder / SITE, own_sha256, hashes)

    def _install_into(self, folder: Path, pins: list[str]) -> None:
        with tempfile.TemporaryDirectory(dir=self._root) as scratch:
            work = Path(scratch)
            wheels = self.download(work / "wheels", pins)
            hashes = {
                pin: hashlib.sha256(wheel.read_bytes()).hexdigest() for pin, wheel in wheels.items()
            }
            self._check_hashes(hashes, keep=False)
            made = work / "made"
            target = ["--target", str(made / SITE)]
            files = [str(wheel) for wheel in wheels.values()]
            run_pip("install", "--no-deps", "--no-index", "--no-compile", *target, "--", *files)
            (made / RECORD).write_text(json.dumps({"wheels": hashes}), encoding="utf-8")
            # kept only now: a wheel that does not install must not bar the one that mends it
            self._check_hashes(hashes, keep=True)
            if folder.exists():
                shutil.rmtree(folder)
            os.rename(made, folder)

    def _check_hashes(self, found: Mapping[str, str], keep: bool) -> None:
        known = self._root / "hashes.json"
        with locked(self._root / "hashes.lock"):
            hashes = json.loads(known.read_text(encoding="utf-8")) if known.exists() else {}
            for pin, sha256 in found.items():
                name = pin.replace("==", "-")
                if hashes.setdefault(name, sha256) != sha256:
                    raise InstallError(
                        f"{name}: the wheel's SHA-256 is {sha256[:12]}..., at its first install it "
                        f"was {hashes[name][:12]}...; remove it from {known} if the change is meant"
                    )
            if not keep:
                return
            fresh = known.with_suffix(".new")
            fresh.write_text(json.dumps(hashes, indent=1, sort_keys=True), encoding="utf-8")
            os.replace(fresh, known)


def exact_pin(package: str, version: str) -> str:
    """`package==version`. Raises InstallError for what is no version."""
    try:
        return f"{package}=={Version(version)}"
    except InvalidVersion as error:
        raise InstallError(f"{package}: {version!r} is not a version") from error


def _identity(pin: str) -> tuple[str, Version]:
    name, _, version = pin.partition("==")
    return canonicalize_name(name.strip()), Version(version.strip())


def _identity_of(wheel: Path) -> tuple[str, Version]:
    try:
        name, version, _, _ = parse_wheel_filename(wheel.name)
    except InvalidWheelFilename as error:
        raise InstallError(f"pip brought {wheel.name}, which is no wheel's name") from error
    return name, version


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock file: one process at a time, and none after its end."""
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def run_pip(action: str, *arguments: str) -> None:
    """Run pip's `action`, wheels only. Raises InstallError with pip's last word."""
    command = [sys.executable, "-P", "-m", "pip", action, "--quiet", "--no-input"]
    command.append("--disable-pip-version-check")
    if action == "download":
        command += ["--only-binary", ":all:"]
    try:
        done = subprocess.run(
            [*command, *arguments],
            capture_output=True,
            text=True,
            timeout=PIP_TIMEOUT_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired as error:
        raise InstallError(f"pip {action} took more than {PIP_TIMEOUT_S} s") from error
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        why = (lines or done.stderr.splitlines() or ["no message"])[-1]
        what = " ".join(arguments[arguments.index("--") + 1 :])
        raise InstallError(f"pip {action} {what}: {why.removeprefix('ERROR: ')}")
