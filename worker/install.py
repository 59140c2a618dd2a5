"""Contender environments: each `kernel@version` of a package in a folder of its own.

A folder appears whole or not at all: pip installs beside it, one rename puts it in place. A lock
keeps two workers from installing the same one at once. The wheel's SHA-256 of the first install is
kept and must match later.
"""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from packaging.version import InvalidVersion, Version

from lossbench.service.contract.errors import InstallError

PIP_TIMEOUT_S = 600
SITE = "site-packages"
"""QuACK finds out who it is from its path, so every folder ends in this name."""


@dataclass(frozen=True)
class Installed:
    """An installed contender: what to put first on the path, and the wheel it came from."""

    search_path: Path
    wheel_sha256: str


class Installer:
    """Installs contenders' packages under a data directory, from an index or a folder of wheels."""

    def __init__(self, data_dir: Path, wheel_dir: Path | None = None) -> None:
        self._root = data_dir / "contenders"
        self._wheel_dir = wheel_dir

    def install(self, package: str, version: str) -> Installed:
        """The installed package; installs it when missing. Raises InstallError in one line."""
        try:
            exact = str(Version(version))
        except InvalidVersion as error:
            raise InstallError(f"{package}: {version!r} is not a version") from error
        folder = self._root / f"{package}-{exact}"
        self._root.mkdir(parents=True, exist_ok=True)
        with _locked(self._root / f"{folder.name}.lock"):
            record = folder / "installed.json"
            if not record.exists():
                self._install_into(folder, package, exact)
            facts = json.loads(record.read_text(encoding="utf-8"))
        return Installed(folder / SITE, facts["wheel_sha256"])

    def _install_into(self, folder: Path, package: str, version: str) -> None:
        with tempfile.TemporaryDirectory(dir=self._root) as scratch:
            work = Path(scratch)
            wheel = self._download(work / "wheels", package, version)
            sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest()
            self._check_hash(folder.name, sha256, keep=False)
            made = work / "made"
            target = ["--target", str(made / SITE)]
            _pip("install", "--no-deps", "--no-index", "--no-compile", *target, str(wheel))
            facts = {"package": package, "version": version, "wheel_sha256": sha256}
            (made / "installed.json").write_text(json.dumps(facts), encoding="utf-8")
            # kept only now: a wheel that does not install must not bar the one that mends it
            self._check_hash(folder.name, sha256, keep=True)
            if folder.exists():
                shutil.rmtree(folder)
            os.rename(made, folder)

    def _download(self, target: Path, package: str, version: str) -> Path:
        source = ["--no-index", "--find-links", str(self._wheel_dir)] if self._wheel_dir else []
        _pip("download", "--no-deps", *source, "--dest", str(target), "--", f"{package}=={version}")
        wheels = list(target.glob("*.whl"))
        if len(wheels) != 1:
            raise InstallError(f"{package}=={version}: pip brought {len(wheels)} wheels, not one")
        return wheels[0]

    def _check_hash(self, name: str, sha256: str, keep: bool) -> None:
        known = self._root / "hashes.json"
        with _locked(self._root / "hashes.lock"):
            hashes = json.loads(known.read_text(encoding="utf-8")) if known.exists() else {}
            if hashes.setdefault(name, sha256) != sha256:
                raise InstallError(
                    f"{name}: the wheel's SHA-256 is {sha256[:12]}..., at its first install it was "
                    f"{hashes[name][:12]}...; remove it from {known} if the change is meant"
                )
            if not keep:
                return
            fresh = known.with_suffix(".new")
            fresh.write_text(json.dumps(hashes, indent=1, sort_keys=True), encoding="utf-8")
            os.replace(fresh, known)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _pip(action: str, *arguments: str) -> None:
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
        raise InstallError(f"pip {action} {arguments[-1]}: {why.removeprefix('ERROR: ')}")
